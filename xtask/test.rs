//! `cargo xtask test`: everything that must be green, in one command, cheapest first.

use std::env;
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
        about: "Java 17, Maven, Python 3 and kcat are there",
        run: |_| prerequisites::require_all(),
    },
    Step { name: "fmt", about: "the source is formatted", run: fmt },
    Step { name: "tidy", about: "edges, cycles, sizes and words", run: tidy::run },
    Step { name: "clippy", about: "no lint complains", run: clippy },
    Step { name: "unit", about: "unit tests of every crate", run: unit },
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
    cargo(root, &["test", "--workspace"])
}

/// The cargo that runs us, so that a pinned toolchain stays the same one.
fn cargo(root: &Path, arguments: &[&str]) -> Result<(), String> {
    let program = env::var_os("CARGO").map_or_else(|| PathBuf::from("cargo"), PathBuf::from);
    let mut command = Command::new(program);
    command.args(arguments).current_dir(root).stdin(Stdio::null());
    succeed(&mut command, &format!("cargo {}", arguments.join(" ")))
}

fn succeed(command: &mut Command, what: &str) -> Result<(), String> {
    let status = command.status().map_err(|error| format!("starting `{what}`: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("`{what}` failed ({status})")) }
}
