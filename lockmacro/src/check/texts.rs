//! Messages, notes and names.

use syn::{Error, Result};

use crate::fix::literal;
use crate::parse::args::Args;
use crate::parse::item::Function;
use crate::parse::template::Template;

/// Checks that a name has no text that was meant as a placeholder.
pub(super) fn check_name(args: &Args, function: &Function) -> Result<()> {
    let Some(name) = &args.name else { return Ok(()) };
    let names = function.template_names();
    let has_values =
        Template::parse(name.clone()).is_ok_and(|template| template.exprs().next().is_some());
    if !has_values && literal::mistake(&name.value(), &names, false).is_none() {
        return Ok(());
    }
    let message = "`name` takes no placeholders, because it is the same for all calls: write one \
                   such as `name = \"orders.audit\"`, and values into `holder_note`";
    Err(Error::new(name.span(), message))
}

pub(super) fn check_holder_note(args: &Args, function: &Function) -> Result<()> {
    let Some(note) = &args.holder_note else { return Ok(()) };
    note.check_note()?;
    note.check_names(&function.template_names(), false)
}

pub(super) fn check_message(args: &Args, function: &Function) -> Result<()> {
    let names = function.template_names();
    args.message.as_ref().map_or(Ok(()), |message| message.check_names(&names, false))
}

pub(super) fn check_message_is_shown(args: &Args, _: &Function) -> Result<()> {
    let policy = args.on_busy.word();
    if args.message.is_none() || matches!(policy, "error" | "reuse") {
        return Ok(());
    }
    let message = format!(
        "the message belongs to the busy error, which `on_busy = {policy}` does not give: \
         remove `message`, or write `on_busy = error`"
    );
    Err(Error::new(args.span_of("message"), message))
}
