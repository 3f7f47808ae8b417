//! The costs of one annotated function in a program that has many of them: time to build, machine
//! code, and lines of LLVM's intermediate language.
//!
//! A crate of 500 functions is built for each kind in turn, within every round. The costs of the
//! same functions without an attribute are subtracted, and the rest is divided by the number of
//! functions.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::Failure;
use crate::measure::Spread;

const FUNCTIONS: usize = 500;

/// A kind of function: its attribute, and whether it is async.
#[derive(Debug, Clone, Copy)]
struct Kind {
    name: &'static str,
    attribute: &'static str,
    is_async: bool,
}

const KINDS: [Kind; 6] = [
    Kind { name: "async, nothing", attribute: "", is_async: true },
    Kind {
        name: "async, tracing::instrument",
        attribute: "#[tracing::instrument]",
        is_async: true,
    },
    Kind { name: "async, distributed_lock", attribute: LOCKED, is_async: true },
    Kind { name: "sync, nothing", attribute: "", is_async: false },
    Kind {
        name: "sync, tracing::instrument",
        attribute: "#[tracing::instrument]",
        is_async: false,
    },
    Kind { name: "sync, distributed_lock", attribute: LOCKED, is_async: false },
];

const LOCKED: &str = r#"#[lockmacro_runtime::distributed_lock(key = "order:<id>", ttl = "300s")]"#;

/// The total costs of one kind.
#[derive(Debug, Clone, Copy, Default)]
struct Cost {
    /// Seconds of the compiler, for this crate alone.
    build: f64,
    /// Bytes of machine code.
    text: f64,
    /// Lines of LLVM's language inside of functions, before any pass.
    lines: f64,
}

/// Builds all kinds `rounds` times, and prints the costs of a function.
pub fn run(rounds: u32) -> Result<(), Failure> {
    let folder = tempfile::tempdir()?;
    let crates = KINDS.map(|kind| Crate::new(folder.path(), kind));
    let crates = crates.into_iter().collect::<Result<Vec<_>, _>>()?;
    for each in &crates {
        // Builds the dependencies, and takes the extra costs of a first build.
        each.build(&[])?;
    }
    let mut costs = vec![Vec::new(); KINDS.len()];
    for _ in 0..rounds.max(1) {
        for (each, costs) in crates.iter().zip(&mut costs) {
            costs.push(each.cost()?);
        }
    }
    println!("\nOne of {FUNCTIONS} functions, beside the same one without an attribute\n");
    println!("{:28}{:>22}{:>14}{:>14}", "", "build, ms", "text, bytes", "LLVM lines");
    for (nth, kind) in KINDS.iter().enumerate().filter(|(_, kind)| !kind.attribute.is_empty()) {
        let plain = if kind.is_async { 0 } else { 3 };
        let each = |of: fn(&Cost) -> f64| {
            let more = costs[nth].iter().zip(&costs[plain]);
            Spread::of(more.map(|(one, plain)| (of(one) - of(plain)) / FUNCTIONS as f64))
        };
        let (build, text, lines) =
            (each(|cost| 1e3 * cost.build), each(|cost| cost.text), each(|cost| cost.lines));
        println!(
            "{:28}{:>22}{:14.0}{:14.0}",
            kind.name,
            format!("{:.1} ({:.1}-{:.1})", build.median, build.low, build.high),
            text.median,
            lines.median
        );
    }
    Ok(())
}

/// A crate of functions of one kind.
struct Crate {
    folder: PathBuf,
    target: PathBuf,
}

impl Crate {
    fn new(parent: &Path, kind: Kind) -> Result<Self, Failure> {
        let name = kind.name.replace([',', ' ', ':'], "_");
        let folder = parent.join(&name);
        let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize()?;
        fs::create_dir_all(folder.join("src"))?;
        fs::copy(workspace.join("Cargo.lock"), folder.join("Cargo.lock"))?;
        let runtime = workspace.join("lockmacro-runtime");
        let manifest = format!(
            "[package]\nname = \"functions\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n\
             [dependencies]\nlockmacro-runtime = {{ path = {runtime:?} }}\n\
             tokio = {{ version = \"1\", features = [\"rt\", \"time\"] }}\n\
             tracing = {{ version = \"0.1\", default-features = false, \
             features = [\"attributes\", \"std\"] }}\n\n\
             [profile.release]\ncodegen-units = 1\nincremental = false\n\n[workspace]\n"
        );
        fs::write(folder.join("Cargo.toml"), manifest)?;
        fs::write(folder.join("src/lib.rs"), source(kind))?;
        Ok(Self { folder, target: parent.join("target") })
    }

