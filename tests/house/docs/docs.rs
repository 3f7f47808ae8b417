//! The documents: their links, and their tables beside the code.

mod api;
mod code;
mod markdown;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use markdown::{Page, quoted};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn runtime(path: &str) -> PathBuf {
    root().join("lockmacro-runtime/src").join(path)
}

fn readme() -> Page {
    Page::read(root().join("README.md"))
}

fn page(name: &str) -> Page {
    Page::read(root().join("docs").join(name))
}

/// The pages of a folder of documents, without their list.
fn pages(folder: &str) -> Vec<Page> {
    let folder = std::fs::read_dir(root().join(folder)).expect("a folder").flatten();
    let pages = folder.map(|entry| entry.path()).filter(|path| {
        path.extension().is_some_and(|end| end == "md") && !path.ends_with("README.md")
    });
    pages.map(Page::read).collect()
}

/// The pages that rustdoc has, too: those of the guide, the reference, and the protocol.
fn guide() -> Vec<Page> {
    let mut guide = pages("docs");
    guide.extend(pages("docs/reference"));
    guide.push(page("internals/protocol.md"));
    guide
}

/// The path of a page below `docs`.
fn place(page: &Page) -> String {
    let docs = root().join("docs");
    page.path.strip_prefix(docs).expect("below it").to_string_lossy().into_owned()
}

/// All documents that people read outside of rustdoc.
fn documents() -> Vec<Page> {
    let others = [
        "README.md",
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "RELEASING.md",
        "SECURITY.md",
        "lockmacro/README.md",
        "lockmacro-cli/README.md",
        "docs/README.md",
        "docs/internals/decisions.md",
        "docs/internals/expansion.md",
        "docs/internals/turns.md",
        "docs/internals/verification.md",
        "examples/README.md",
        "tests/README.md",
        "tests/machines/simulation/README.md",
    ];
    let others = others.iter().map(|path| Page::read(root().join(path)));
    guide().into_iter().chain(others).collect()
}

/// Both are promised to work as they stand.
#[test]
fn the_two_commands_are_in_the_readme() {
    for command in ["cargo run --example erp_orders ", "sh tests/run "] {
        assert!(readme().text.lines().any(|line| line.starts_with(command)), "{command}");
    }
}

/// A newcomer waits for it: 110 crates take less than a minute on two processors.
#[test]
fn the_first_command_builds_few_crates() {
    // Of the default members, as `cargo run --example` builds them.
    let crates = built(&[]);
    assert!(crates.len() > 50, "{crates:?}");
    assert!(crates.len() <= 110, "{} crates", crates.len());
}

/// The crates that cargo builds for these arguments, each as `name v1.2.3`.
fn built(arguments: &[&str]) -> BTreeSet<String> {
    let cargo = std::env::var_os("CARGO").expect("cargo runs this");
    let mut tree = std::process::Command::new(cargo);
    tree.args(["tree", "--offline", "--locked", "--prefix", "none"]).args(arguments);
    let output = tree.current_dir(root()).output().expect("cargo tree");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("names");
    text.lines().map(|line| line.trim_end_matches(" (*)").to_owned()).collect()
}

#[test]
fn a_program_without_redis_builds_no_client_of_it() {
    let postgres = ["--no-default-features", "--features", "macros,postgres,postgres-tls"];
    let postgres = [&["--package", "lockmacro-runtime"], &postgres[..]].concat();
    let etcd = ["--package", "lockmacro-etcd", "--all-features"];
    let has_client = |arguments: &[&str]| {
        let crates = built(arguments);
        assert!(crates.len() > 30, "{crates:?}");
        crates.iter().any(|name| name.starts_with("redis v"))
    };
    assert!(!has_client(&postgres) && !has_client(&etcd));
    assert!(has_client(&["--package", "lockmacro-runtime"]));
}

