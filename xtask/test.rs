//! `cargo xtask test`: everything that must be green, in one command, cheapest first.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::{prerequisites, tidy, workspace_root};

/// What `cargo xtask test` takes.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Run only this step; may be given several times.
    #[arg(long, value_name = "STEP")]
    only: Vec<String>,
    /// List the steps.
    #[arg(long)]
    list: bool,
}

struct Step {
    name: &'static str,
    about: &'static str,
    run: fn(&Path) -> Result<(), String>,
}

const STEPS: &[Step] = &[
    Step {
        name: "prerequisites",
        about: "Java 17, Maven, Python 3, kcat, FUSE and namespaces are there",
        run: |_| prerequisites::require_all(),
    },
    Step { name: "fmt", about: "the source is formatted", run: fmt },
    Step { name: "tidy", about: "edges, cycles, sizes and words", run: tidy::run },
    Step { name: "clippy", about: "no lint complains", run: clippy },
    Step { name: "unit", about: "unit tests of every crate", run: unit },
    Step { name: "loom", about: "every order of steps in the mesh between cores", run: loom },
    Step { name: "python", about: "Python's Kafka clients, in target/python", run: python },
    Step { name: "build", about: "the broker as people run it", run: build },
    Step { name: "blackbox", about: "real tools and clients against it", run: blackbox },
];

/// Runs the steps in order and stops at the first that fails.
///
/// # Errors
/// A sentence that names the step and how to run it alone.
pub fn run(options: &Options) -> Result<(), String> {
    if options.list {
        for step in STEPS {
            println!("{:14} {}", step.name, step.about);
        }
        return Ok(());
    }
    if let Some(unknown) = options.only.iter().find(|name| !STEPS.iter().any(|s| s.name == **name))
    {
        return Err(format!("no step is named `{unknown}`: `cargo xtask test --list` lists them"));
    }
    let root = workspace_root();
    let started = Instant::now();
    for step in STEPS {
        if !options.only.is_empty() && !options.only.iter().any(|name| name == step.name) {
            continue;
        }
        println!("== {}: {}", step.name, step.about);
        let step_started = Instant::now();
        let outcome = (step.run)(&root);
        let seconds = step_started.elapsed().as_secs_f64();
        match outcome {
            Ok(()) => println!("== {} passed in {seconds:.1} s", step.name),
            Err(sentence) => {
                let name = step.name;
                return Err(format!(
                    "step {name} failed after {seconds:.1} s: {sentence}\n\
                     run it alone with `cargo xtask test --only {name}`"
                ));
            }
        }
    }
    println!("== all steps passed in {:.1} s", started.elapsed().as_secs_f64());
    Ok(())
}

fn fmt(root: &Path) -> Result<(), String> {
    cargo(root, &["fmt", "--all", "--check"])
}

fn clippy(root: &Path) -> Result<(), String> {
    cargo(root, &["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"])
}

fn unit(root: &Path) -> Result<(), String> {
    cargo(root, &["test", "--workspace", "--exclude", "blackbox"])
}

/// The mesh under its model checker, which needs a build of its own.
fn loom(root: &Path) -> Result<(), String> {
    let mut command = cargo_command(root, &["test", "-p", "mesh", "--release", "--lib"]);
    command.env("RUSTFLAGS", "--cfg loom").env("CARGO_TARGET_DIR", root.join("target/loom"));
    succeed(&mut command, "cargo test -p mesh with --cfg loom")
}

/// Makes `target/python` anew when the list of libraries is not the one that it was made from.
fn python(root: &Path) -> Result<(), String> {
    let list = root.join("tests/python/requirements.txt");
    let folder = root.join("target/python");
    let done = folder.join("requirements.txt");
    let wanted = fs::read(&list).map_err(|error| format!("reading {}: {error}", list.display()))?;
    if fs::read(&done).is_ok_and(|have| have == wanted) {
        return Ok(());
    }
    let mut venv = Command::new("python3");
    succeed(venv.args(["-m", "venv", "--clear"]).arg(&folder), "python3 -m venv target/python")?;
    let mut pip = Command::new(folder.join("bin/python"));
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r"]).arg(&list);
    succeed(&mut pip, "pip install -r tests/python/requirements.txt")?;
    fs::write(&done, wanted).map_err(|error| format!("writing {}: {error}", done.display()))
}

fn build(root: &Path) -> Result<(), String> {
    cargo(root, &["build", "--release", "--bin", "corelane"])
}

/// The tests start processes that are busy themselves: two at a time, on any machine.
fn blackbox(root: &Path) -> Result<(), String> {
    cargo(root, &["test", "--package", "blackbox", "--no-fail-fast", "--", "--test-threads=2"])
}

fn cargo(root: &Path, arguments: &[&str]) -> Result<(), String> {
    succeed(&mut cargo_command(root, arguments), &format!("cargo {}", arguments.join(" ")))
}

/// The cargo that runs us, so that a pinned toolchain stays the same one.
fn cargo_command(root: &Path, arguments: &[&str]) -> Command {
    let program = env::var_os("CARGO").map_or_else(|| PathBuf::from("cargo"), PathBuf::from);
    let mut command = Command::new(program);
    command.args(arguments).current_dir(root).stdin(Stdio::null());
    command
}

fn succeed(command: &mut Command, what: &str) -> Result<(), String> {
    let status = command.status().map_err(|error| format!("starting `{what}`: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("`{what}` failed ({status})")) }
}
