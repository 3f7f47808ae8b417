//! Keys and messages with placeholders.

use quote::quote;
use syn::{Expr, parse_quote};

use super::words::errors_of;
use crate::print::expand::attribute;

/// The key that a template becomes, or the error.
fn key(template: &str) -> Result<String, String> {
    let item = quote!(
        fn audit<const N: usize>(
            &self,
            id: u64,
            Path(order): Path<Order>,
            [a, .., b @ Some(c)]: T,
            _: (),
        ) {
        }
    );
    let arguments = quote!(key = #template);
    if let Some(error) = errors_of(arguments.clone(), item.clone()).into_iter().next() {
        return Err(error);
    }
    let expanded = attribute(arguments, item).to_string();
    let (_, rest) = expanded.split_once(":: Lock :: new (").unwrap();
    let (key, _) = rest.split_once(") . name (").unwrap();
    let key: Expr = syn::parse_str(key).unwrap();
    Ok(quote!(#key).to_string())
}

fn reads_as(template: &str, chain: Expr) {
    assert_eq!(key(template), Ok(quote!(#chain).to_string()), "{template}");
}

fn is_refused(template: &str, words: &str) {
    let error = key(template).unwrap_err();
    assert!(error.contains(words), "{template:?}: {error}");
}

macro_rules! template {
    ($text:literal $($rest:tt)*) => {
        reads_as($text, parse_quote!(::lockmacro_runtime::LockKey::template($text) $($rest)*))
    };
}

#[test]
fn placeholders_are_names_fields_indexes_and_method_calls() {
    template!("order:<id>".literal("order:").value(&id));
    template!("<order.id>:<self.tenant>".value(&order.id).literal(":").value(&self.tenant));
    template!("<a>-<b>-<c>".value(&a).literal("-").value(&b).literal("-").value(&c));
    template!("<order.lines[0].sn>".value(&order.lines[0].sn));
    template!("<order.0.1>".value(&order.0.1));
    template!("<id.to_lowercase()>".value(&id.to_lowercase()));
    template!("<order.get(id, \"a>b\", '>', x[1])>".value(&order.get(id, "a>b", '>', x[1])));
    template!("<order.find(a > b)>".value(&order.find(a > b)));
    template!("<id.into::<String>()>".value(&id.into::<String>()));
    template!("<id>>".value(&id).literal(">"));
    template!("< id >".value(&id));
}

#[test]
fn placeholders_may_be_computed() {
    template!("<N>:<Self::NAME>".value(&N).literal(":").value(&Self::NAME));
    template!("<T::NAME>:<Order::ID>".value(&T::NAME).literal(":").value(&Order::ID));
    template!("<hash(id, T::SALT)>".value(&hash(id, T::SALT)));
    template!("<Self::NAMES[0].len()>".value(&Self::NAMES[0].len()));
    template!("<hash(id)>".value(&hash(id)));
    template!("<keys::hash(&order.id, 7, self.salt)>".value(&keys::hash(&order.id, 7, self.salt)));
    template!("<hash(low(id))[0].to_lowercase()>".value(&hash(low(id))[0].to_lowercase()));
    template!("<Self::hash::<u64>(id)>".value(&Self::hash::<u64>(id)));
    is_refused("<hash(sn)>", "`<hash(sn)>` in column 1: `sn` is no argument of this function");
    is_refused("<hash(id, sn)>", "`sn` is no argument");
    is_refused("<M>", "`<M>` in column 1 is no argument of this function: for a constant, write");
}

#[test]
fn everything_else_is_literal() {
    reads_as("nightly-report", parse_quote!("nightly-report"));
    reads_as("a<<x>c", parse_quote!("a<x>c"));
    reads_as("{report}:{x}", parse_quote!("{report}:{x}"));
    reads_as("x>b:$x:#7:100%:50%", parse_quote!("x>b:$x:#7:100%:50%"));
    reads_as("<<x>:<<y", parse_quote!("<x>:<y"));
    reads_as("order::ids:%z:%%d", parse_quote!("order::ids:%z:%%d"));
    template!(
        "#<id>:$<a>:<b>>"
            .literal("#")
            .value(&id)
            .literal(":$")
            .value(&a)
            .literal(":")
            .value(&b)
            .literal(">")
    );
    template!("{order:<id>}:{tag}".literal("{order:").value(&id).literal("}:{tag}"));
    template!("{order:<id>}:审核".literal("{order:").value(&id).literal("}:审核"));
    template!("<<<id><<".literal("<").value(&id).literal("<"));
    template!("50%:<id>".literal("50%:").value(&id));
}

#[test]
fn keys_that_could_be_mistaken_for_others_are_refused() {
    is_refused("", "the key is empty");
    is_refused(" \t", "the key is empty");
    is_refused(
        " order:<id>",
        "starts or ends with a blank, which is a part of it: write \"order:<id>\"",
    );
    is_refused("order\n", "write \"order\"");
    is_refused("lm1:x", "`lm1:` are reserved");
    is_refused("<id><order>", "`<order>` in column 5 touches the placeholder before it");
    is_refused("<id>%", "a `%` right after `<id>` in column 1");
}

#[test]
fn placeholders_that_are_none_are_named_with_their_column() {
    is_refused(
        "订单:<ID>",
        "`<ID>` in column 4: `ID` is no argument of this function, which has `self`, `id`",
    );
    is_refused("a:<id", "the `<` in column 3 is never closed");
    is_refused("a:<>", "`<>` in column 3 is no name, field");
    is_refused("a:< >", "`< >` in column 3 is no name, field");
    let none = r#"
        <f()> | <f(7)> | <f(id, id + 1)> | <f(id)(id)> | <T::name()> | <T::<u8>> | <&id> |
        <*id> | <5> | <id + 1> | <id:>5> | <id:?> | <id?> | <id.await> | <{id}> | <id!()> |
        <(id)> | <id as u8> | <"id"> | <a b> | <'a> | <№> | <id /* > */> | <id)> | <f(id> |
        <id"x"> | <id'x'> | <id as Vec<u8>>
    "#;
    for none in none.split('|').map(str::trim) {
        is_refused(none, "in column 1 is no name, field, index or call");
    }
    is_refused("<id.f(\">", "is no name");
}

#[test]
fn names_in_braces_get_the_mend() {
    is_refused(
        "order:{id}",
        "`{id}` is literal text here: write `<id>` for its value, or `{<id>}`",
    );
    is_refused("{self.tenant}:x", "write `<self.tenant>`");
    is_refused("{7x}{order.id.0}", "write `<order.id.0>`");
    is_refused("{id }", "write `<id>`");
    is_refused("{N}", "write `<N>`");
    is_refused("{order.sn()}", "write `<order.sn()>`");
    is_refused(
        "order:{}",
        "`{}` is literal text here: write an argument in angle brackets, as in `<id>`",
    );
    is_refused("order:{:05}", "`{:05}` is literal text here: write an argument");
    for format in ["05", "?", "#?", ">8", ".3", "02x", ""] {
        let words = format!(
            "`{{id:{format}}}` is literal text here: write `<id>` for its value, or `{{<id>}}`"
        );
        is_refused(&format!("order:{{id:{format}}}"), &words);
    }
    for sound in ["{ids}", "{id:audit}:<id>", "{tag}:<id>", "{id:<id>", "id}", "{x>b}"] {
        assert!(key(sound).is_ok(), "{sound}: {:?}", key(sound));
    }
}

#[test]
fn placeholders_of_other_languages_get_the_mend() {
    for (text, words) in [
        ("order:$id", "`$id` is literal text here: write `<id>`"),
        ("order:${id}", "`${id}` is literal text here: write `<id>`"),
        ("#id", "`#id` is literal text here: write `<id>`"),
        ("order:#{order.id}:x", "`#{order.id}` is literal text here: write `<order.id>`"),
        ("#order.sn.", "`#order.sn` is literal text here: write `<order.sn>`"),
        ("order:{{id}}", "write `<id>`"),
        ("order:id>", "write `<id>`"),
        ("<id>:order.id>x", "`order.id` is literal text here: write `<order.id>`"),
        ("order:%s", "`%s` is literal text here: write an argument"),
        ("%d:order", "`%d` is literal text here"),
    ] {
        is_refused(text, words);
    }
    for sound in
        ["$ids", "#no:<id>", "$", "x>", "ids>", "a->b:<id>", "<<id>:<id>", "50%d", "%sales", "a%"]
    {
        assert!(key(sound).is_ok(), "{sound}: {:?}", key(sound));
    }
}

#[test]
fn an_argument_behind_any_sign_is_refused_in_a_key_without_placeholders() {
    for text in [
        "order:~id~",
        "order:*id",
        "order:`id`",
        "order:'id'",
        "order:\"id\"",
        "{\"id\"}",
        "order: id",
        "order:{% id %}",
        "order:\u{2039}id\u{203a}",
        "order:\u{ff1c}id\u{ff1e}",
        "order:&lt;id&gt;",
        "order,id",
        "order=id",
        "order|id",
        "order!id",
        "~id~",
        "\u{ab}id\u{bb}",
        "order:[id]",
        "order: \t*id",
    ] {
        is_refused(text, "is literal text here: write `<");
        let text = format!("<id>:{}", text.trim_start_matches('<'));
        assert!(key(&text).is_ok(), "{text}: {:?}", key(&text));
    }
    is_refused("order: id", "`id` is literal text here: write `<id>` for its value, or `String::");
    for (text, shown) in [
        ("order:{args[0]}", "args[0]"),
        ("order:#args[0]", "args[0]"),
        ("\u{ff1c}params[12].id", "params[12]"),
        ("order:%@", "%"),
    ] {
        is_refused(text, &format!("`{shown}` is literal text here: write an argument in angle"));
    }
    // A word of the key, another word, and the text of a message.
    for sound in [
        "id",
        "id:lock",
        "order/all",
        "nightly order",
        "a->b",
        "paid-order",
        "order-id.v2",
        "v1.id",
        "orders",
        "my_id",
        "订单id",
        "args[x]",
        "myargs[0]",
        "args[]",
        "lines[0]",
    ] {
        assert!(key(sound).is_ok(), "{sound}: {:?}", key(sound));
    }
    let item = quote!(
        async fn audit(id: u64, order: Order) -> Result<u64, LockError> {}
    );
    let message =
        quote!(key = "a:<id>", message = "another order is audited", holder_note = "an 'id'");
    assert_eq!(errors_of(message, item), Vec::<String>::new());
}
