//! Which arguments may stand beside which: the suite `shapes` runs a function for each such pair.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use proc_macro2::TokenStream;
use quote::quote;

use crate::messages::names::KNOWN;
use crate::print::expand::attribute;

/// The forms of every argument, each under the name of its row.
const FORMS: [(&str, &str); 35] = [
    ("key", "key = \"order:<id>\""),
    ("key_of_a_call", "key = note.key(id)"),
    ("key_of_branches", "key = if id > 0 { note.key(id) } else { note.key(0) }"),
    ("keys", "key = [\"order:<id>\", shared(\"note:<id>:<note>\")]"),
    ("keys_of_an_iterator", "key = keys([note.key(id)])"),
    ("ttl", "ttl = \"30s\""),
    ("ttl_of_a_call", "ttl = note.lease()"),
    ("renew", "renew"),
    ("max_hold", "max_hold = \"60s\""),
    ("min_hold", "min_hold = \"1ms\""),
    ("wait", "wait = \"5s\""),
    ("wait_forever", "wait = forever"),
    ("shared", "shared"),
    ("permits", "permits = 3"),
    ("permits_of_a_call", "permits = note.permits()"),
    ("on_busy", "on_busy = error"),
    ("skip", "on_busy = skip"),
    ("fallback", "on_busy = fallback(later)"),
    ("defer", "on_busy = defer(\"30s\")"),
    ("reuse", "on_busy = reuse"),
    ("on_lost", "on_lost = error"),
    ("finish", "on_lost = finish"),
    ("recovering", "on_lost = undone"),
    ("release", "release = background"),
    ("guard", "guard = _guard"),
    ("fence", "fence = _fence"),
    ("fences", "fence = [_order, _note]"),
    ("message", "message = \"order <id> is audited\""),
    ("message_of_a_call", "message = \"<note.text()> is audited\""),
    ("holder_note", "holder_note = \"<note>\""),
    ("manager", "manager = installed()"),
    ("manager_of_branches", "manager = if id > 0 { installed() } else { other() }"),
    ("map_err", "map_err = std::convert::identity"),
    ("name", "name = \"orders.audit\""),
    ("runtime", "crate = ::lockmacro_runtime"),
];

fn argument(form: &str) -> &str {
    form.split(' ').next().unwrap_or(form)
}

#[test]
fn each_argument_has_a_form() {
    let known: BTreeSet<_> = KNOWN.iter().map(|(name, ..)| *name).collect();
    let formed: BTreeSet<_> = FORMS.iter().map(|(_, form)| argument(form)).collect();
    assert_eq!(known, formed, "each argument has a form here, and nothing else has");
}

/// Whether the attribute takes a function with these arguments.
fn is_allowed(one: &str, other: &str) -> bool {
    let key = if argument(one) == "key" { "" } else { "key = \"order:<id>\", " };
    let arguments: TokenStream = format!("{key}{one}, {other}").parse().unwrap();
    let function = quote! {
        async fn audit(id: u64, note: Note) -> Result<Option<u64>, LockError> { Ok(Some(id)) }
    };
    !attribute(arguments, function).to_string().contains("compile_error")
}

/// Writes a row in lines of at most 100 columns.
fn wrapped(text: &mut String, row: &str, forms: Vec<String>) {
    let mut line = format!("    {row} {{ ");
    for word in forms.into_iter().chain(["}".to_owned()]) {
        if line.len() + word.len() > 100 {
            writeln!(text, "{}", line.trim_end()).unwrap();
            line = "        ".to_owned();
        }
        line += &word;
        line.push(' ');
    }
    writeln!(text, "{}", line.trim_end()).unwrap();
}

/// Each form, and the forms after it that may stand beside it. `..` are those of the row `rest`,
/// which nearly all others go with.
fn rows() -> String {
    let text = |(_, form): &(&str, &str)| format!("[{form}]");
    let first_of_rest = FORMS.iter().position(|(row, _)| *row == "holder_note").unwrap();
    let rest: Vec<_> = FORMS[first_of_rest..].iter().map(text).collect();
    let mut rows =
        "// Written by the suite `expand`, with BLESS=1.\n\nrows! { (id, note)\n".to_owned();
    wrapped(&mut rows, "rest", rest.clone());
    for (nth, (row, one)) in FORMS.iter().enumerate() {
        let goes_with = |other: &str| argument(other) != argument(one) && is_allowed(one, other);
        let others = FORMS[nth + 1..].iter().filter(|(_, other)| goes_with(other));
        let mut forms: Vec<_> = [format!("[{one}]")].into_iter().chain(others.map(text)).collect();
        if nth < first_of_rest && forms.ends_with(&rest) {
            forms.truncate(forms.len() - rest.len());
            forms.push("..".to_owned());
        }
        wrapped(&mut rows, row, forms);
    }
    rows + "}\n"
}

#[test]
fn a_function_is_spawned_for_each_allowed_pair() {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/attribute/shapes/pairs.allowed.rs");
    let rows = rows();
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, &rows).unwrap();
    }
    assert!(
        rows == std::fs::read_to_string(&path).unwrap_or_default(),
        "other arguments may stand beside each other now: `BLESS=1` writes them"
    );
}
