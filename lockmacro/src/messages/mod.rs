//! What is said about each mistake, with its fix.

pub(crate) mod names;

use std::fmt::Display;

use proc_macro2::Span;
use syn::{Error, Result};

/// A constant for each message without values, and a function for each message with values.
macro_rules! messages {
    ($($name:ident $(($($value:ident),+))? = $text:literal;)*) => {
        $(message! { $name $(($($value),+))? = $text })*
    };
}

macro_rules! message {
    ($name:ident = $text:literal) => {
        pub(crate) const $name: &str = $text;
    };
    ($name:ident($($value:ident),+) = $text:literal) => {
        pub(crate) fn $name($($value: impl Display),+) -> String {
            format!($text)
        }
    };
}

// The arguments and their values.
messages! {
    unknown_argument(name, fix) = "unknown argument `{name}`: {fix}";
    unknown_value(value, argument, near) = "unknown value `{value}`: write `{argument} = {near}`";
    unknown_policy(word, fix) = "unknown policy `{word}`: {fix}";
    argument_as_value(word, example) =
        "`{word}` is an argument: write `{example}` in place of `on_busy`";
    given_twice(name) = "`{name}` is given twice: remove one";
    no_value(name, example) = "`{name}` has no value: write `{example}`";
    unreadable(name, error, example) =
        "the value of `{name}` cannot be read ({error}): write one such as `{example}`";
    takes_no_value(name) = "`{name}` takes no value: write `{name}` alone, or leave it out";
    value_alone(value, example) =
        "`{value}` has no name: write one before it, as in `{example}`";
    binding(example) = "expected a name to use in the body: write one, as in `{example}`";
    text(example) =
        "expected a text in quotes that is not empty: write one such as `{example}`";
    NAME_IN_QUOTES = "the name of an argument has no quotes: write `key = \"order:<id>\"`";
    NO_NAME = "expected an argument such as `key = \"order:<id>\"`";
    NO_COMMA = "expected `,` before the next argument";
    NO_KEY = "`key` is missing: write `#[distributed_lock(key = \"order:<id>\")]`";
    CONTROL_CHARACTERS =
        "a name has no control characters: write one such as `name = \"orders.audit\"`";
    PLACEHOLDERS_IN_NAME =
        "`name` takes no placeholders, because it is the same for all calls: write one such as \
         `name = \"orders.audit\"`, and values into `holder_note`";
    MANAGER = "the manager is an expression giving `&LockManager`: write `manager = self.locks`";
    MAP_ERR =
        "`map_err` takes the path of a `fn(LockError) -> E` that makes the function's error: write \
         `map_err = OrderError::from_lock`";
    RUNTIME =
        "this is no path of the runtime: write one without quotes, as in `crate = \
         my_crate::lockmacro_runtime`";
    missing_runtime(package, version) =
        "the attribute needs the crate `{package}`, which is not in this package's Cargo.toml: add \
         `{package} = \"{version}\"` to its `[dependencies]`, or write `crate = path` with the \
         path under which another crate re-exports it";
    feature(policy) =
        "`{policy}` is a feature of `lockmacro-runtime`: turn it on with `cargo add \
         lockmacro-runtime --features {policy}`";
}

// Keys.
messages! {
    KEY_IS_TEXT =
        "a key is text: write `key = \"order:<id>\"`, or an expression giving `impl Into<LockKey>`";
    key_is_number(name) =
        "a key is text, and `{name}` is none: write `\"<{name}>\"`, or with a word before it, as \
         in `\"order:<{name}>\"`";
    KEY_TWICE = "this key is there twice: remove one";
    KEY_IS_EMPTY = "the key is empty: write one such as \"order:<id>\"";
    key_has_blanks(trimmed) =
        "the key starts or ends with a blank, which is a part of it: write {trimmed}";
    key_is_reserved(start) =
        "keys that start with `{start}` are reserved: start it with a word of your own";
    adjacent(place, one, other) =
        "{place} touches the placeholder before it, so that different values could give the same \
         key: write a separator between them, as in \"<{one}>:<{other}>\"";
    percent(place) =
        "a `%` right after {place} could be taken for a part of the value: write another character \
         between them, such as `:`";
    literal_value(shown, value) =
        "`{shown}` is literal text here: write `<{value}>` for its value";
    literal_argument(shown, example) =
        "`{shown}` is literal text here: write an argument in angle brackets, as in `<{example}>`";
    or_in_braces(value) = ", or `{{<{value}>}}` for its value in braces";
    or_itself(text) = ", or `{text}` for the text itself";
    text_in_expression(text, formatted) =
        "{text} is text in an expression, where placeholders are not filled in: write the whole \
         key as one string, as in `key = \"order:<id>\"`, or format the values in, as in \
         `{formatted}`; text that is meant as it is goes into a constant";
    KEYS =
        "several keys are one list in brackets, `key = [\"account:<from>\", \"account:<to>\"]`, or \
         an iterator of keys, `key = keys(..)`: write one of these";
    one_of_several(word, example) =
        "`{word}(..)` is for one of several keys: write `key = \"order:<id>\", {example}`";
    SHARING =
        "`shared` takes one key, and `permits` one key and a number: write \
         `shared(\"rates:<day>\")` or `permits(\"printer:<room>\", 3)`";
    permits(most) =
        "`permits` is how many may hold the lock at once: write a number from 2 to {most}, as in \
         `permits = 3`, or an expression of type `u32`, or remove it for an exclusive lock";
}

