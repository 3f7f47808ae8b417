//! The policies for a busy lock, for a lost lock and for the release.

use quote::ToTokens as _;
use syn::{Error, Expr, ExprPath, Path, Result};

use crate::fix::slips::{near, word};
use crate::messages;
use crate::messages::names::{advice, example};
use crate::parse::defer::Defer;
use crate::parse::item::Function;
use crate::parse::path::is_path;
use crate::parse::reuse::Reuse;

/// The policy for a lock that another holder has.
#[derive(Default)]
pub(crate) enum OnBusy {
    #[default]
    Error,
    Skip,
    Fallback(Path),
    Defer(Defer),
    Reuse(Reuse),
}

impl OnBusy {
    /// The settings of `reuse`.
    pub(crate) fn reuse(&self) -> Option<&Reuse> {
        if let OnBusy::Reuse(reuse) = self { Some(reuse) } else { None }
    }

    /// The attribute's word.
    pub(crate) fn word(&self) -> &'static str {
        match self {
            OnBusy::Error => "error",
            OnBusy::Skip => "skip",
            OnBusy::Fallback(_) => "fallback",
            OnBusy::Defer(_) => "defer",
            OnBusy::Reuse(_) => "reuse",
        }
    }
}

/// The policy for a body whose lock is lost.
pub(crate) enum AfterLoss {
    Cancel,
    Error,
    Finish,
    /// A function that makes the caller's value from the loss and the body's value.
    Recover(ExprPath),
}

pub(crate) fn on_busy(value: Expr, function: Option<&Function>) -> Result<OnBusy> {
    let message = match &value {
        _ if is_path(&value, "error") => return Ok(OnBusy::Error),
        _ if is_path(&value, "skip") => return Ok(OnBusy::Skip),
        Expr::Call(call) if is_path(&call.func, "fallback") => match call.args.first() {
            Some(Expr::Path(path)) if call.args.len() == 1 && path.qself.is_none() => {
                return Ok(OnBusy::Fallback(path.path.clone()));
            }
            _ => messages::FALLBACK.to_owned(),
        },
        Expr::Call(call) if is_path(&call.func, "defer") => {
            return Defer::parse(call).map(OnBusy::Defer);
        }
        Expr::Call(call) if is_path(&call.func, "reuse") && !call.args.is_empty() => {
            return Reuse::parse(&value, call.args.iter(), function).map(OnBusy::Reuse);
        }
        _ if is_path(&value, "reuse") => {
            return Reuse::parse(&value, [], function).map(OnBusy::Reuse);
        }
        _ if is_path(&value, "defer") => messages::DEFER_DELAY.to_owned(),
        other => busy_meant(other),
    };
    Err(Error::new_spanned(&value, message))
}

/// The message for another value of `on_busy`.
fn busy_meant(value: &Expr) -> String {
    let policies = ["error", "skip", "fallback(path)", "defer(\"30s\")", "reuse"];
    if let Some(near) = near(value, "on_busy", &policies) {
        return near;
    }
    let word = word(value);
    match (example(&word), advice(&word)) {
        (Some(example), _) => messages::argument_as_value(word, example),
        (None, Some(advice)) => messages::unknown_policy(word, advice),
        (None, None) => messages::ON_BUSY.to_owned(),
    }
}

pub(crate) fn on_lost(value: Expr) -> Result<AfterLoss> {
    let message = match (&value, near(&value, "on_lost", &["cancel", "error", "finish"])) {
        _ if is_path(&value, "cancel") => return Ok(AfterLoss::Cancel),
        _ if is_path(&value, "error") => return Ok(AfterLoss::Error),
        _ if is_path(&value, "finish") => return Ok(AfterLoss::Finish),
        (Expr::Path(path), None) => return Ok(AfterLoss::Recover(path.clone())),
        (Expr::Path(path), Some(near)) if path.path.get_ident().is_some() => {
            messages::or_own_function(near, path.to_token_stream())
        }
        (_, near) => near.unwrap_or_else(|| messages::ON_LOST.to_owned()),
    };
    Err(Error::new_spanned(value, message))
}

/// Whether the caller gets the value before the lock is released: `background` is the only word.
pub(crate) fn release(value: Expr) -> Result<bool> {
    if is_path(&value, "background") {
        return Ok(true);
    }
    let near = near(&value, "release", &["background"]);
    Err(Error::new_spanned(value, near.unwrap_or_else(|| messages::RELEASE.to_owned())))
}
