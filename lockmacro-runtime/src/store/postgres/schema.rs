//! The schema.
//!
//! The tables of jobs are always made: programs with and without them share a schema.

/// The version of the schema.
pub(crate) const VERSION: i32 = 4;

/// With the default name of the schema, which stands nowhere else in it.
const SCHEMA: &str =
    concat!(include_str!("schema.sql"), include_str!("../../defer/queue/postgres/jobs.sql"));
const INSTALL: &str = include_str!("install.sql");
const NAME: &str = "lm1";
pub(crate) const TABLES: &[&str] = &["TABLE"];
/// PostgreSQL's word for both.
pub(crate) const ROUTINES: &[&str] = &["FUNCTION", "PROCEDURE"];

/// The statement that makes the schema, or replaces its functions by newer ones.
pub(crate) fn install(schema: &str) -> String {
    let text = INSTALL.replace("<routines>", &made(ROUTINES)).replace("<tables>", &made(TABLES));
    let text = text.replace("<version>", &VERSION.to_string()).replace("<schema>", SCHEMA.trim());
    text.replace(NAME, schema)
}

/// The names of what the schema is made of, as an array.
pub(crate) fn made(kinds: &[&str]) -> String {
    let after = SCHEMA.lines().filter(|line| line.starts_with("CREATE ")).filter_map(|line| {
        let (words, name) = line.split_once("lm1.")?;
        let is_one = words.split(' ').any(|word| kinds.contains(&word));
        is_one.then(|| name.split(['(', ' ']).next())?
    });
    after.collect::<Vec<_>>().join(",")
}

/// The version of the schema, whether the server is a standby or else read-only, whether the user
/// may call the functions, and the server's time in microseconds.
pub(super) fn state(schema: &str) -> String {
    let routines = made(ROUTINES);
    format!(
        "SELECT {schema}.version(), pg_is_in_recovery(), current_setting('transaction_read_only')::bool,
            bool_and(has_function_privilege(oid, 'EXECUTE')),
            (extract(epoch FROM clock_timestamp()) * 1000000)::bigint FROM pg_catalog.pg_proc
            WHERE pronamespace = '{schema}'::regnamespace::oid AND proname = ANY ('{{{routines}}}')"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_string_of_the_schema_depends_on_the_meaning_of_a_backslash() {
        assert!(!(install("lm1") + &state("lm1")).contains('\\'));
    }
}
