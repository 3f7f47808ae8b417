//! Puts the code blocks of docs/fences.md into `src/writes.rs`, at the lines that name them.

use std::path::Path;
use std::{env, fs};

fn main() {
    let page = "../../../docs/fences.md";
    let template = "src/writes.rs";
    for file in [page, template] {
        println!("cargo::rerun-if-changed={file}");
    }
    let page = fs::read_to_string(page).expect("the page");
    let mut code = fs::read_to_string(template).expect("the template");
    for (marker, begins) in [
        ("// tokio-postgres", "#[distributed_lock"),
        ("// sqlx", "let mut write = db.begin()"),
        ("// diesel", "let query = sql_query(check.sql())"),
        ("// sea-orm", "let write = db.begin()"),
    ] {
        let fence = format!("```rust,ignore\n{begins}");
        let from = page.find(&fence).expect(begins) + fence.len() - begins.len();
        let block = page[from..].split("```").next().expect("a block");
        assert_eq!(code.matches(marker).count(), 1, "{marker}");
        code = code.replace(marker, block);
    }
    let out = Path::new(&env::var_os("OUT_DIR").expect("of cargo")).join("writes.rs");
    fs::write(out, code).expect("written");
}
