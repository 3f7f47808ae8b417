//! Keys that are expressions: where text in them is filled in, and where it is refused.

use proc_macro2::TokenStream;
use quote::quote;

use crate::print::expand::attribute;

fn tokens(code: &str) -> TokenStream {
    code.parse().unwrap()
}

/// The expansion of the key, or the error.
fn key(key: TokenStream) -> Result<String, String> {
    let item = tokens("async fn audit(id: u64, tenant: Option<String>) -> Result<(), Error> {}");
    let expanded = attribute(quote!(key = #key), item).to_string();
    match expanded.split_once("compile_error") {
        Some((_, error)) => Err(error.to_owned()),
        None => {
            let (_, rest) = expanded.split_once(":: Lock :: ").unwrap();
            let (key, _) = rest.split_once(". name (").unwrap();
            Ok(key.replace(":: lockmacro_runtime :: ", "").trim().to_owned())
        }
    }
}

const FILLED: &str = r#"LockKey :: template ("order:<id>") . literal ("order:") . value (& id)"#;

#[test]
fn text_alone_is_filled_in_whatever_stands_around_it() {
    for text in [
        quote!("order:<id>"),
        quote!(("order:<id>")),
        quote!({ "order:<id>" }),
        quote!(({ ("order:<id>") })),
        quote!(&"order:<id>"),
        quote!(&&("order:<id>")),
    ] {
        assert_eq!(key(text.clone()), Ok(format!("new ({FILLED})")), "{text}");
        let list = key(quote!([#text, "b:<id>"])).unwrap();
        assert!(list.starts_with(&format!("many ([{FILLED} ,")), "{list}");
    }
}

#[test]
fn text_in_a_branch_is_refused_where_it_would_be_filled_in_alone() {
    for branches in [
        r#"if id > 5 { "order:<id>" } else { "rest" }"#,
        r#"match id { 0 => panic!("none"), 1 => own_key(id), _ => "order:<id>" }"#,
        r#"if let Some(x) = tenant { if id > 1 { "order:<id>" } else { return } } else { x() }"#,
        r#"{ let large = id > 5; if large { "order" } else { "<large>" } }"#,
        r#"(unsafe { "order:<id>" })"#,
        r#"match tenant { Some(name) => "order:<name>", None => "order" }"#,
    ]
    .map(tokens)
    {
        let error = key(branches.clone()).unwrap_err();
        assert!(error.contains("where placeholders are not filled in"), "{branches}: {error}");
        assert_eq!(error.matches("compile_error").count(), 0, "{branches}: {error}");
    }
    for text in ["order:{id}", "order:{0}", "order:id", " order", "lm1:x", ""] {
        let error = key(quote!(if id > 5 { "b" } else { #text })).unwrap_err();
        assert!(!error.contains("compile_error"), "{text}: {error}");
    }
}

#[test]
fn expressions_without_text_stay_as_they_are() {
    for sound in [
        r#"if a { one } else { other(id) }"#,
        r#"if id > 5 { "large" } else { std::process::exit(1) }"#,
        r#"match id { 1 => one(id), _ => other }"#,
        r#"format!("order:{id}")"#,
        r#"format!("order:<{}>", id)"#,
        r#""order:<<id>".replace("<id>", &id.to_string())"#,
        r#"{ let key = pattern.replace("<id>", &id.to_string()); key }"#,
        r#"LockKey::template("order:<id>").literal("order:").value(&id)"#,
        r#"String::from("order")"#,
        r#"concat!("order", ":audit")"#,
        r#"tenant.map_or(one, |name| name.replace("<id>", "7"))"#,
        r#"Some("order").unwrap()"#,
        r#"match op { "<" => one, ">" => two, _ => other }"#,
        r#"concat!("order:", env!("SHOP"))"#,
    ]
    .map(tokens)
    {
        let same = key(sound.clone()).unwrap();
        assert_eq!(same, format!("new ({sound})"));
    }
}

#[test]
fn text_that_would_not_be_filled_in_is_refused_with_the_mend() {
    for text in [
        quote!("order:<id>".to_string()),
        quote!("order:<id>".to_owned().into()),
        quote!(String::from("order:<id>")),
        quote!(std::string::String::from("order:<id>").as_str()),
        quote!(LockKey::from("order:<id>")),
        quote!(Cow::Borrowed("order:<id>")),
        quote!(format!("order:<id>")),
        quote!(std::format!("order:<id>",)),
        quote!(&format!("order:<id>")),
        quote!(concat!("order:", "<id>")),
        quote!(concat!("order:<", "id", ">")),
        quote!(String::from("order:<id>").to_lowercase()),
        quote!(dbg!("order:<id>")),
    ] {
        let error = key(text.clone()).unwrap_err();
        assert!(error.contains("where placeholders are not filled in"), "{text}: {error}");
        assert!(error.contains("order:<id>"), "{text}: {error}");
        assert!(key(quote!([#text, "b:<id>"])).is_err(), "{text}");
        assert!(key(quote!(if id > 1 { #text } else { "b" })).is_err(), "{text}");
    }
}

#[test]
fn text_for_an_argument_inside_of_an_expression_is_refused() {
    for text in [
        r#"format!("order:{}:<id>", 5)"#,
        r#"format!("order:{id}:<tenant>")"#,
        r#"prefix + "<id>""#,
        r#"tenant.unwrap_or("order:<id>")"#,
        r#"tenant.map(|name| "order:<name>")"#,
        r#"tenant.map_or("order:<id>", name)"#,
        r#"tenant.or(Some("order:<id>")).unwrap()"#,
        r#"(id > 5).then_some("order:<id>").unwrap_or("x")"#,
        r#"Some("order:<id>").unwrap()"#,
        r#"dbg!(tenant.unwrap_or("order:<id>"))"#,
        r#"keys(std::iter::once("order:<id>"))"#,
        r#"{ let key = "order:<id>"; key }"#,
        r#"{ let mut key = String::from("order:<id>"); key.push_str(":audit"); key }"#,
        r#"{ let mut key = String::from("order:"); key.push_str("<id>"); key }"#,
        r#"{ let mut key = prefix(); key.insert_str(0, &"<id>:"); LockKey::from(&key) }"#,
        r#"{ let mut key = prefix(); key += "<id>"; key.to_lowercase() }"#,
        r#"{ let mut key = String::new(); key = "order:<id>".to_owned(); (key) }"#,
        r#"{ let mut key = String::new(); write!(key, "order:<id>").unwrap();
            write!(&mut key, ":{}", 5).unwrap(); format!("{}:{key}", key) }"#,
        r#"{ let key = String::from("order:<id>"); if id > 5 { key } else { "order" } }"#,
        r#"match id {
            0 => "order",
            _ => { let mut key = String::from("order:"); key += "<id>"; key }
        }"#,
        r#"keys(lines.iter().map(|line| format!("stock:<line.sku>")))"#,
        r#"keys(vec!["order:<id>", "order"])"#,
        r#"keys(["order:<id>"].into_iter())"#,
        // A function could fill these in. A constant says that it does.
        r#"{ let kind = kind_of(render("<id>", id)); let pattern = "<id>"; match kind == "<id>" {
            true => own(pattern.replace("<id>", "7")),
            _ if id > 7 => { let shown = "<id>"; info!("audit of {shown:?}"); "audit" }
            false => "order",
        } }"#,
        r#"format!("list:<x>:{}", id)"#,
        r#""order:<id>".replace("<id>", &id.to_string())"#,
        r#"render("order:<id>", id)"#,
        r#"self::render(id, "<id>")"#,
        r#"names["<id>"].clone()"#,
        r#"if kind == "<id>" { one } else { other }"#,
        r#"if kind == Some("<id>") { one } else { other }"#,
        r#"render(Some("order:<id>"), id)"#,
        r#"{ let text = "order:<id>"; render(text, id) }"#,
        r#"{ let text = "order:<id>"; Text { text }.render(id) }"#,
        r#"{ let text = "order:<id>"; let other = text; render(other, id) }"#,
        r#"{ let mut key = String::from("order"); key.push_str("<id>"); key += ":<tenant>";
            key = key.replace("<id>", &id.to_string()); key }"#,
        r#"{ let mut searched = String::new(); searched.push_str("<id>");
            names.get(&searched).cloned().unwrap() }"#,
        r#"{ let mut log = String::new(); write!(log, "<id>").unwrap(); tell!(log); own_key(id) }"#,
        r#"{ lines.push_str("<id>"); lines[0] += "<id>"; own_key(lines) }"#,
        r#"match replace { true => "import:<id>", false => "add:<id>" }"#,
        r#"if template { "import:<id>" } else { OTHER }"#,
        r#"replace("order:<id>")"#,
        r#"PATTERN.replace("{}", &format!("order:<id>"))"#,
        r#"PATTERN.replace("x", concat!("<", "id>"))"#,
        r#"concat!("list<", "<id>")"#,
        r#"concat!(concat!("order:<", "id"), ">")"#,
        r#"concat!("order:<", stringify!(id), ">")"#,
        r#"stringify!(order:<id>)"#,
        r#"stringify!(order:<id>).to_lowercase()"#,
    ]
    .map(tokens)
    {
        let error = key(text.clone()).unwrap_err();
        assert!(
            error.contains("is text in an expression, where placeholders are not filled in"),
            "{text}: {error}"
        );
    }
}

#[test]
fn a_text_that_a_method_makes_the_key_of_has_the_mistakes_of_a_key() {
    for method in ["to_string", "to_owned", "into", "to_lowercase"].map(tokens) {
        for text in ["order:{id}", "order:{}", "order:$id", "order:'id'", "order:%s", "order:?"] {
            let error = key(quote!(#text.#method())).unwrap_err();
            assert!(error.contains("is literal text here"), "{text}: {error}");
            assert!(key(quote!(if id > 1 { #text.#method() } else { order() })).is_err(), "{text}");
            assert!(key(quote!(&(#text.#method().#method()))).is_err(), "{text}");
        }
        assert!(key(quote!("order:audit".#method())).is_ok(), "{method}");
        assert!(key(quote!((7).#method())).is_ok(), "{method}");
    }
    assert!(key(quote!(String::from("order:{id}"))).is_ok());
    assert!(key(quote!("order:{id}".replace("{id}", &id.to_string()).to_lowercase())).is_ok());
}

#[test]
fn the_refusal_of_text_in_an_expression_shows_how_to_format_it() {
    for (text, mend) in [
        (quote!(prefix + "<id>"), r#"or format the values in, as in `format!(\"{id}\")`"#),
        (
            quote!(prefix + ":<id>:<tenant.len()>:<<"),
            r#"as in `format!(\":{id}:{}:<\", tenant.len())`"#,
        ),
        (quote!(format!("{}:<id>", 5)), r#"as in `format!(\"order:{id}\")`"#),
    ] {
        let error = key(text.clone()).unwrap_err();
        assert!(error.contains(mend), "{text}: {error}");
        assert!(error.contains(r#"as in `key = \"order:<id>\"`"#), "{text}: {error}");
    }
}

#[test]
fn a_constant_is_looked_at_when_it_runs() {
    for (constant, name) in [
        (quote!(ORDER_KEY), "ORDER_KEY"),
        (quote!(keys::ORDER), "keys :: ORDER"),
        (quote!(Self::KEY), "Self :: KEY"),
        (quote!(&KEY), "& KEY"),
    ] {
        let names = r#"& ["id" , "tenant"]"#;
        let expected = format!("new (__private :: constant_key ({name} , {names}))");
        assert_eq!(key(constant), Ok(expected));
    }
    assert_eq!(key(quote!(tenant)), Ok("new (tenant)".to_owned()));
    assert_eq!(key(quote!(&tenant)), Ok("new (& tenant)".to_owned()));
    let nothing = attribute(quote!(key = KEY), tokens("fn audit() -> Result<(), Error> {}"));
    assert!(nothing.to_string().contains("Lock :: new (KEY)"), "{nothing}");
}