// Placeholders.
messages! {
    never_closed(column) =
        "the `<` in column {column} is never closed: write `>`, or `<<` for a literal `<`";
    no_placeholder(place) =
        "{place} is no name, field, index or call: write one such as `<id>`, `<order.id>`, \
         `<ids[0]>`, `<id.to_lowercase()>` or `<hash(id)>`, or `<<` for a literal `<`";
    constant(place, instead) =
        "{place} is no argument of this function: for a constant, write {instead}";
    no_arguments(place, name) =
        "{place}: this function has no arguments; add `{name}` to them, or write `<<` for a \
         literal `<`";
    no_name_of_its_own(place) =
        "{place}: under `#[async_trait]` an argument must have a name of its own to be used here; \
         write `arg: Type` and take it apart in the body";
    no_such_argument(place, name, names) =
        "{place}: `{name}` is no argument of this function, which has {names}: write one of them";
}

// Times.
messages! {
    no_duration(value, example) =
        "`{value}` is no duration: write whole numbers with the units `h`, `m`, `s` and `ms` in \
         quotes, as in `{example}`, or an expression of type `Duration`";
    ZERO = "a duration of zero is too short: write a longer one, as in \"300s\"";
    ZERO_WAIT = "a wait of zero: write `wait = never` to request the lock once";
    out_of_bounds(least, most) =
        "this time is out of bounds: write one from \"{least}\" to \"{most}\"";
    RENEWED_ALREADY =
        "a lock without `ttl` is renewed already: remove `renew`, or give a `ttl` beside it";
    NOT_RENEWED =
        "`max_hold` is the end of renewal, and a lock with `ttl` is not renewed: add `renew`, or \
         remove `max_hold`, as `ttl` is the longest hold then";
    cfg(policy) =
        "`{policy}` passes all arguments on, and this one is not always there: put the `cfg` on \
         two functions, one with the argument and one without";
    short_max_hold(ttl, max_hold) =
        "`max_hold` is the end of renewal, so it is at least the lease of {ttl}: write a longer \
         one, or `ttl = \"{max_hold}\"` alone for the longest hold";
    long_min_hold(ttl) =
        "`min_hold` is at most the lease of {ttl}: write a shorter one, or a longer `ttl`";
}

// Policies.
messages! {
    ON_BUSY =
        "unknown policy: write `on_busy = error`, `on_busy = skip`, `on_busy = fallback(path)`, \
         `on_busy = defer(\"30s\")` or `on_busy = reuse`";
    ON_LOST =
        "unknown policy: write `on_lost = cancel`, `on_lost = error` or `on_lost = finish`, or the \
         path of a function that gets the `Lost` and the body's value, as in `on_lost = rollback` \
         or `on_lost = Self::rollback`";
    or_own_function(near, path) = "{near}, or `self::{path}` for a function of this name";
    RELEASE =
        "unknown release: write `release = background`, so that the value does not wait for the \
         release, or remove `release`, so that it does";
    FALLBACK =
        "`fallback` takes the path of one function with the same arguments: write `on_busy = \
         fallback(later)`, or `fallback(Self::later)` for a method";
    DEFER_DELAY =
        "`defer` begins with the time after which the call is tried again: write `defer(\"30s\")`";
    DEFER_SETTINGS =
        "after the delay `defer` takes `unique` or `latest`, `at_most = \"5m\"`, and \
         `attempts = 5` or another number from 1";
    UNIQUE_AND_LATEST =
        "`unique` keeps the first call of a key, and `latest` the last one: remove one of them";
    AT_MOST_ALONE =
        "`at_most` is how long later calls put the waiting one off, which `latest` keeps: write \
         `defer(\"30s\", latest, at_most = \"5m\")`";
    SHORT_AT_MOST =
        "`at_most` is shorter than the delay, so no call could be put off: write a longer one, or \
         remove it";
    REUSE_SETTINGS = "`reuse` takes `keep = \"10s\"`, and beside it `same = \"<amount>\"`";
    SAME_ALONE =
        "`same` compares a call with the ones before it, whose value is kept: write `keep = \
         \"24h\"` beside it";
    SAME_IN_ALL =
        "without a placeholder this is the same in all calls, and refuses none: write what a \
         repeated call has in common with the first one, as in `same = \"<amount>\"`";
}

