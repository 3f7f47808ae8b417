//! The policies for a busy lock, for a lost lock and for the release.

use quote::ToTokens as _;
use syn::{Error, Expr, ExprPath, Path, Result};

use crate::fix::names::{advice, example};
use crate::fix::slips::{near, word};
use crate::parse::defer::Defer;
use crate::parse::path::is_path;
use crate::parse::reuse::Reuse;
use crate::parse::template::Template;

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
    /// The text by which calls are told apart that want the same value.
    pub(crate) fn same(&self) -> Option<&Template> {
        if let OnBusy::Reuse(reuse) = self { reuse.same.as_ref() } else { None }
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

pub(crate) fn on_busy(value: Expr) -> Result<OnBusy> {
    let message = match &value {
        _ if is_path(&value, "error") => return Ok(OnBusy::Error),
        _ if is_path(&value, "skip") => return Ok(OnBusy::Skip),
        Expr::Call(call) if is_path(&call.func, "fallback") => match call.args.first() {
            Some(Expr::Path(path)) if call.args.len() == 1 && path.qself.is_none() => {
                return Ok(OnBusy::Fallback(path.path.clone()));
            }
            _ => {
                "`fallback` takes the path of one function with the same arguments: write \
                 `on_busy = fallback(later)`, or `fallback(Self::later)` for a method"
            }
        },
        Expr::Call(call) if is_path(&call.func, "defer") => {
            return Defer::parse(call.clone()).map(OnBusy::Defer);
        }
        Expr::Call(call) if is_path(&call.func, "reuse") => {
            return Reuse::parse(call.clone()).map(OnBusy::Reuse);
        }
        _ if is_path(&value, "reuse") => return Reuse::alone(&value).map(OnBusy::Reuse),
        _ if is_path(&value, "defer") => {
            "`defer` says after how long the call is tried again: write `on_busy = defer(\"30s\")`"
        }
        other => &busy_meant(other).unwrap_or_else(|| {
            "unknown policy: write `on_busy = error`, `on_busy = skip`, `on_busy = \
             fallback(path)`, `on_busy = defer(\"30s\")` or `on_busy = reuse`"
                .to_owned()
        }),
    };
    Err(Error::new_spanned(&value, message))
}

/// The mend for another value of `on_busy`, if it has a word in it that is known.
fn busy_meant(value: &Expr) -> Option<String> {
    let policies = ["error", "skip", "fallback(path)", "defer(\"30s\")", "reuse"];
    if let Some(near) = near(value, "on_busy", &policies) {
        return Some(near);
    }
    let word = word(value)?;
    if let Some(example) = example(&word) {
        return Some(format!("`{word}` is an argument: write `{example}` in place of `on_busy`"));
    }
    match advice(&word)? {
        (Some("on_busy" | "wait"), advice) => Some(format!("unknown policy `{word}`: {advice}")),
        _ => None,
    }
}

pub(crate) fn on_lost(value: Expr) -> Result<AfterLoss> {
    let message = match (&value, near(&value, "on_lost", &["cancel", "error", "finish"])) {
        _ if is_path(&value, "cancel") => return Ok(AfterLoss::Cancel),
        _ if is_path(&value, "error") => return Ok(AfterLoss::Error),
        _ if is_path(&value, "finish") => return Ok(AfterLoss::Finish),
        (Expr::Path(path), None) => return Ok(AfterLoss::Recover(path.clone())),
        (Expr::Path(path), Some(near)) if path.path.get_ident().is_some() => {
            let own = path.to_token_stream();
            format!("{near} For a function of this name, write `self::{own}`")
        }
        (_, Some(near)) => near,
        (_, None) => "unknown policy: write `on_lost = cancel`, `on_lost = error` or `on_lost = \
                      finish`, or the path of a function that gets the `Lost` and the body's \
                      value, as in `on_lost = rollback` or `on_lost = Self::rollback`"
            .to_owned(),
    };
    Err(Error::new_spanned(value, message))
}

/// Whether the caller gets the value before the lock is released: `background` is the only word.
pub(crate) fn release(value: Expr) -> Result<bool> {
    if is_path(&value, "background") {
        return Ok(true);
    }
    let message = near(&value, "release", &["background"]).unwrap_or_else(|| {
        "unknown release: write `release = background`, so that the value does not wait for the \
         release, or remove `release`, so that it does"
            .to_owned()
    });
    Err(Error::new_spanned(value, message))
}
