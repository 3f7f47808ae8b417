//! `Debug` of calls, without their arguments, which may be secret.

use std::fmt;

use crate::jobs::call::{Job, JobInfo, NewJob};

/// Shows the fields of a call, and the length of its arguments.
macro_rules! without_arguments {
    ($($Call:ident { $($field:ident),* })*) => {
        $(impl fmt::Debug for $Call {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                // Names all fields, so that a new field fails to compile here.
                let Self { arguments, $($field),* } = self;
                f.debug_struct(stringify!($Call))
                    .field("arguments", &format_args!("{} bytes", arguments.len()))
                    $(.field(stringify!($field), $field))*
                    .finish()
            }
        })*
    };
}

without_arguments! {
    NewJob { function, id, key, delay, unique, attempts }
    Job { function, id, key, attempt, busy, taken }
    JobInfo { function, id, key, attempts, busy, error, in_millis }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn debug_does_not_show_the_arguments() {
        let (function, arguments) = (|| "f".into(), || r#"["a secret"]"#.to_owned());
        let (id, key) = (|| "1".to_owned(), || "order:1".to_owned());
        let new = NewJob {
            function: function(),
            id: id(),
            arguments: arguments(),
            key: key(),
            delay: Duration::ZERO,
            unique: false,
            attempts: 10,
        };
        let job = Job {
            function: function(),
            id: id(),
            arguments: arguments(),
            key: key(),
            attempt: 1,
            busy: 0,
            taken: 1,
        };
        let info = JobInfo {
            function: function(),
            id: id(),
            arguments: arguments(),
            key: key(),
            attempts: 1,
            busy: 0,
            error: None,
            in_millis: 0,
        };
        for shown in [format!("{new:?}"), format!("{job:?}"), format!("{info:?}")] {
            assert!(!shown.contains("secret"), "{shown}");
            assert!(shown.contains("12 bytes") && shown.contains("order:1"), "{shown}");
        }
    }
}
