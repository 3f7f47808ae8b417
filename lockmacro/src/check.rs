//! Contradictions between the arguments, and between them and the function.

use syn::{Error, Result};

use crate::args::{Args, Key, OnBusy};
use crate::item::Function;

pub(crate) fn check(args: &Args, function: &Function) -> Result<()> {
    let names = function.names();
    if let Key::Template(key) = &args.key {
        key.check_names(&names)?;
    }
    if let Some(message) = &args.message {
        message.check_names(&names)?;
        let policy = match args.on_busy {
            OnBusy::Error => return Ok(()),
            OnBusy::Skip => "skip",
            OnBusy::Fallback(_) => "fallback",
        };
        return Err(Error::new(
            args.span_of("message"),
            format!(
                "the message belongs to the busy error, which `on_busy = {policy}` does not give: \
                 remove `message`, or write `on_busy = error`"
            ),
        ));
    }
    Ok(())
}
