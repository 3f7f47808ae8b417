//! The settings of `on_busy = reuse`.

use proc_macro2::Span;
use quote::ToTokens as _;
use syn::spanned::Spanned as _;
use syn::{Error, Expr, ExprCall, Result};

use crate::fix::names;
use crate::fix::slips;
use crate::parse::duration::{self, Time};
use crate::parse::faults::Faults;
use crate::parse::template::Template;
use crate::parse::values::text;

/// The settings of `reuse(..)`.
pub(crate) struct Reuse {
    /// For how long a value is kept after its body; `None` for those that wait only.
    pub(crate) keep: Option<Time>,
    /// The text that is the same in all calls for one value.
    pub(crate) same: Option<Template>,
    /// The span of `reuse`.
    span: Span,
}

impl Reuse {
    /// Reads `reuse`.
    pub(crate) fn alone(value: &Expr) -> Result<Self> {
        if !cfg!(feature = "reuse") {
            let message = "`reuse` is a feature: write `lockmacro-runtime = { version = \"0.1\", \
                           features = [\"reuse\"] }` in Cargo.toml";
            return Err(Error::new_spanned(value, message));
        }
        Ok(Self { keep: None, same: None, span: value.span() })
    }

    /// Reads `reuse(keep = "10s", same = "<amount>")`.
    pub(crate) fn parse(call: ExprCall) -> Result<Self> {
        let mut reuse = Self::alone(&Expr::Call(call.clone()))?;
        if call.args.is_empty() {
            let message = "without a setting there are no parentheses: write `on_busy = reuse`, or \
                           `reuse(keep = \"10s\")` to keep the value after its body";
            return Err(Error::new_spanned(call, message));
        }
        let mut faults = Faults::default();
        for setting in call.args {
            faults.keep(reuse.set(setting));
        }
        faults.end()?;
        match (&reuse.keep, &reuse.same) {
            (None, Some(_)) => {
                let message = "`same` compares a call with the ones before it, whose value is \
                               kept: write `keep = \"24h\"` beside it";
                Err(Error::new(reuse.span, message))
            }
            _ => Ok(reuse),
        }
    }

    fn set(&mut self, setting: Expr) -> Result<()> {
        let (name, value) = match setting {
            Expr::Assign(assign) => (assign.left.to_token_stream().to_string(), *assign.right),
            alone => (String::new(), alone),
        };
        let written = if name.is_empty() { slips::word(&value) } else { Some(name.clone()) };
        if let Some(message) = written
            .filter(|word| !["keep", "same"].contains(&word.as_str()))
            .and_then(|word| names::setting(&word))
        {
            return Err(Error::new_spanned(value, message));
        }
        let message = match name.as_str() {
            "keep" if self.keep.is_some() => "`keep` is given twice: remove one",
            "keep" => {
                self.keep = Some(duration::written("keep = {}", value)?);
                return Ok(());
            }
            "same" if self.same.is_some() => "`same` is given twice: remove one",
            "same" => {
                let text = text(
                    value,
                    "what a call has to have in common with the ones before it is a text with \
                     placeholders: write `same = \"<amount> <currency>\"`",
                )?;
                self.same = Some(Template::parse(text)?);
                return Ok(());
            }
            "" => {
                duration::written("reuse(keep = {})", value.clone())?;
                "the time has its name: write `reuse(keep = \"10s\")`"
            }
            _ => "`reuse` takes `keep = \"10s\"`, and beside it `same = \"<amount>\"`",
        };
        Err(Error::new_spanned(value, message))
    }
}
