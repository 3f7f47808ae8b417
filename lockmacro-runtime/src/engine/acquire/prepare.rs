//! From a [`LockSpec`] to a request, or to a lock around the call that it joins.

use std::iter;
use std::sync::{Arc, Once};

use crate::engine::acquire::outcome::{Acquired, Rare, Wanted};
use crate::engine::acquire::reentry::{Scope, around};
use crate::engine::acquire::spec::LockSpec;
use crate::engine::acquire::unreported::Errors;
use crate::engine::current;
use crate::engine::lease::held::Held;
use crate::engine::manager::Manager;
use crate::protocol::request::Request;
use crate::value::defaults::check_ttl;
use crate::value::error::LockError;
use crate::value::holder::about;
use crate::value::key::{LockKey, in_order, permit_before_exclusive};
use crate::value::time::wall_clock;
use crate::value::token::Token;

/// What becomes of a [`LockSpec`].
pub(crate) enum Prepared {
    Joined(Acquired),
    ToAsk(Arc<Manager>, Request, Wanted),
}

impl LockSpec {
    /// Checks the spec, fills in the manager's defaults, and looks for an outer lock to join. Sends
    /// nothing to a server.
    pub(crate) fn prepare(self, fenced: bool, errors: Errors) -> Result<Prepared, LockError> {
        self.key.check()?;
        self.more.iter().try_for_each(LockKey::check)?;
        let ttl = self.ttl.map(check_ttl).transpose()?;
        let manager = self.manager.map_or_else(current::manager, Ok)?;
        // Before a lock around this one is looked for: a fork has copies of its parent's.
        let label = manager.label()?;
        let defaults = &manager.defaults;
        defaults.usable()?;
        let ttl = ttl.unwrap_or(defaults.ttl());
        let wait = self.wait.unwrap_or(defaults.wait);
        let whole = |key: LockKey| key.under(&defaults.prefix);
        let more = self.more.into_iter().map(whole).collect::<Result<Vec<_>, _>>()?;
        let key = whole(self.key)?;
        let several = in_order(&key, &more)?;
        let key = if several.is_empty() { strictest(key, &more) } else { key };
        check_modes(&key, &more)?;
        warn_of_permits_first(&several);
        let ours = |held: &Held| Arc::ptr_eq(held.manager(), &manager);
        if several.is_empty() {
            if let Some(held) = Scope::find(|held| ours(held) && held.nth(&key).is_some()) {
                held.covers(&key)?;
                let nth = held.nth(&key);
                return Acquired::joining(held, nth, self.on_lost).map(Prepared::Joined);
            }
        } else if let Some(held) = around(&several, ours)? {
            several.iter().try_for_each(|key| held.covers(key))?;
            return Acquired::joining(held, None, self.on_lost).map(Prepared::Joined);
        }
        // The token of a waiter is older than its grant, so it does not show since when the lock is
        // held.
        let since = wait.is_zero().then(wall_clock);
        let about = about(since, self.holder_note.as_deref());
        let token = Token::draft(label, &self.name, &about);
        let (first, given) = match several.first() {
            Some(first) => (first.clone(), Some(key)),
            None => (key, None),
        };
        let mut request =
            Request::new(first, token, ttl).with(several, given, self.min_hold.min(ttl));
        request.name = self.name;
        request.fenced = fenced;
        request.until = (!wait.is_zero()).then(|| request.asked.after(wait));
        let wanted = Wanted {
            renewed: self.renewed.unwrap_or(true),
            on_lost: self.on_lost,
            releases_in_background: self.releases_in_background,
            errors,
            rare: Rare::of(self.max_hold, self.message),
        };
        Ok(Prepared::ToAsk(manager, request, wanted))
    }
}

/// The key in the strictest of its modes. `others` are the same key.
fn strictest(key: LockKey, others: &[LockKey]) -> LockKey {
    let mode = others.iter().fold(key.mode(), |mode, other| mode.stricter(other.mode()));
    if mode == key.mode() { key } else { key.with_mode(mode) }
}

fn check_modes(key: &LockKey, more: &[LockKey]) -> Result<(), LockError> {
    let mut modes = iter::once(key).chain(more).map(LockKey::mode);
    let fault = modes.find_map(|mode| mode.fault().map(|detail| (mode.setting(), detail)));
    match fault {
        Some((setting, detail)) => Err(LockError::InvalidSetting { setting, detail }),
        None => Ok(()),
    }
}

/// Logs once that a permit may be held while another key is waited for.
fn warn_of_permits_first(several: &[LockKey]) {
    static LOGGED: Once = Once::new();
    if let Some(key) = permit_before_exclusive(several) {
        LOGGED.call_once(|| {
            tracing::warn!(
                %key,
                "a permit of this key may be held while an exclusive key of the same list is \
                 waited for: nest two functions instead"
            );
        });
    }
}
