//! Wrong attributes side by side: each has one message, which says how to mend it.

use proc_macro2::TokenStream;
use quote::quote;

use super::words::errors_of;

/// The attribute's arguments, and a part of the message.
const MESSAGES: &[(&str, &str)] = &[
    // A string that stands alone.
    (r#"key = "order:<id>", "shared""#, "write `shared` without quotes"),
    (r#"key = "order:<id>", "renew", ttl = "5s""#, "write `renew` without quotes"),
    (r#"key = "order:<id>", "ttl""#, "write `ttl = \"300s\"`, with the name outside of quotes"),
    (r#""shared", key = "order:<id>""#, "write `shared` without quotes"),
    (r#"key = "order:<id>", "shraed""#, "did you mean `shared`?"),
    (r#"key = "order:<id>", "read""#, "a lock that others may share is `shared`"),
    (r#"key = "order:<id>", "urgent""#, "write an argument's name before `\"urgent\"`"),
    (r#"key = "order:<id>", "5s""#, "write `ttl = \"5s\"`"),
    (r#"key = "order:<id>", 30"#, "write `ttl = \"30s\"`"),
    (r#"key = "order:<id>", ttl = "30s", "5s""#, "write `wait = \"5s\"`"),
    (r#""order:<id>", "30s", "5s""#, r#"write `key = "order:<id>"`, `ttl = "30s"`, `wait = "5s"`"#),
    (r#""order:<id>", "30s""#, r#"write `key = "order:<id>"`, `ttl = "30s"`"#),
    (r#""order:<id>", 30"#, r#"write `key = "order:<id>"`, `ttl = "30s"`"#),
    (r#""order:<id>", 30, renew"#, r#"write `key = "order:<id>"`, `ttl = "30s"`"#),
    (r#""a:<id>", "b:<id>", 30"#, r#"write `key = ["a:<id>", "b:<id>"]`, `ttl = "30s"`"#),
    (r#""order:<id>", "5s", "urgent""#, r#"an argument's name before `"urgent"`"#),
    // After the compiler's message for text in the wrong quotes.
    (r#""a:<id>", 'b'"#, "an argument's name before `'b'`"),
    (r#""order", true"#, "an argument's name before `true`"),
    (r#"key = "a:<id>", "b:<id>""#, r#"write `key = ["a:<id>", "b:<id>"]`"#),
    (r#"key = "a:<id>", ttl = "5s", "b:<id>""#, r#"write `key = ["a:<id>", "b:<id>"]`"#),
    (r#"key = "a:<id>", "b:<id>", "c:<id>""#, r#"write `key = ["a:<id>", "b:<id>", "c:<id>"]`"#),
    (r#"key = ["a:<id>", "b"], "c:<id>""#, r#"write "c:<id>" into the brackets of `key = [..]`"#),
    (r#""order:<id>", ttl = "5s""#, "write `key = \"order:<id>\"`"),
    (r#""nightly-report""#, "write `key = \"nightly-report\"`"),
    (r#"key = "order:<id>", "ttl" = "5s""#, "write `ttl = ..`"),
    // The key.
    ("key = id", "write `key = \"<id>\"`"),
    ("key = &id", "write `key = \"<id>\"`"),
    ("key = [id, \"b\"]", "write `\"<id>\"`"),
    (r#"key = read("a:<id>")"#, "write `key = \"a:<id>\", shared`"),
    (r#"key = semaphore("a:<id>", 3)"#, "write `key = \"a:<id>\", permits = 3`"),
    (r#"key = exclusive("a:<id>")"#, "write `key = \"a:<id>\"`"),
    (r#"key = [exclusive("a"), "b:<id>"]"#, "write `\"a\"`"),
    (r#"key = [semaphore("a", 3), "b:<id>"]"#, "write `permits(\"a\", 3)`"),
    (r#"key = [read("a"), "b:<id>"]"#, "write `shared(\"a\")`"),
    (r#"key = [read("a"), "b:<id>"]"#, "of this name, write `self::read(..)`"),
    // Placeholders of what is no argument.
    (r#"key = "<PREFIX>:<id>""#, r#"write `format!("{PREFIX}:{id}")` in place of the text"#),
    (r#"key = "{<PREFIX>}:<id>""#, r#"write `format!("{{{PREFIX}}}:{id}")` in place"#),
    (r#"key = ["a", "b:<N>:<id.len()>"]"#, r#"write `format!("b:{N}:{}", id.len())` in place"#),
    (r#"key = "<kinds::A>:<id>""#, r#"write `format!("{}:{id}", kinds::A)` in place of the text"#),
    (r#"key = "<u64::MAX>:<id>""#, r#"write `format!("{}:{id}", u64::MAX)` in place of the text"#),
    (r#"key = "<self::A>:<id>""#, r#"write `format!("{}:{id}", self::A)` in place of the text"#),
    (r#"key = "a:<id>", message = "of <crate::SHOP>""#, "write its text in place of it"),
    (r#"key = "<PREFIX>""#, r#"write `format!("{PREFIX}")` in place of the text"#),
    (r#"key = "order:<ID>""#, "`ID` is no argument of this function, which has `id`: write one"),
    (r#"key = "a:<id>", message = "of <SHOP>""#, "for a constant, write its text in place of it"),
    (r#"key = "a:<id>", holder_note = "<SHOP>""#, "for a constant, write its text in place of it"),
    // Times.
    (r#"key = "a:<id>", wait = true"#, "write `wait = forever`"),
    (r#"key = "a:<id>", wait = false"#, "or `wait = never`"),
    (r#"key = "a:<id>", wait = none"#, "write `wait = forever`"),
    (r#"key = "a:<id>", wait = None"#, "write `wait = forever`"),
    (r#"key = "a:<id>", wait = infinite"#, "write `wait = forever`"),
    (r#"key = "a:<id>", wait = "infinite""#, "write `wait = forever`"),
    (r#"key = "a:<id>", wait = Forever"#, "did you mean `wait = forever`?"),
    (r#"key = "a:<id>", wait = forevr"#, "did you mean `wait = forever`?"),
    (r#"key = "a:<id>", wait = "never""#, "write it without quotes: `wait = never`"),
    (r#"key = "a:<id>", wait = -1"#, "write `wait = forever`"),
    (r#"key = "a:<id>", wait = "-1""#, "write `wait = forever`"),
    (r#"key = "a:<id>", wait = Duration::MAX"#, "write `wait = forever`"),
    (r#"key = "a:<id>", wait = Duration::ZERO"#, "write `wait = never`"),
    (r#"key = "a:<id>", ttl = -1"#, "leave `ttl` out, and the lock is renewed"),
    (r#"key = "a:<id>", ttl = "-1s""#, "leave `ttl` out"),
    (r#"key = "a:<id>", ttl = forever"#, "leave `ttl` out"),
    (r#"key = "a:<id>", ttl = "forever""#, "leave `ttl` out"),
    (r#"key = "a:<id>", ttl = None"#, "leave `ttl` out"),
    (r#"key = "a:<id>", ttl = std::time::Duration::MAX"#, "leave `ttl` out"),
    (r#"key = "a:<id>", ttl = Duration::ZERO"#, "a duration of zero is too short"),
    (r#"key = "a:<id>", ttl = core::time::Duration::ZERO"#, "a duration of zero is too short"),
    (r#"key = "a:<id>", ttl = "PT5M""#, "write `ttl = \"5m\"`"),
    (r#"key = "a:<id>", max_hold = forever"#, "leave `max_hold` out, and renewal has no end"),
    (r#"key = "a:<id>", permits = (1)"#, "remove `permits`"),
    (r#"key = "a:<id>", permits = ((0))"#, "this would let nobody in"),
    (r#"key = "a:<id>", permits = ("3")"#, "write `permits = 3`"),
    (r#"key = "a:<id>", max_hold = -1"#, "leave `max_hold` out"),
    // `on_busy`
    (r#"key = "a:<id>", on_busy = Skip"#, "did you mean `on_busy = skip`?"),
    (r#"key = "a:<id>", on_busy = skp"#, "did you mean `on_busy = skip`?"),
    (r#"key = "a:<id>", on_busy = OnBusy::Skip"#, "did you mean `on_busy = skip`?"),
    (r#"key = "a:<id>", on_busy = skip()"#, "write it as `on_busy = skip`"),
    (r#"key = "a:<id>", on_busy = fallback"#, "write it as `on_busy = fallback(path)`"),
    (r#"key = "a:<id>", on_busy = "skip""#, "write it without quotes: `on_busy = skip`"),
    (r#"key = "a:<id>", on_busy = "fallback""#, "without quotes: `on_busy = fallback(path)`"),
    (r#"key = "a:<id>", on_busy = "fallback(later)""#, "quotes: `on_busy = fallback(later)`"),
    (r#"key = "a:<id>", on_busy = "defer(\"9s\")""#, "quotes: `on_busy = defer(\"9s\")`"),
    (r#"key = "a:<id>", on_busy = "Skip""#, "did you mean `on_busy = skip`?"),
    (r#"key = "a:<id>", on_busy = eror"#, "did you mean `on_busy = error`?"),
    (r#"key = "a:<id>", on_busy = falback(x)"#, "did you mean `on_busy = fallback(path)`?"),
    (r#"key = "a:<id>", on_busy = Defer("5s")"#, "did you mean `on_busy = defer(\"30s\")`?"),
    (r#"key = "a:<id>", on_busy = wait("5s")"#, "write `wait = \"5s\"` in place of `on_busy`"),
    (r#"key = "a:<id>", on_busy = wait"#, "write `wait = \"5s\"` in place of `on_busy`"),
    (r#"key = "a:<id>", on_busy = retry"#, "without polling: write `wait = \"5s\"`"),
    (r#"key = "a:<id>", on_busy = retry(3)"#, "without polling: write `wait = \"5s\"`"),
    (r#"key = "a:<id>", on_busy = queue"#, "without polling: write `wait = \"5s\"`"),
    (r#"key = "a:<id>", on_busy = later"#, "is `on_busy = defer(\"30s\")`"),
    (r#"key = "a:<id>", on_busy = ignore"#, "is `on_busy = skip`"),
    (r#"key = "a:<id>", on_busy = purple"#, "write `on_busy = error`, `on_busy = skip`"),
    (r#"key = "a:<id>", on_busy = cancel"#, "write `on_busy = error`, `on_busy = skip`"),
    (r#"key = "a:<id>", on_busy = 5"#, "write `on_busy = error`, `on_busy = skip`"),
    // `on_lost` and `release`
    (r#"key = "a:<id>", on_lost = Finish"#, "did you mean `on_lost = finish`?"),
    (r#"key = "a:<id>", on_lost = canel"#, "did you mean `on_lost = cancel`?"),
    (r#"key = "a:<id>", on_lost = canel"#, "of this name, write `self::canel`"),
    (r#"key = "a:<id>", on_lost = OnLost::Cancel"#, "did you mean `on_lost = cancel`?"),
    (r#"key = "a:<id>", on_lost = lockmacro_runtime::OnLost::Error"#, "`on_lost = error`?"),
    (r#"key = "a:<id>", on_lost = "cancel""#, "write it without quotes: `on_lost = cancel`"),
    (r#"key = "a:<id>", on_lost = "conv""#, "or the path of a function"),
    (r#"key = "a:<id>", release = Background"#, "did you mean `release = background`?"),
    (r#"key = "a:<id>", release = "background""#, "without quotes: `release = background`"),
    // Other values.
    (r#"key = "a:<id>", name = "orders.<id>""#, "`name` takes no placeholders"),
    (r#"key = "a:<id>", name = "<Self::NAME>""#, "`name` takes no placeholders"),
    (r#"key = "a:<id>", name = "orders.{id}""#, "`name` takes no placeholders"),
    (r#"key = "a:<id>", name = "a\nb""#, "a name has no control characters"),
    (r#"key = "a:<id>", name = """#, "is a string literal: write `name = \"orders.audit\"`"),
    (r#"key = "a:<id>", map_err = "conv""#, "write it without quotes: `map_err = conv`"),
    (r#"key = "a:<id>", map_err = "a b""#, "`map_err` takes the path of a `fn(LockError) -> E`"),
    (r#"key = "a:<id>", crate = "my::locks""#, "write it without quotes: `crate = my::locks`"),
    // Words of other libraries.
    (r#"key = "a:<id>", mode = shared"#, "a lock that others may share is `shared`"),
    (r#"key = "a:<id>", lock_type = "read""#, "a lock that others may share is `shared`"),
    (r#"key = "a:<id>", rwlock"#, "a lock that others may share is `shared`"),
    (r#"key = "a:<id>", readers = 5"#, "a lock that others may share is `shared`"),
    (r#"key = "a:<id>", when = id > 5"#, "write an `if` around the call"),
    (r#"key = "a:<id>", condition = id > 5"#, "write an `if` around the call"),
    (r#"key = "a:<id>", if = id > 5"#, "write an `if` around the call"),
    (r#"key = "a:<id>", unlocked = audit_held"#, "a private function that both call"),
    (r#"key = "a:<id>", inner"#, "a call inside the lock joins it"),
    (r#"key = "a:<id>", queue = true"#, "without polling: write `wait = \"5s\"`"),
    (r#"key = "a:<id>", tries = 3"#, "without polling: write `wait = \"5s\"`"),
    (r#"key = "a:<id>", rate = 5"#, "there is no rate limit: `permits = 3`"),
    (r#"key = "a:<id>", fair"#, "waiters are served in the order of their requests"),
    (r#"key = "a:<id>", priority = 1"#, "without priorities: remove this"),
    (r#"key = "a:<id>", convert = conv"#, "is `map_err = OrderError::from_lock`"),
    (r#"key = "a:<id>", label = "x""#, "is `name = \"orders.audit\"`"),
    (r#"name = "job""#, r#"`name` is for logs, and `key` is missing: write `key = "job"`"#),
    // A name with a known one in it.
    (r#"key = "a:<id>", ttl_ms = 5000"#, "is `ttl = \"300s\"`"),
    (r#"key = "a:<id>", maxTtl = "5s""#, "is `ttl = \"300s\"`"),
    (r#"key = "a:<id>", renew_every = "5s""#, "or, beside a `ttl`, write `renew`"),
    (r#"key = "a:<id>", cancel_on_lost"#, "or `on_lost = error`"),
    (r#"key = "a:<id>", skip_on_busy = true"#, "or `on_busy = skip`"),
    (r#"key = "a:<id>", max-wait = "5s""#, "is `wait = \"5s\"`"),
    (r#"key = "a:<id>", waitTime = "5s""#, "is `wait = \"5s\"`"),
    (r#"key = "a:<id>", lock_guard = lock"#, "is `guard = lock`"),
    (r#"key = "a:<id>", release_in_background"#, "write `release = background`"),
    (r#"key_prefix = "a:<id>""#, r#"the key of the lock is `key = "order:<id>"`"#),
    // A name with a word of another library in it.
    (r#"key = "a:<id>", lock_timeout_ms = 5"#, "is `wait = \"5s\"`, and"),
    (r#"key = "a:<id>", lease_seconds = 5"#, "is `ttl = \"300s\"`"),
    (r#"key = "a:<id>", max_retry_count = 5"#, "without polling: write `wait = \"5s\"`"),
    (r#"key = "a:<id>", deadline = "5s""#, "is `wait = \"5s\"`"),
    (r#"key = "a:<id>", keep_for = "5s""#, "is `min_hold = \"5s\"`"),
    (r#"key = "a:<id>", holder = "x""#, "is `holder_note = \"<user.name>\"`"),
    (r#"key = "a:<id>", owner = "x""#, "is `holder_note = \"<user.name>\"`"),
    (r#"key = "a:<id>", reentrant"#, "may be acquired again inside its body: remove this"),
    (r#"key = "a:<id>", timeUnit = SECONDS"#, "each duration has its unit, as in"),
    (r#"key = "a:<id>", quorum = 2"#, "the servers in the manager's URL"),
];

/// The function that has the attribute.
fn item() -> TokenStream {
    quote!(
        async fn audit(id: u64) -> Result<(), Error> {}
    )
}

#[test]
fn each_mistake_has_one_message_with_the_mend_in_it() {
    let mut wrong = String::new();
    for (args, part) in MESSAGES {
        let errors = errors_of(args.parse().unwrap(), item());
        if errors.len() != 1 || !errors[0].contains(part) {
            wrong.push_str(&format!("\n{args}\n    expected: {part}\n    gives: {errors:?}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

/// These are right: they look like some of the mistakes above.
#[test]
fn what_looks_like_a_mistake_and_is_none_has_no_message() {
    for args in [
        r#"key = "a:<id>", on_lost = finished"#,
        r#"key = "a:<id>", on_lost = self::canel"#,
        r#"key = "a:<id>", on_lost = Self::cancel"#,
        r#"key = "a:<id>", permits = (3)"#,
        r#"key = "a:<id>", permits = (N)"#,
        r#"key = "a:<id>", wait = FOREVER"#,
        r#"key = "a:<id>", ttl = FOREVER, renew, max_hold = self.forever"#,
        r#"key = "a:<id>", ttl = Lease::MAX, wait = Patience::ZERO"#,
        r#"key = "a:<id>", wait = patience"#,
        r#"key = "a:<id>", name = "orders.审核 {audit} <<x""#,
        r#"key = [read(id), "b:<id>"]"#,
        r#"key = [self::read("a"), "b:<id>"]"#,
        r#"key = [locks.read("a"), "b:<id>"]"#,
        r#"key = read(id)"#,
        r#"key = "<T::NAME>:<id>""#,
        r#"key = order"#,
        r#"key = &sn"#,
        r#"key = ID"#,
    ] {
        let item = quote!(
            async fn audit(id: u64, order: OrderKey, sn: String) -> Result<(), Error> {}
        );
        let errors = errors_of(args.parse().unwrap(), item);
        assert!(errors.is_empty(), "{args}: {errors:?}");
    }
}

#[test]
fn a_note_that_is_cut_for_every_call_is_refused() {
    let errors = |note: String| errors_of(quote!(key = "a:<id>", holder_note = #note), item());
    assert_eq!(errors("x".repeat(64)), [""; 0]);
    assert_eq!(errors(format!("{}<id>", "x".repeat(63))), [""; 0]);
    let long = "this note has 65 bytes or more, and 64 are kept: write a shorter one";
    assert_eq!(errors("x".repeat(65)), [long]);
    assert_eq!(errors(format!("{}x", "审核".repeat(10) + "abcd")), [long]);
    assert_eq!(errors(format!("{}<id>", "x".repeat(64))), [long]);
}

/// Texts in the notations of other languages, which would be one key for all calls.
const SAME_FOR_ALL: &str = "\
    order:{0} order:{0:05} order:{{0}} order:{} order:%(id)s order:%1$s order:%s #p0 order:#a0 \
    order:#root.args[0] order:$1 order:?1 order/:id order/id order:id order:id:lines order?id \
    order&id order:$(id) order:(id) order:[id] order:[[id]] order:@id order:%id% order:${id} \
    order:#{id} order:{{id}} order:{id order:{id!r} order:{id:>5} order:{id:audit} \
    order:{self.id} order:{self.id!r} order:id> order:<<id>>";

#[test]
fn a_text_that_would_be_one_key_for_all_calls_is_refused_with_both_mends() {
    for text in SAME_FOR_ALL.split(' ') {
        for key in [
            quote!(#text),
            quote!(["b:<id>", #text]),
            quote!(["b:<id>", shared(#text)]),
            quote!(["b:<id>", permits(#text, 3)]),
            quote!(if id > 5 { "b" } else { #text }),
        ] {
            let errors = errors_of(quote!(key = #key), item());
            assert_eq!(errors.len(), 1, "{key}: {errors:?}");
            let value = if text.contains("self") { "self.id" } else { "id" };
            assert!(errors[0].contains(&format!("`<{value}>`")), "{key}: {errors:?}");
            // An expression with a `<id>` in it is refused itself.
            let itself = format!(", or `String::from({text:?})` for the text itself");
            assert_eq!(errors[0].ends_with(&itself), !text.contains('<'), "{key}: {errors:?}");
        }
        for key in [quote!(String::from(#text)), quote!(["b:<id>", shared(String::from(#text))])] {
            let errors = errors_of(quote!(key = #key), item());
            assert!(errors.is_empty() || text.contains('<'), "{key}: {errors:?}");
        }
    }
}

#[test]
fn a_text_that_only_looks_like_one_with_a_placeholder_is_a_key() {
    let texts = "\
        order-id id id:order id-order nightly:report rides order:ids order:my_id order:valid \
        order.id order:ID order:#7 order:#p order:#parts order:#rooted US$10k order?10k 100% \
        {7x} {audit}:night a->b order::7 id:<id> order:id:<id> order/id/<id> {order:id}:<id>";
    for text in texts.split(' ').chain(["order id"]) {
        for key in [quote!(#text), quote!(["b:<id>", shared(#text)])] {
            let errors = errors_of(quote!(key = #key), item());
            assert!(errors.is_empty(), "{key}: {errors:?}");
        }
    }
}
