//! The Lua scripts of the engine.

use std::fs;
use std::path::{Path, PathBuf};

use lockmacro_tests::Server;

/// All Lua files below a folder.
fn lua_files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("the folder is there");
    let paths = entries.map(|entry| entry.expect("it can be listed").path());
    let files = paths.flat_map(|path| match path.is_dir() {
        true => lua_files(&path),
        false => vec![path],
    });
    files.filter(|path| path.extension().is_some_and(|extension| extension == "lua")).collect()
}

/// A file that stands before others is a part of a script; an editor reads it by itself.
#[test]
fn each_file_parses_by_itself() {
    let sources = concat!(env!("CARGO_MANIFEST_DIR"), "/../lockmacro-runtime/src");
    let files = lua_files(Path::new(sources));
    assert!(files.len() > 20, "only {} files were found", files.len());
    let server = Server::start();
    let mut admin = server.admin();
    for file in files {
        let text = fs::read_to_string(&file).expect("it can be read");
        // The server parses a script when it loads it, and runs nothing.
        let loaded = admin.send::<String>(&["SCRIPT", "LOAD", &text]);
        assert!(loaded.is_ok(), "{}: {loaded:?}", file.display());
    }
}
