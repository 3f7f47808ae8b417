//! Wrong uses of the attribute, each with its one message and the text that it underlines.
//!
//! `refused.txt` has a paragraph for each. Without a function in it, the attribute is on
//! `async fn audit(id: u64)`. `BLESS=1` rewrites the messages.

use std::fs;
use std::path::Path;

use proc_macro2::{Group, TokenStream, TokenTree};

use crate::print::expand::attribute;

const FUNCTION: &str = "async fn audit(id: u64) -> Result<u64, LockError> { Ok(id) }";
const MESSAGE: &str = "//~ ";

/// The lines about the mistakes in a text: what is underlined, and the message.
fn mistakes(tokens: TokenStream) -> Vec<String> {
    let (mut lines, mut trees) = (Vec::new(), tokens.into_iter());
    while let Some(tree) = trees.next() {
        let TokenTree::Group(group) = tree else { continue };
        let Some(args) = arguments(&group) else {
            lines.extend(mistakes(group.stream()));
            continue;
        };
        let (mut item, mut is_over) = (TokenStream::new(), false);
        while !is_over && let Some(tree) = trees.next() {
            let text = tree.to_string();
            is_over = text == ";" || text.starts_with('{');
            item.extend([tree]);
        }
        lines.extend(errors(attribute(args, item)));
    }
    lines
}

/// Input: `[distributed_lock(arguments)]`
fn arguments(group: &Group) -> Option<TokenStream> {
    let mut trees = group.stream().into_iter();
    trees.next().filter(|name| name.to_string() == "distributed_lock")?;
    match trees.next() {
        Some(TokenTree::Group(arguments)) => Some(arguments.stream()),
        _ => Some(TokenStream::new()),
    }
}

fn errors(expanded: TokenStream) -> Vec<String> {
    let (mut lines, mut start) = (Vec::new(), None);
    for tree in expanded {
        match (tree, start) {
            (TokenTree::Ident(name), _) if name == "compile_error" => start = Some(name.span()),
            (TokenTree::Group(group), Some(first)) => {
                let underlined = first.join(group.span()).and_then(|all| all.source_text());
                let words = underlined.unwrap_or_default();
                let words: Vec<_> = words.split_whitespace().collect();
                let message: syn::LitStr = syn::parse2(group.stream()).unwrap();
                let message = message.value().replace('\n', "\\n");
                lines.push(format!("{MESSAGE}{} => {message}\n", words.join(" ")));
                start = None;
            }
            (TokenTree::Group(group), None) => lines.extend(errors(group.stream())),
            _ => {}
        }
    }
    lines
}

/// A paragraph with the messages that its functions get.
fn with_messages(paragraph: &str) -> String {
    let code = paragraph.lines().filter(|line| !line.starts_with(MESSAGE));
    let code: String = code.map(|line| format!("{line}\n")).collect();
    let item = if code.trim_end().ends_with(")]") { FUNCTION } else { "" };
    code.clone() + &mistakes(format!("{code}{item}").parse().expect(&code)).concat()
}

#[test]
fn each_mistake_has_its_message_and_no_other() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/expand/refused.txt");
    let text = fs::read_to_string(&path).unwrap();
    let paragraphs: Vec<_> = text.trim_end().split("\n\n").collect();
    let now: Vec<_> = paragraphs.iter().map(|paragraph| with_messages(paragraph)).collect();
    if std::env::var_os("BLESS").is_some() {
        fs::write(&path, now.join("\n")).unwrap();
    }
    for (before, now) in paragraphs.iter().zip(&now) {
        assert_eq!(before.trim_end(), now.trim_end());
        // Several mistakes have a line each that says so.
        let count = |part: &str| now.lines().filter(|line| line.contains(part)).count();
        assert_eq!(count(MESSAGE), count("// wrong").max(1), "{now}");
    }
    assert!(now.len() >= 260, "only {} wrong uses", now.len());
}
