//! What the user wrote, as data: the arguments of the attribute, and the function below it. A
//! mistake in one argument is found here.

pub(crate) mod args;
pub(crate) mod boxed;
pub(crate) mod defer;
pub(crate) mod duration;
pub(crate) mod item;
pub(crate) mod key;
pub(crate) mod path;
pub(crate) mod placeholder;
pub(crate) mod policy;
pub(crate) mod returns;
pub(crate) mod reuse;
pub(crate) mod runtime;
pub(crate) mod sharing;
pub(crate) mod spans;
pub(crate) mod taking;
pub(crate) mod template;
pub(crate) mod values;
