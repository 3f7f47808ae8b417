//! Wrong attributes side by side: each has one message, which says how to mend it.

use proc_macro2::TokenStream;
use quote::quote;

use super::words::errors_of;

/// The attribute's arguments, and a part of the message.
const MESSAGES: &[(&str, &str)] = &[
    // A string that stands alone.
    // After the compiler's message for text in the wrong quotes.
    (r#""order:<id>", ttl = "5s""#, "as in `key = \"order:<id>\"`"),
    (r#""nightly-report""#, "as in `key = \"nightly-report\"`"),
    // The key.
    ("key = id", "write `\"<id>\"`"),
    ("key = &id", "write `\"<id>\"`"),
    ("key = [id, \"b\"]", "write `\"<id>\"`"),
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
    (r#"key = "a:<id>", wait = "never""#, "unknown value `\"never\"`: write `wait = never`"),
    (r#"key = "a:<id>", permits = (1)"#, "remove it for an exclusive lock"),
    (r#"key = "a:<id>", permits = ((0))"#, "write a number from 2"),
    (r#"key = "a:<id>", permits = ("3")"#, "as in `permits = 3`"),
    // `on_busy`
    (r#"key = "a:<id>", on_busy = Skip"#, "write `on_busy = skip`"),
    (r#"key = "a:<id>", on_busy = skp"#, "write `on_busy = skip`"),
    (r#"key = "a:<id>", on_busy = OnBusy::Skip"#, "write `on_busy = skip`"),
    (r#"key = "a:<id>", on_busy = skip()"#, "write `on_busy = skip`"),
    (r#"key = "a:<id>", on_busy = fallback"#, "write `on_busy = fallback(path)`"),
    (r#"key = "a:<id>", on_busy = "skip""#, "write `on_busy = skip`"),
    (r#"key = "a:<id>", on_busy = "fallback""#, "write `on_busy = fallback(path)`"),
    (r#"key = "a:<id>", on_busy = "fallback(later)""#, "write `on_busy = fallback(path)`"),
    (r#"key = "a:<id>", on_busy = "defer(\"9s\")""#, "write `on_busy = defer(\"30s\")`"),
    (r#"key = "a:<id>", on_busy = "Skip""#, "write `on_busy = skip`"),
    (r#"key = "a:<id>", on_busy = eror"#, "write `on_busy = error`"),
    (r#"key = "a:<id>", on_busy = falback(x)"#, "write `on_busy = fallback(path)`"),
    (r#"key = "a:<id>", on_busy = Defer("5s")"#, "write `on_busy = defer(\"30s\")`"),
    (r#"key = "a:<id>", on_busy = wait("5s")"#, "write `wait = \"5s\"` in place of `on_busy`"),
    (r#"key = "a:<id>", on_busy = wait"#, "write `wait = \"5s\"` in place of `on_busy`"),
    (r#"key = "a:<id>", on_busy = retry"#, "without polling: write `wait = \"5s\"`"),
    (r#"key = "a:<id>", on_busy = retry(3)"#, "without polling: write `wait = \"5s\"`"),
    (r#"key = "a:<id>", on_busy = purple"#, "write `on_busy = error`, `on_busy = skip`"),
    (r#"key = "a:<id>", on_busy = cancel"#, "write `on_busy = error`, `on_busy = skip`"),
    (r#"key = "a:<id>", on_busy = 5"#, "write `on_busy = error`, `on_busy = skip`"),
    // `on_lost` and `release`
    (r#"key = "a:<id>", on_lost = Finish"#, "write `on_lost = finish`"),
    (r#"key = "a:<id>", on_lost = canel"#, "write `on_lost = cancel`"),
    (r#"key = "a:<id>", on_lost = canel"#, "or `self::canel` for a function of this name"),
    (r#"key = "a:<id>", on_lost = OnLost::Cancel"#, "write `on_lost = cancel`"),
    (r#"key = "a:<id>", on_lost = lockmacro_runtime::OnLost::Error"#, "write `on_lost = error`"),
    (r#"key = "a:<id>", on_lost = "cancel""#, "write `on_lost = cancel`"),
    (r#"key = "a:<id>", on_lost = "conv""#, "or the path of a function"),
    (r#"key = "a:<id>", release = Background"#, "write `release = background`"),
    (r#"key = "a:<id>", release = "background""#, "write `release = background`"),
    // Other values.
    (r#"key = "a:<id>", name = "orders.<id>""#, "`name` takes no placeholders"),
    (r#"key = "a:<id>", name = "<Self::NAME>""#, "`name` takes no placeholders"),
    (r#"key = "a:<id>", name = "orders.{id}""#, "`name` takes no placeholders"),
    (r#"key = "a:<id>", name = "a\nb""#, "a name has no control characters"),
    (r#"key = "a:<id>", name = """#, "write one such as `name = \"orders.audit\"`"),
    (r#"key = "a:<id>", map_err = "conv""#, "`map_err` takes the path of a `fn(LockError) -> E`"),
    (r#"key = "a:<id>", map_err = "a b""#, "`map_err` takes the path of a `fn(LockError) -> E`"),
    (r#"key = "a:<id>", crate = "my::locks""#, "write one without quotes, as in `crate = "),
    // Words of other libraries.
    (r#"key = "a:<id>", condition = id > 5"#, "write an `if` around the call"),
    (r#"key = "a:<id>", if = id > 5"#, "write an `if` around the call"),
    (r#"name = "job""#, "write `#[distributed_lock(key = \"order:<id>\")]`"),
    // Values that stand alone.
    (
        r#"key = "order:<id>", "shared""#,
        r#"`"shared"` has no name: write one before it, as in `ttl = "300s"`"#,
    ),
    (r#"key = "order:<id>", 30"#, "`30` has no name: write one before it, as in `ttl = \"300s\"`"),
    (r#"key = "a:<id>", "b:<id>""#, "`\"b:<id>\"` has no name: write one before it"),
    (r#""order:<id>", renew"#, "write one before it, as in `key = \"order:<id>\"`"),
    (r#"key = "order:<id>", "ttl" = "5s""#, "the name of an argument has no quotes"),
    (r#"key = read("a:<id>")"#, "where placeholders are not filled in"),
    (r#"key = [semaphore("a:<id>", 3), "b"]"#, "where placeholders are not filled in"),
    (r#"key = "a:<id>", wait = true"#, "as in `wait = \"5s\"`, or an expression"),
    (r#"key = "a:<id>", wait = -1"#, "is no duration"),
    (r#"key = "a:<id>", ttl = "forever""#, "`\"forever\"` is no duration"),
    (r#"key = "a:<id>", mode = shared"#, "`shared` lets others in"),
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
        r#"key = ["a", permits("b:<id>", 1)]"#,
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

/// Texts in the notations of other languages, which would be one key for all calls.
const SAME_FOR_ALL: &str = "\
    order:{0} order:{0:05} order:{{0}} order:{} order:%(id)s order:%1$s order:%s #p0 order:#a0 \
    order:#root.args[0] order:$1 order:?1 order/:id order/id order:id order:id:lines order?id \
    order&id order:$(id) order:(id) order:[id] order:[[id]] order:@id order:%id% order:${id} \
    order:#{id} order:{{id}} order:{id order:{id!r} order:{id:>5} order:{id:audit} \
    order:{self.id} order:{self.id!r} order:id> order:<<id>> order:{.id} '{.id}' {{.id}} \
    order:%05d %-5s order:%.2f order:%x ? order:? order:(?)";

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
        %05z 50%d %% what? {.x} order.?x {7x} {audit}:night a->b order::7 id:<id> order:id:<id> order/id/<id> {order:id}:<id> %x<id> <id>:?";
    for text in texts.split(' ').chain(["order id"]) {
        for key in [quote!(#text), quote!(["b:<id>", shared(#text)])] {
            let errors = errors_of(quote!(key = #key), item());
            assert!(errors.is_empty(), "{key}: {errors:?}");
        }
    }
}
