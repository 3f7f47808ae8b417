//! The schema.
//!
//! The tables of deferred calls are always made: programs with and without them share a schema.

/// The version of the schema.
pub(super) const VERSION: i32 = 2;

/// With the default name of the schema, which stands nowhere else in it.
const SCHEMA: &str = concat!(include_str!("schema.sql"), include_str!("jobs.sql"));
const NAME: &str = "lm1";

/// The statements that make the schema.
pub(crate) fn text(schema: &str) -> String {
    SCHEMA.replace(NAME, schema)
}

/// Makes the schema, or replaces its functions by newer ones. One process does so after the other.
pub(super) fn install(schema: &str) -> String {
    let text = text(schema);
    format!(
        "DO $install$ DECLARE present int := {VERSION}; BEGIN
         PERFORM pg_advisory_xact_lock(hashtext('{schema}'));
         IF to_regnamespace('{schema}') IS NULL THEN present := 0;
         ELSIF to_regprocedure('{schema}.version()') IS NOT NULL THEN
           present := {schema}.version();
         END IF;
         IF present < {VERSION} THEN EXECUTE $schema${text}$schema$; END IF;
         END $install$"
    )
}

/// The version of the schema, whether the server is a standby, and whether the user may call the
/// functions.
pub(super) fn state(schema: &str) -> String {
    format!(
        "SELECT {schema}.version(), pg_is_in_recovery(),
            bool_and(has_function_privilege(oid, 'EXECUTE'))
            FROM pg_proc WHERE pronamespace = '{schema}'::regnamespace"
    )
}
