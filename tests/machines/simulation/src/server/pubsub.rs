//! The subscribers of channels.

use std::collections::BTreeMap;

use super::connection::ConnectionId;

/// Channels, each with its subscribers in the order in which they came.
#[derive(Debug, Default)]
pub(super) struct Channels(BTreeMap<Vec<u8>, Vec<ConnectionId>>);

impl Channels {
    pub(super) fn subscribe(&mut self, channel: &[u8], id: ConnectionId) {
        let subscribers = self.0.entry(channel.to_vec()).or_default();
        if !subscribers.contains(&id) {
            subscribers.push(id);
        }
    }

    pub(super) fn unsubscribe(&mut self, channel: &[u8], id: ConnectionId) {
        if let Some(subscribers) = self.0.get_mut(channel) {
            subscribers.retain(|subscriber| *subscriber != id);
            if subscribers.is_empty() {
                self.0.remove(channel);
            }
        }
    }

    pub(super) fn subscribers(&self, channel: &[u8]) -> &[ConnectionId] {
        self.0.get(channel).map_or(&[], Vec::as_slice)
    }
}
