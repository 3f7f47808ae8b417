//! The schema, and the calls of its functions.
//!
//! The tables of deferred calls are always made: programs with and without them share a schema.

/// The version of the schema.
pub(super) const VERSION: i32 = 1;

/// With the default name of the schema, which stands nowhere else in it.
const SCHEMA: &str = concat!(include_str!("schema.sql"), include_str!("jobs.sql"));
const NAME: &str = "lm1";

#[derive(Debug)]
pub(super) struct Statements {
    pub(super) ask: String,
    pub(super) release: String,
    pub(super) renew: String,
    pub(super) tidy: String,
    #[cfg(feature = "defer")]
    pub(super) jobs: Jobs,
    /// The version of the schema, whether the server is a standby, and whether the user may call the
    /// functions.
    pub(super) state: String,
}

/// The calls of the functions for deferred calls.
#[cfg(feature = "defer")]
#[derive(Debug)]
pub(super) struct Jobs {
    pub(super) put: String,
    pub(super) take: String,
    pub(super) wake: String,
    pub(super) keep: String,
    pub(super) settle: String,
    pub(super) list: String,
    pub(super) amend: String,
}

impl Statements {
    pub(super) fn of(schema: &str) -> Self {
        let of = |call: &str| call.replace(NAME, schema);
        Self {
            ask: of("SELECT * FROM lm1.ask($1, $2, $3, $4, $5, $6, $7, $8, $9)"),
            release: of("SELECT * FROM lm1.release($1, $2, $3)"),
            renew: of("SELECT lm1.renew($1, $2, $3)"),
            tidy: of("SELECT lm1.tidy($1)"),
            #[cfg(feature = "defer")]
            jobs: Jobs {
                put: of("SELECT * FROM lm1.put_call($1, $2, $3, $4, $5, $6, $7, $8)"),
                take: of("SELECT * FROM \
                          lm1.take_calls($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)"),
                wake: of("SELECT lm1.wake($1)"),
                keep: of("SELECT lm1.keep_call($1, $2, $3, $4)"),
                settle: of("SELECT * FROM lm1.settle_call($1, $2, $3, $4, $5, $6, $7)"),
                list: of("SELECT * FROM lm1.list_calls($1, $2, $3, $4, $5)"),
                amend: of("SELECT lm1.amend_calls($1, $2, $3, $4)"),
            },
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
