//! `cargo xtask`: the project's own commands. `cargo xtask --help` lists them.
#![allow(clippy::disallowed_methods, reason = "a command ends with its exit code")]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "it talks to a person")]

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use xtask::{config_keys, kafka, schemas, sim, test, tidy, workspace_root};

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Corelane's own commands")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Check the shape of the tree: edges between crates, cycles, sizes, words.
    Tidy,
    /// Run everything that must be green: checks, unit tests, black-box tests.
    Test(test::Options),
    /// Run what takes long, in full: `campaign` for all of it, `campaign recovery` for one.
    Campaign {
        /// Which one: `fuzz`, `boundaries`, or one of `tests/cases/campaign.rs`.
        name: Option<String>,
    },
    /// Take the facts of Kafka's message schemas from the jars into our own text.
    Schemas,
    /// Take the facts of Kafka's configuration keys from its classes, and its answers to cases.
    ConfigKeys,
    /// Measure, in a release build: `bench compare`, `bench load`; `bench --help` says more.
    #[command(disable_help_flag = true)]
    Bench {
        /// What the benchmark program is given.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        line: Vec<String>,
    },
    /// Run whole nodes in a fake world: `sim --seeds 0..1000`; `sim --help` says more.
    #[command(disable_help_flag = true)]
    Sim {
        /// What the simulator is given.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        line: Vec<String>,
    },
    /// Run one of Apache Kafka's tools, e.g. `kafka topics --list --bootstrap-server …`.
    #[command(disable_help_flag = true)]
    Kafka {
        /// Name of the tool (`topics`, `kafka-topics` or `kafka-topics.sh`; without it, a list of
        /// all), then what the tool is given.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        line: Vec<String>,
    },
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().command {
        Command::Tidy => tidy::run(&workspace_root()),
        Command::Schemas => schemas::run(&workspace_root()),
        Command::ConfigKeys => config_keys::run(&workspace_root()),
        Command::Test(options) => test::run(&options),
        Command::Campaign { name } => run_campaign(name.as_deref().unwrap_or_default()),
        Command::Bench { line } => run_bench(&line),
        Command::Sim { line } => match sim::run(&line) {
            Ok(code) => return code.into(),
            Err(sentence) => Err(sentence),
        },
        Command::Kafka { line } => match run_tool(&line) {
            Ok(code) => return code,
            Err(sentence) => Err(sentence),
        },
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(sentence) => {
            eprintln!("xtask: {sentence}");
            ExitCode::FAILURE
        }
    }
}

/// The tests of campaigns in their full form, one after the other, against the release build, and
/// the fuzz targets and the crashes at every change of a disk.
fn run_campaign(name: &str) -> Result<(), String> {
    let filter = format!("campaign::{name}");
    let fuzz: &[&str] = &["run", "--quiet", "--profile", "sim", "-p", "fuzz"];
    let sim = ["run", "--quiet", "--profile", "sim", "-p", "sim"];
    let boundaries = &[&sim[..], &["--", "--boundaries", "--seeds", "0..10"]].concat()[..];
    let tests: [&[&str]; 2] = [
        &["build", "--release", "--quiet"],
        &["test", "--quiet", "-p", "blackbox", "--test", "cases", "--", &filter, "--nocapture"],
    ];
    let lines = match name {
        "fuzz" => vec![fuzz],
        "boundaries" => vec![boundaries],
        "" => vec![tests[0], tests[1], boundaries, fuzz],
        _ => tests.to_vec(),
    };
    for line in lines {
        let mut command = std::process::Command::new("cargo");
        command.args(line).env("CORELANE_CAMPAIGN", "full").env("RUST_TEST_THREADS", "1");
        let status = command.current_dir(workspace_root()).status();
        if !status.map_err(|error| format!("starting cargo: {error}"))?.success() {
            return Err(format!("`cargo {}` failed", line.join(" ")));
        }
    }
    Ok(())
}

fn run_bench(line: &[String]) -> Result<(), String> {
    let mut command = std::process::Command::new("cargo");
    command.args(["run", "--release", "--quiet", "-p", "bench", "--"]).args(line);
    let status = command.current_dir(workspace_root()).status();
    match status.map_err(|error| format!("starting cargo: {error}"))?.success() {
        true => Ok(()),
        false => Err("the benchmark program has failed".to_owned()),
    }
}

fn run_tool(line: &[String]) -> Result<ExitCode, String> {
    match line.split_first() {
        Some((tool, arguments)) if tool != "--help" => {
            kafka::run(tool, arguments).map(ExitCode::from)
        }
        _ => {
            kafka::print_tools();
            Ok(ExitCode::SUCCESS)
        }
    }
}