#[test]
fn every_link_leads_somewhere() {
    let mut broken = Vec::new();
    for page in documents() {
        for link in page.links() {
            if link.target.contains("://") {
                continue;
            }
            let (file, anchor) = page.target(&link.target);
            let has_anchor = anchor.is_none_or(|anchor| {
                file.exists() && Page::read(&file).anchors().contains(&anchor)
            });
            if !file.exists() || !has_anchor {
                broken.push(format!("{}: [{}]({})", page.name(), link.shown, link.target));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn a_page_defines_the_labels_that_it_uses_and_rustdoc_knows_them() {
    let rustdoc = Page::read(runtime("guide/links.md")).definitions();
    for page in guide().into_iter().chain([page("README.md")]) {
        let (used, defined) = (page.labels(), page.definitions());
        assert_eq!(used, defined.keys().cloned().collect(), "{}", page.name());
        for (label, file) in defined {
            let (file, anchor) = file.split_once(".md").expect("a page");
            let module = file.rsplit('/').next().unwrap_or(file).replace('-', "_");
            let target = rustdoc.get(&label).unwrap_or_else(|| panic!("[{label}] in links.md"));
            assert_eq!(*target, format!("crate::guide::{module}{anchor}"), "[{label}]");
        }
    }
}

#[test]
fn the_guide_lists_every_page_and_rustdoc_has_it() {
    let listed = page("README.md").definitions().into_values();
    let listed = listed.filter_map(|file| file.split('#').next().map(str::to_owned));
    let listed: BTreeSet<_> = listed.collect();
    let pages: BTreeSet<_> = guide().iter().map(place).collect();
    assert_eq!(listed, pages);
    let modules = code::read(&runtime("guide.rs"));
    let modules: BTreeSet<_> =
        modules.split('"').filter(|name| name.ends_with(".md")).map(str::to_owned).collect();
    assert!(modules.is_superset(&pages), "no modules of the guide: {:?}", &pages - &modules);
}

#[test]
fn the_arguments_are_those_of_the_attribute() {
    let known = code::read(&root().join("lockmacro/src/messages/names.rs"));
    let (known, _) = known.split_once("\n];").expect("the table of arguments");
    let rows = known.split("\n    (").skip(1);
    let known: BTreeSet<_> = rows.filter_map(|row| row.split('"').nth(1)).collect();
    assert!(known.len() >= 17, "{known:?}");
    let attribute = Page::read(root().join("lockmacro/src/attribute.md"));
    let (_, table) = attribute.text.split_once("| argument |").expect("the table");
    let table = table.split("\n\n").next().unwrap_or_default().lines().skip(2);
    let cells = table.filter_map(|line| line.split('|').nth(1));
    let shown: BTreeSet<_> = cells.flat_map(quoted).collect();
    assert_eq!(shown, known.iter().map(|name| (*name).to_owned()).collect());
    for name in known {
        assert!(attribute.anchors().contains(name), "attribute.md has no heading for `{name}`");
    }
}

#[test]
fn the_errors_are_those_of_the_runtime() {
    let variants = code::variants(&runtime("value/error.rs"), "LockError");
    assert_eq!(page("reference/errors.md").section("Each error").names_in_tables(), variants);
}

#[test]
fn the_causes_of_a_loss_are_those_of_the_runtime() {
    let causes = code::variants(&runtime("value/loss.rs"), "LossCause");
    let text = page("leases.md").text;
    for cause in causes {
        assert!(text.contains(&format!("`{cause}`")), "{cause}");
    }
}

#[test]
fn the_features_are_those_of_the_manifest() {
    let features = code::features(&root().join("lockmacro-runtime/Cargo.toml"));
    let lib = code::read(&runtime("lib.rs"));
    let listed = lib.lines().filter_map(|line| line.strip_prefix("//! - `"));
    let listed = listed
        .filter_map(|line| line.split_once('`'))
        .filter(|(_, rest)| rest.starts_with(':') || rest.starts_with(" (on by default):"));
    let listed: BTreeSet<_> = listed.map(|(name, _)| name.to_owned()).collect();
    assert_eq!(listed, features);
}

#[test]
fn the_features_that_messages_name_exist() {
    let features = code::features(&root().join("lockmacro-runtime/Cargo.toml"));
    let mut named = BTreeSet::new();
    for folder in ["lockmacro/src", "lockmacro-runtime/src"] {
        for file in code::sources(&root().join(folder)) {
            let text = code::read(&file);
            let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
            let after = code.flat_map(|line| line.split("feature `").skip(1).collect::<Vec<_>>());
            named.extend(after.filter_map(|rest| Some(rest.split_once('`')?.0.to_owned())));
        }
    }
    assert!(named.contains("tls"), "{named:?}");
    assert!(named.is_subset(&features), "{named:?}");
}

#[test]
fn the_settings_of_a_url_are_those_that_the_runtime_reads() {
    let table = code::read(&runtime("value/setting.rs"));
    let row = |line: &str| Some(line.strip_prefix("    (\"")?.split_once('"')?.0.to_owned());
    let of_builder = page("reference/settings.md").section("In the builder only").names_in_tables();
    let is_of_builder = |name: &str| of_builder.iter().any(|cell| cell.starts_with(name));
    let read = table.lines().filter_map(row).filter(|name| !is_of_builder(name));
    let read: BTreeSet<_> = read.collect();
    let files = [
        "manager/builder.rs",
        "store/postgres/client/tls.rs",
        "store/postgres/client/url.rs",
        "store/redis/client/url.rs",
        "store/redlock/url.rs",
        "value/defaults.rs",
    ];
    // Each that a file matches is in the table, and each of the table is matched in one.
    let mut matched: BTreeSet<_> =
        files.iter().flat_map(|file| code::settings(&runtime(file))).collect();
    assert!(matched.remove("ssl"), "one of other drivers, whose error names the right one");
    assert_eq!(matched, read);
    assert!(read.len() > 30, "{read:?}");
    let shown = page("reference/settings.md").section("In a URL").names_in_tables();
    let shown = shown.iter().map(|cell| cell.split('=').next().unwrap_or_default().to_owned());
    assert_eq!(shown.collect::<BTreeSet<_>>(), read);
}

/// The rows of the table of limits, each with the constants that it is made of.
const LIMITS: &str = "\
ttl of a lock | 50 ms to 24 h; 30 s without one
    value/limits.rs TTL_MIN: Duration = Duration::from_millis(50)
    value/limits.rs TTL_MAX: Duration = Duration::from_secs(24 * 60 * 60)
    value/limits.rs TTL_DEFAULT: Duration = Duration::from_secs(30)
`wait`, `default_wait` | 1 ms to 24 h, or without an end
    value/defaults.rs WAIT_MAX: Duration = Duration::from_secs(24 * 60 * 60)
callers that wait for a key | 10,000 of a process, and 10,000 places on the server
    value/limits.rs QUEUE_MAX: usize = 10_000
a hand-off that nobody confirms | 5 s
    value/limits.rs CONFIRM_WINDOW: Duration = Duration::from_secs(5)
a waiter that does not ask again | 10 s
    value/limits.rs WAITER_TTL: Duration = Duration::from_secs(10)
a turn | 1 s
    value/defaults.rs TURN_MAX: Duration = Duration::from_secs(1)
permits | 10,000
    value/mode.rs PERMITS_MAX: u32 = 10_000
keys of a lock | 128
    value/key.rs KEYS_MAX: usize = 128
a key, with its prefix | 1,024 bytes
    value/key.rs KEY_MAX: usize = 1024
`key_prefix` | 256 bytes
    value/defaults.rs PREFIX_MAX: usize = 256
`label` | 128 bytes; a longer one is cut
    value/token.rs LABEL_MAX: usize = 128
`holder_note` | 64 bytes; a longer one is cut
    value/token.rs NOTE_MAX: usize = 64
`fence_retention` | 1 to 3,650 days; 7 days
    value/fence/mod.rs RETENTION: Duration = Duration::from_secs(7 * 24 * 60 * 60)
    value/fence/mod.rs RETENTION_MIN: Duration = Duration::from_secs(24 * 60 * 60)
    value/fence/mod.rs RETENTION_MAX: Duration = Duration::from_secs(3_650 * 24 * 60 * 60)
arguments of a job | 1 MiB
    defer/limits.rs SIZE_MAX: usize = 1 << 20
jobs of a function that wait | 1,000,000
    defer/limits.rs WAITING_MAX: usize = 1_000_000
dead jobs of a function | 10,000, the latest
    defer/limits.rs DEAD_MAX: usize = 10_000
tries of a job | 10
    defer/limits.rs ATTEMPTS: u32 = 10";

#[test]
fn the_limits_are_those_of_the_code() {
    let text = page("reference/settings.md").section("Limits").text;
    let (constants, rows): (Vec<_>, Vec<_>) =
        LIMITS.lines().partition(|line| line.starts_with("    "));
    for row in &rows {
        assert!(text.contains(&format!("| {row} |")), "{row}");
    }
    for constant in constants {
        let (file, constant) = constant.trim().split_once(' ').expect("a file and a constant");
        let code = code::read(&runtime(file));
        assert!(code.contains(&format!("const {constant};")), "{file}: {constant}");
    }
    let shown = text.lines().filter(|line| line.starts_with("| ")).count();
    assert_eq!(shown, rows.len() + 1, "each row is checked");
}

#[test]
fn the_metrics_are_those_that_the_runtime_counts() {
    let table = code::words(&runtime("sys/metrics.rs"), "lockmacro_");
    let counted = code::words(&runtime("engine/telemetry.rs"), "lockmacro_");
    assert!(counted.is_subset(&table), "not described: {:?}", counted.difference(&table));
    let shown = page("reference/metrics.md").names_in_tables();
    let shown = shown.into_iter().filter(|name| name.starts_with("lockmacro_"));
    assert_eq!(shown.collect::<BTreeSet<_>>(), table);
}

#[test]
fn the_log_lines_are_those_that_the_runtime_writes() {
    let written: BTreeSet<_> =
        code::sources(&runtime("")).iter().flat_map(|file| code::events(file)).collect();
    assert!(written.len() > 25, "only {written:#?}");
    let shown = page("reference/logs.md").names_in_tables();
    let shown: Vec<_> = shown.iter().collect();
    let is_it = |shown: &str, written: &str| match shown.strip_suffix("…") {
        Some(start) => written.starts_with(start),
        None => written == shown,
    };
    let missing = written.iter().filter(|one| !shown.iter().any(|name| is_it(name, one)));
    assert_eq!(missing.collect::<Vec<_>>(), Vec::<&String>::new(), "not in logs.md");
    let odd = shown.iter().filter(|name| !written.iter().any(|one| is_it(name, one)));
    assert_eq!(odd.collect::<Vec<_>>(), Vec::<&&String>::new(), "not in the runtime");
}

/// The lines of a block are lines of the file, in this order. The file may have more between them,
/// and imports more.
fn is_in(block: &str, file: &str) -> bool {
    let shown = block.lines().filter(|line| !line.is_empty() && !line.starts_with("use "));
    let mut lines = file.lines();
    shown.into_iter().all(|line| lines.any(|other| other == line))
}

#[test]
fn what_is_shown_of_an_example_is_in_it() {
    let readme = readme();
    let handler = readme.blocks("rust").into_iter().find(|block| block.contains("axum::"));
    let axum = code::read(&root().join("examples/recipes/axum.rs"));
    assert!(is_in(&handler.expect("the handler"), &axum), "the README's handler");
    for block in page("web-services.md").blocks("rust,ignore") {
        let is_in_a_recipe = ["actix.rs", "tonic.rs"].iter().any(|recipe| {
            is_in(&block, &code::read(&root().join("examples/recipes").join(recipe)))
        });
        assert!(is_in_a_recipe, "{block}");
    }
    let clients = ["lock.py", "lock_postgres.py"];
    let clients = clients.map(|file| code::read(&root().join("examples/protocol").join(file)));
    assert_eq!(page("internals/protocol.md").blocks("python"), clients);
    // Both programs have the statements, with placeholders of their own.
    for recipe in ["fenced_sqlite.rs", "fenced_postgres.rs"] {
        let recipe = code::read(&root().join("examples/recipes").join(recipe));
        let page = page("fences.md").text;
        for statement in [
            "ALTER TABLE stock ADD COLUMN fence BIGINT NOT NULL DEFAULT 0;",
            "WHERE fences.fence <= excluded.fence",
            "UPDATE stock SET amount = ",
        ] {
            assert!(page.contains(statement) && recipe.contains(statement), "{statement}");
        }
    }
}

#[test]
fn every_example_is_listed() {
    let list = Page::read(root().join("examples/README.md")).text;
    for folder in ["", "recipes/"] {
        let manifest = code::read(&root().join("examples").join(folder).join("Cargo.toml"));
        let paths = manifest.lines().filter_map(|line| line.strip_prefix("path = \""));
        let paths: Vec<_> = paths.map(|path| path.trim_end_matches('"')).collect();
        let is_there = |path: &&&str| root().join("examples").join(folder).join(path).is_file();
        assert!(paths.len() >= 3 && paths.iter().all(|path| is_there(&path)), "{paths:?}");
        let files = std::fs::read_dir(root().join("examples").join(folder)).expect("a folder");
        let files = files.flatten().filter_map(|entry| entry.file_name().into_string().ok());
        for file in files.filter(|name| name.ends_with(".rs")) {
            assert!(paths.contains(&&*file), "{folder}{file} is not in Cargo.toml");
        }
        for path in paths {
            let path = format!("{folder}{path}");
            assert!(list.contains(&format!("]({path})")), "{path} is not in examples/README.md");
        }
    }
}

/// A change here is a change for users: `CHANGELOG.md` has a line about it. `BLESS=1` writes it.
#[test]
fn the_public_items_are_those_of_the_snapshot() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/public_api.txt");
    let found = api::public(&runtime(""));
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, &found).expect("written");
    }
    let kept = code::read(&path);
    let new: Vec<_> = found.lines().filter(|line| !kept.contains(line)).collect();
    let gone: Vec<_> = kept.lines().filter(|line| !found.contains(line)).collect();
    assert!(found == kept, "the public items have changed: new {new:#?}, gone {gone:#?}");
}
