//! The description of a lock: its keys, and how to acquire it. It becomes what a caller asks for,
//! or joins a lock around the call.

use std::borrow::Cow;
use std::sync::{Arc, Once};
use std::time::Duration;
use std::{iter, slice};

use crate::engine::acquire::options::{LockOptions, WaitMode};
use crate::engine::acquire::outcome::{Acquired, Errors, Wanted};
use crate::engine::acquire::reentry::around;
use crate::engine::current;
use crate::engine::lease::held::Held;
use crate::engine::manager::Manager;
use crate::protocol::ask::Ask;
use crate::sys::time::{Moment, wall_clock};
use crate::value::defaults::{check_ttl, check_wait};
use crate::value::error::LockError;
use crate::value::key::{LockKey, in_order, permit_before_exclusive};
use crate::value::mode::Mode;

/// The description of a lock: its keys and its options.
#[derive(Debug, Clone)]
pub struct LockSpec {
    key: LockKey,
    /// Further keys, in the caller's order.
    more: Box<[LockKey]>,
    pub(crate) options: LockOptions,
    pub(crate) name: Cow<'static, str>,
    pub(crate) message: Option<Cow<'static, str>>,
    pub(crate) holder_note: Option<String>,
    pub(crate) manager: Option<Arc<Manager>>,
}

/// A prepared [`LockSpec`]: a lock that it joins, or what to ask for.
pub(crate) enum Prepared {
    Joined(Acquired),
    ToAsk(Arc<Manager>, Arc<Ask>, Wanted),
}

impl LockSpec {
    /// A lock with these keys, and defaults for everything else. Never inlined, as every annotated
    /// function calls it.
    #[inline(never)]
    pub(crate) fn new(key: LockKey, more: Box<[LockKey]>) -> Arc<Self> {
        Arc::new(Self {
            key,
            more,
            options: LockOptions::default(),
            name: Cow::Borrowed(""),
            message: None,
            holder_note: None,
            manager: None,
        })
    }

    /// Sets the mode of all keys.
    pub(crate) fn set_mode(&mut self, mode: Mode) {
        let keys = iter::once(&mut self.key).chain(&mut self.more);
        keys.for_each(|key| key.set_mode(mode));
    }

    /// All keys, in the caller's order.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &LockKey> {
        iter::once(&self.key).chain(&self.more)
    }

    /// Checks the spec, fills in the manager's defaults, and looks for an outer lock to join. Sends
    /// nothing to a server.
    pub(crate) fn prepare(&self, waits: WaitMode, errors: Errors) -> Result<Prepared, LockError> {
        self.keys().try_for_each(LockKey::check)?;
        if let Some(detail) = self.keys().find_map(|key| key.mode().fault()) {
            return Err(LockError::invalid("permits", detail));
        }
        let ttl = self.options.ttl.map(check_ttl).transpose()?;
        let wait = self.options.wait.map(check_wait).transpose()?;
        let manager = self.manager.clone().map_or_else(current::manager, Ok)?;
        // Before a lock around this one is looked for: a fork has copies of its parent's.
        let label = manager.core.label()?;
        let defaults = &manager.core.defaults;
        defaults.usable()?;
        let ttl = ttl.unwrap_or(defaults.ttl());
        let wait = match waits {
            WaitMode::AsSet => wait.unwrap_or(defaults.wait),
            WaitMode::Never => Duration::ZERO,
        };
        let whole = |key: &LockKey| key.clone().under(&defaults.prefix);
        let more = self.more.iter().map(whole).collect::<Result<Vec<_>, _>>()?;
        let (key, several) = in_order(whole(&self.key)?, more)?;
        warn_of_permits_first(&several);
        let keys = if several.is_empty() { slice::from_ref(&key) } else { &several };
        if let Some(held) = around(keys, |held: &Held| Arc::ptr_eq(&held.manager, &manager.core))? {
            keys.iter().try_for_each(|key| held.check_covers(key))?;
            // To join a lock that is lost would be to run the body without one.
            held.check_lease()?;
            if self.options.fenced {
                keys.iter().try_for_each(|key| held.check_fence(key))?;
            }
            let nth = if several.is_empty() { held.nth(&key) } else { None };
            return Ok(Prepared::Joined(Acquired::joining(nth, held, self.options.on_lost)));
        }
        let first = several.first().unwrap_or(&key).clone();
        let first_given = several.iter().position(|one| *one == key).unwrap_or(0);
        let first_given = u8::try_from(first_given).expect("a lock has 128 keys at most");
        let asked = Moment::now();
        let mut ask = Ask {
            first_given,
            several: several.into(),
            fenced: self.options.fenced,
            min_hold: self.options.min_hold.unwrap_or_default().min(ttl),
            until: (!wait.is_zero()).then(|| asked.after(wait)),
            name: self.name.clone(),
            label: Arc::clone(label),
            asked_wall: Some(wall_clock()),
            note: self.holder_note.as_deref().map(Box::from),
            ..Ask::new(first, ttl, asked)
        };
        // The first request does not wait, as a free lock needs no queue.
        ask.only_if_free = ask.until.is_some() && ask.has_queue();
        let wanted = Wanted::new(&self.options, self.message.clone(), errors);
        Ok(Prepared::ToAsk(manager, Arc::new(ask), wanted))
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
