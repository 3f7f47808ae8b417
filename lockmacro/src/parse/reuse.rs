//! The settings of `on_busy = reuse`.

use syn::{Error, Expr, Result};

use crate::messages;
use crate::parse::duration::{self, ANY, Time};
use crate::parse::item::Function;
use crate::parse::template::Template;
use crate::parse::values::{settings, text};

/// The settings of `reuse(..)`.
pub(crate) struct Reuse {
    /// For how long a value is kept after its body; `None` for those that wait only.
    pub(crate) keep: Option<Time>,
    /// The text that is the same in all calls for one value.
    pub(crate) same: Option<Template>,
}

impl Reuse {
    /// Reads `reuse`, or `reuse(keep = "10s", same = "<amount>")`.
    pub(crate) fn parse<'a>(
        policy: &Expr,
        given: impl IntoIterator<Item = &'a Expr>,
        function: Option<&Function>,
    ) -> Result<Self> {
        if !cfg!(feature = "reuse") {
            return Err(Error::new_spanned(policy, messages::feature("reuse")));
        }
        let mut reuse = Self { keep: None, same: None };
        settings(given, messages::REUSE_SETTINGS, |name, value| {
            match (name, value) {
                ("keep", Some(value)) => {
                    reuse.keep = Some(duration::time("keep = {}", value.clone(), &ANY)?);
                }
                ("same", Some(value)) => {
                    let same = Template::text(text(value, "same = \"<amount>\"")?, function)?;
                    if same.as_plain().is_some() {
                        return Err(Error::new_spanned(value, messages::SAME_IN_ALL));
                    }
                    reuse.same = Some(same);
                }
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        if reuse.keep.is_none() && reuse.same.is_some() {
            return Err(Error::new_spanned(policy, messages::SAME_ALONE));
        }
        Ok(reuse)
    }
}
