//! The holders of a key in memory: one exclusive holder, or those that share the key.

use crate::value::mode::Mode;
use crate::value::time::Moment;
use crate::value::token::Token;

#[derive(Debug)]
pub(crate) enum Holders {
    Exclusive(Holder),
    /// In the order in which they came.
    Shared(Vec<Holder>),
}

#[derive(Debug)]
pub(crate) struct Holder {
    pub(crate) token: Token,
    pub(crate) expires: Moment,
}

impl Holders {
    /// The holders after a token was granted the key beside those `before`. A token that holds the
    /// key already keeps the later end of its lease.
    pub(crate) fn with(before: Option<Self>, mut holder: Holder, mode: Mode) -> Self {
        let mut all = match before {
            Some(Holders::Shared(all)) => all,
            Some(Holders::Exclusive(before)) => vec![before],
            None => Vec::new(),
        };
        all.retain(|other| {
            let is_same = other.token == holder.token;
            if is_same {
                holder.expires = holder.expires.max(other.expires);
            }
            !is_same && !mode.is_exclusive()
        });
        if mode.is_exclusive() {
            return Holders::Exclusive(holder);
        }
        all.push(holder);
        Holders::Shared(all)
    }

    /// Forgets the holders whose lease is over; returns whether any is left.
    pub(crate) fn live_on(&mut self, now: Moment) -> bool {
        match self {
            Holders::Exclusive(holder) => holder.expires > now,
            Holders::Shared(all) => {
                all.retain(|holder| holder.expires > now);
                !all.is_empty()
            }
        }
    }

    /// Whether a caller of this mode may hold the key beside them.
    pub(crate) fn admit(&self, mode: Mode) -> bool {
        match self {
            Holders::Exclusive(_) => false,
            Holders::Shared(all) => mode.admits(all.len()),
        }
    }

    /// The holder with this token.
    pub(crate) fn of_token(&mut self, token: &Token) -> Option<&mut Holder> {
        match self {
            Holders::Exclusive(holder) => Some(holder).filter(|holder| holder.token == *token),
            Holders::Shared(all) => all.iter_mut().find(|holder| holder.token == *token),
        }
    }

    /// The value of the key that a refused caller of this mode is shown, and the moment until which
    /// it has to wait at most if nobody renews.
    pub(crate) fn shown(&self, mode: Mode) -> Option<(&[u8], Moment)> {
        let (holder, expires) = match self {
            Holders::Exclusive(holder) => (holder, holder.expires),
            Holders::Shared(all) => {
                let ends = all.iter().map(|holder| holder.expires);
                let ends = match mode {
                    Mode::Permits(_) => ends.min(),
                    Mode::Exclusive | Mode::Shared => ends.max(),
                };
                (all.last()?, ends?)
            }
        };
        Some((holder.token.expose().as_bytes(), expires))
    }
}