// The function.
messages! {
    NO_BODY = "there is no body to lock: put the attribute on the implementations";
    no_function(kind) =
        "the attribute goes on a function, not on this `{kind}`: put it on a function, or on each \
         function in it";
    CONST = "a `const fn` cannot wait for a server: remove `const`";
    EXTERN =
        "an `extern` function cannot be locked, because its callers in another language cannot \
         handle a busy lock: remove `extern`, or lock a Rust function that it calls";
    NEVER_RETURNS =
        "a function that never returns would never release its lock: return a `Result` and lock \
         one round of the work";
    OUTSIDE =
        "this would run outside the lock: move it into the async block, or write an `async fn`";
    lazy(name, fix) =
        "the work of this `{name}` starts after the function has returned, when the lock would be \
         gone: {fix}";
    task(name) =
        "the task of this `{name}` goes on without the lock: await the task in the body and return \
         what it gives, or lock the function that runs in the task";
    INSTEAD_OF_BOXED =
        "write an `async fn`, or make `Box::pin(async move { .. })` the whole body";
    INSTEAD_OF_FUTURE = "write an `async fn` that returns the future's output";
    INSTEAD_OF_STREAM =
        "collect the items in the body and return a `Vec`, or lock the function that reads the \
         stream";
    INSTEAD_OF_ITERATOR = "collect the items in the body and return a `Vec`";
    pattern(policy) =
        "`{policy}` needs the same arguments, so each needs a name: write `arg: Type` here and \
         take it apart in the body";
}

// Arguments that do not fit each other, or the function.
messages! {
    SHARED_AND_PERMITS =
        "`shared` lets any number of callers in, and `permits` at most so many: remove one of them";
    SHARED_TWICE =
        "this is for all keys, and one of them says for itself who may hold it: remove it here, or \
         the `shared(..)` and `permits(..)` in the list";
    message_not_shown(policy) =
        "the message belongs to the busy error, which `on_busy = {policy}` does not give: remove \
         `message`, or write `on_busy = error`";
    wait_never_ends(policy) =
        "`on_busy` is for when the wait is over, and `wait = forever` never is: remove `on_busy`, \
         or write how long to wait before `{policy}`, as in `wait = \"5s\"`";
    CANNOT_STOP =
        "a function that is not async cannot be stopped: write `on_lost = error` to have it finish \
         and then fail, or make it an `async fn`";
    NO_ERROR_TO_MAP =
        "`map_err` makes the error of a `Result`, and this function does not return one: remove \
         `map_err`, or return a `Result`";
    fences_of_several(keys) =
        "the lock has {keys} keys, and each has a fence of its own: write a name for each, in the \
         same order, as in `fence = [debit, credit]`";
    ONE_FENCE =
        "there is one name here: write `fence = fence`, which is the fence of one key, or a \
         `Vec<Fence>` in the order of the keys of an iterator";
    shadows(argument, name) =
        "`{argument} = {name}` would shadow the function's argument `{name}`: write another name, \
         such as `{argument} = {name}_{argument}`";
    bound_twice(name) = "the guard and the fences have names of their own, and `{name}` is given \
         to two: write two names";
    DEFER_SELF =
        "`defer` stores the call for a worker, and `self` cannot be stored: lock a free function \
         that takes what it needs as arguments";
    DEFER_BOXED =
        "`defer` stores the call for a worker, which can call free functions: write a free `async \
         fn` that returns the future's output";
    DEFER_UNSAFE =
        "a worker cannot know what makes this call safe: remove `unsafe`, or `defer`";
    DEFER_GENERIC =
        "a job has no type parameters and no lifetimes: write a function without them, \
         with owned arguments";
    DEFER_MANY = "at most 16 arguments can be stored: put some of them into a struct";
    DEFER_SEVERAL =
        "`unique` and `latest` have one call wait for each key, and this function has several: \
         remove them";
    not_stored(name, kind) =
        "`{name}` is {kind}, which cannot be stored for later: take an owned value that implements \
         serde's `Serialize` and `Deserialize`";
    REUSE_SYNC = "`reuse` waits for the value of another caller: make this an `async fn`";
    REUSE_NO_RESULT =
        "`reuse` shares the `Ok` of a `Result`, and this function does not return one: return \
         `Result<_, LockError>`";
    REUSE_SEVERAL =
        "`reuse` shares the value of one key, and this lock has several: write one key";
    REUSE_SHARED =
        "`reuse` has one caller run for all, and this lets several run: remove it, or `on_busy = \
         reuse`";
    REUSE_FENCE =
        "a caller that reuses a value has no lock, and so no fence: remove `fence`, or `on_busy = \
         reuse`";
    REUSE_GUARD =
        "the body finds its guard by `LockGuard::current()` beside `reuse`: remove `guard`";
    REUSE_MESSAGE =
        "beside `reuse` a message is the same for all calls: remove its placeholders";
}

/// All errors as one.
pub(crate) fn all(errors: Vec<Error>) -> Result<()> {
    let all = errors.into_iter().reduce(|mut all, error| {
        all.combine(error);
        all
    });
    all.map_or(Ok(()), Err)
}

/// The first of these mistakes that there is.
pub(crate) fn refuse<const N: usize>(mistakes: [(Option<Span>, &str); N]) -> Result<()> {
    let first = mistakes.into_iter().find_map(|(span, message)| Some((span?, message)));
    first.map_or(Ok(()), |(span, message)| Err(Error::new(span, message)))
}
