//! The table of actions names what is there.

use std::path::Path;

use lockmacro_model_tests::table::TABLE;

#[test]
fn each_function_and_script_of_the_table_is_there() {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../lockmacro-runtime/src");
    for (action, file, name) in TABLE {
        let text = std::fs::read_to_string(sources.join(file)).unwrap_or_default();
        let is_there = |name: &str| text.contains(name);
        assert!(is_there(name), "{action}: no {name:?} in {file}");
    }
}
