//! The schema, and the calls of its functions.

/// The version of the schema.
pub(super) const VERSION: i32 = 1;

/// With the default name of the schema, which stands nowhere else in it.
const SCHEMA: &str = include_str!("schema.sql");
const NAME: &str = "lm1";

#[derive(Debug)]
pub(super) struct Statements {
    pub(super) ask: String,
    pub(super) release: String,
    pub(super) renew: String,
    pub(super) tidy: String,
    /// The version of the schema, whether the server is a standby, and whether the user may call the
    /// functions.
    pub(super) state: String,
}

impl Statements {
    pub(super) fn of(schema: &str) -> Self {
        let of = |call: &str| call.replace(NAME, schema);
        Self {
            ask: of("SELECT * FROM lm1.ask($1, $2, $3, $4, $5, $6, $7, $8, $9)"),
            release: of("SELECT * FROM lm1.release($1, $2, $3)"),
            renew: of("SELECT lm1.renew($1, $2, $3)"),
            tidy: of("SELECT lm1.tidy($1)"),
            state: of("SELECT lm1.version(), pg_is_in_recovery(),
                    bool_and(has_function_privilege(oid, 'EXECUTE'))
                    FROM pg_proc WHERE pronamespace = 'lm1'::regnamespace"),
        }
    }
}

/// The statements that make the schema.
pub(crate) fn text(schema: &str) -> String {
    SCHEMA.replace(NAME, schema)
}

/// Makes the schema, if it is not there. One process does so after the other.
pub(super) fn install(schema: &str) -> String {
    let text = text(schema);
    format!(
        "DO $install$ BEGIN PERFORM pg_advisory_xact_lock(hashtext('{schema}'));
         IF to_regnamespace('{schema}') IS NULL THEN EXECUTE $schema${text}$schema$; END IF;
         END $install$"
    )
}
