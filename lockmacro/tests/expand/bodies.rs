//! Bodies and items that are not as they should be.

use proc_macro2::TokenStream;
use quote::quote;

use crate::print::expand::attribute;

fn expand(item: TokenStream) -> String {
    attribute(quote!(key = "order:<id>", ttl = "300s"), item).to_string()
}

fn tokens(code: &str) -> TokenStream {
    code.parse().unwrap()
}

#[test]
fn a_half_typed_body_still_expands() {
    for item in [
        "async fn audit(id: u64) -> Result<(), Error> { let order = load(id). }",
        "fn audit(id: u64) -> Result<(), Error> { let order = ; order. }",
        "fn audit(id: u64) -> BoxFuture<'static, Result<(), Error>> { Box::pin(async move { id. }) }",
    ]
    .map(tokens)
    {
        let expanded = expand(item.clone());
        assert!(!expanded.contains("compile_error"), "{item}: {expanded}");
        assert!(expanded.contains(":: Lock :: new"), "{item}: {expanded}");
    }
}

#[test]
fn a_mistake_leaves_the_item_as_it_was_and_gives_one_error() {
    for item in [
        "const fn audit(id: u64) -> Result<(), Error> { let order = load(id). }",
        "#[inline] pub(crate) extern \"C\" fn audit(id: u64) -> u64 { id }",
        "async fn audit(sn: u64) -> Result<(), Error> { Ok(()) }",
        "fn audit(id: u64) -> Result<(), Error>;",
        "struct Order { id: u64 }",
        "unsafe impl Send for Order {}",
        "fn audit(id: u64) -> Result<impl Iterator<Item = u64>, Error> { Ok(0..id) }",
    ]
    .map(tokens)
    {
        let expanded = expand(item.clone());
        let as_it_was = quote!(#[allow(unused_variables)] #item).to_string();
        let error = expanded.strip_prefix(&as_it_was).unwrap();
        assert_eq!(error.matches("compile_error").count(), 1, "{item}: {error}");
    }
}

#[test]
fn mistakes_of_the_function_and_of_the_arguments_are_reported_together() {
    let item = tokens("const fn audit(sn: u64) {}");
    let expanded = attribute(quote!(key = "order:<id>", tll = "300s"), item);
    assert_eq!(expanded.to_string().matches("compile_error").count(), 2);
}

#[test]
fn what_only_looks_like_work_that_starts_later_is_accepted() {
    for output in [
        quote!(Result<Box<dyn Display + Send>, Error>),
        quote!(Result<impl Display, Error>),
        quote!(Result<Box<dyn Fn(u64) -> BoxFuture<'static, ()>>, Error>),
        quote!(Result<Vec<Iterator>, Error>),
    ] {
        let expanded = expand(quote!(async fn audit(id: u64) -> #output { todo!() }));
        assert!(!expanded.contains("compile_error"), "{output}: {expanded}");
    }
}

#[test]
fn boxed_futures_are_known_by_every_name() {
    for output in [
        quote!(Pin<Box<dyn Future<Output = Result<(), Error>>>>),
        tokens(
            "::core::pin::Pin<::std::boxed::Box<dyn Send \
             + ::core::future::Future<Output = Result<(), Error>> + 'a>>",
        ),
        quote!(BoxFuture<'_, Result<(), Error>>),
        quote!(futures::future::LocalBoxFuture<'a, Result<(), Error>>),
    ] {
        for pin in [quote!(Box::pin), quote!(::std::boxed::Box::pin)] {
            let expanded =
                expand(quote!(fn audit(id: u64) -> #output { #pin(async move { Ok(()) }) }));
            assert!(expanded.contains("return < Result < () , Error > as"), "{output}: {expanded}");
            let start = format!("{{ {pin} (async move {{ :: lockmacro_runtime :: Lock :: new");
            assert!(expanded.contains(&start), "{output}: {expanded}");
        }
    }
}