    /// Builds this crate, whose dependencies were built before.
    fn build(&self, flags: &[&str]) -> Result<(), Failure> {
        let output = Command::new(env!("CARGO"))
            .args(["rustc", "--release", "--lib", "--quiet", "--"])
            .args(flags)
            .current_dir(&self.folder)
            .env("CARGO_TARGET_DIR", &self.target)
            .output()?;
        if output.status.success() {
            return Ok(());
        }
        Err(format!("cargo failed: {}", String::from_utf8_lossy(&output.stderr)).into())
    }

    fn cost(&self) -> Result<Cost, Failure> {
        let object = self.folder.join("functions.o");
        let start = Instant::now();
        self.touch()?;
        self.build(&[&format!("--emit=obj={}", object.display())])?;
        let build = start.elapsed();
        let language = self.folder.join("functions.ll");
        let flag = format!("--emit=llvm-ir={}", language.display());
        self.touch()?;
        self.build(&["-Cno-prepopulate-passes", &flag])?;
        let lines = lines_of_functions(&fs::read_to_string(&language)?);
        let text = text_of(&object)?;
        Ok(Cost { build: seconds(build), text: text as f64, lines: lines as f64 })
    }

    fn touch(&self) -> Result<(), Failure> {
        let lib = self.folder.join("src/lib.rs");
        Ok(fs::write(&lib, fs::read(&lib)?)?)
    }
}

fn seconds(duration: Duration) -> f64 {
    duration.as_secs_f64()
}

/// The functions. Each async one has a caller as well, so that the compiler has to compile it.
fn source(kind: Kind) -> String {
    let mut source = String::from(
        "pub type Failure = lockmacro_runtime::LockError;\n\
         pub type Called = std::pin::Pin<Box<dyn Future<Output = Result<u64, Failure>> + Send>>;\n\
         pub async fn load(id: u64) -> Result<u64, Failure> {\n\
             tokio::task::yield_now().await;\n\
             Ok(id)\n\
         }\n\
         pub fn load_now(id: u64) -> Result<u64, Failure> { Ok(std::hint::black_box(id)) }\n",
    );
    for nth in 0..FUNCTIONS {
        let Kind { attribute, is_async, .. } = kind;
        // Writing to a `String` does not fail.
        let _ = if is_async {
            writeln!(
                source,
                "{attribute}\npub async fn audit_{nth}(id: u64) -> Result<u64, Failure> {{ \
                 let order = load(id).await?; Ok(order + {nth}) }}\n\
                 pub fn call_{nth}(id: u64) -> Called {{ Box::pin(audit_{nth}(id)) }}"
            )
        } else {
            writeln!(
                source,
                "{attribute}\npub fn audit_{nth}(id: u64) -> Result<u64, Failure> {{ \
                 let order = load_now(id)?; Ok(order + {nth}) }}"
            )
        };
    }
    source
}

/// The lines between `define` and `}`.
fn lines_of_functions(language: &str) -> usize {
    let mut is_inside = false;
    let inside = language.lines().filter(|line| {
        is_inside = (is_inside || line.starts_with("define ")) && *line != "}";
        is_inside
    });
    inside.count()
}

/// Bytes of machine code in an object file, as `size` of the GNU binutils counts them.
fn text_of(object: &Path) -> Result<u64, Failure> {
    let output = Command::new("size").args(["-A", "-d"]).arg(object).output()?;
    let text = String::from_utf8(output.stdout)?;
    let sections = text.lines().filter(|line| line.starts_with(".text"));
    let sizes = sections.filter_map(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
    Ok(sizes.sum())
}
