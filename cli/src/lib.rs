//! The `eigenveil` command as a library, so that whole-system tests run the current code.

mod args;
mod commands;
mod demo;
mod error;
mod files;
mod output;
mod results;
mod tables;

use std::{ffi::OsString, io::ErrorKind, process::ExitCode};

use clap::{CommandFactory, FromArgMatches as _, Parser, Subcommand, parser::ValueSource};

pub use crate::error::{CliError, Result};

/// Principal components of data that never leaves its owners
#[derive(Debug, Parser)]
#[command(
    name = "eigenveil",
    version,
    propagate_version = true,
    arg_required_else_help = true,
    after_help = "Example, everything on this machine in seconds:\n  eigenveil demo\n\nExit codes: 0 done, 1 failed, 2 wrong usage."
)]
struct Cli {
    /// Print only one JSON object, on one line, on standard output
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Demo(demo::DemoArgs),
    Serve(commands::serve::ServeArgs),
    Store(commands::store::StoreArgs),
    Work(commands::work::WorkArgs),
    Study(commands::study::StudyArgs),
    Token(commands::token::TokenCommandArgs),
    Backup(commands::backup::BackupArgs),
    Report(commands::report::ReportArgs),
    Estimate(commands::estimate::EstimateArgs),
    Moment(commands::moment::MomentArgs),
    Project(commands::project::ProjectArgs),
    Simulate(commands::simulate::SimulateArgs),
    Plan(commands::plan::PlanArgs),
    Prepare(Box<commands::prepare::PrepareArgs>),
    Account(commands::account::AccountArgs),
    Receipt(commands::receipt::ReceiptArgs),
    Audit(commands::audit::AuditArgs),
    Central(commands::central::CentralArgs),
    Reproduce(commands::reproduce::ReproduceArgs),
    /// Print a completion script for a shell
    #[command(
        after_help = "Example:\n  eigenveil completions bash > /etc/bash_completion.d/eigenveil"
    )]
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
}

/// Runs the command line of this process.
pub fn main() -> ExitCode {
    ExitCode::from(run_line(&std::env::args_os().collect::<Vec<_>>()))
}

/// Runs a command line, whose first word is the program's name. Returns the exit code: 0 done, 1 failed, 2 wrong usage.
pub fn run_line(words: &[OsString]) -> u8 {
    let cli = match parse(words) {
        Ok(cli) => cli,
        Err(error) => {
            // clap's own codes are 2 for wrong usage and 0 for help and version.
            let code = u8::try_from(error.exit_code()).unwrap_or(2);
            return match error.print() {
                Err(error) if error.kind() != ErrorKind::BrokenPipe => 1,
                _ => code,
            };
        }
    };
    match run(cli) {
        Ok(()) => 0,
        Err(error) => {
            output::print_error_line(&format!("error: {error}"));
            error.exit_code()
        }
    }
}

fn parse(words: &[OsString]) -> std::result::Result<Cli, clap::Error> {
    let matches = with_negative_numbers(Cli::command()).try_get_matches_from(words)?;
    // For clap the variable would conflict as the flag does.
    for (command, flag) in [
        ("moment", "estimate"),
        ("report", "give_up"),
        ("prepare", "rows"),
        ("prepare", "description"),
    ] {
        let Some(given) = matches.subcommand_matches(command) else {
            continue;
        };
        let are_given = [flag, "server"].map(|id| given.value_source(id));
        if are_given == [Some(ValueSource::CommandLine); 2] {
            let flag = flag.replace('_', "-");
            let wrong = format!("--server has no effect: --{flag} needs no server; leave it out");
            return Err(Cli::command().error(clap::error::ErrorKind::ArgumentConflict, wrong));
        }
    }
    Cli::from_arg_matches(&matches)
}

/// Accepts "-1" as a value of every flag, so that the flag's own parser reports what is wrong with it.
fn with_negative_numbers(command: clap::Command) -> clap::Command {
    command
        .allow_negative_numbers(true)
        .mut_subcommands(with_negative_numbers)
}

fn run(cli: Cli) -> Result<()> {
    let json = cli.json;
    match cli.command {
        Command::Demo(args) => runtime()?.block_on(demo::run(&args, json)),
        Command::Serve(args) => runtime()?.block_on(commands::serve::run(&args, json)),
        Command::Store(args) => commands::store::run(&args, json),
        Command::Work(args) => runtime()?.block_on(commands::work::run(&args, json)),
        Command::Study(args) => runtime()?.block_on(commands::study::run(&args, json)),
        Command::Token(args) => runtime()?.block_on(commands::token::run(&args, json)),
        Command::Backup(args) => runtime()?.block_on(commands::backup::run(&args, json)),
        Command::Report(args) => runtime()?.block_on(commands::report::run(&args, json)),
        Command::Estimate(args) => runtime()?.block_on(commands::estimate::run(&args, json)),
        Command::Moment(args) => runtime()?.block_on(commands::moment::run(&args, json)),
        Command::Project(args) => commands::project::run(&args, json),
        Command::Simulate(args) => commands::simulate::run(&args, json),
        Command::Prepare(args) => runtime()?.block_on(commands::prepare::run(&args, json)),
        Command::Plan(args) => commands::plan::run(&args, json),
        Command::Account(args) => commands::account::run(&args, json),
        Command::Receipt(args) => commands::receipt::run(&args, json),
        Command::Audit(args) => commands::audit::run(&args, json),
        Command::Central(args) => commands::central::run(&args, json),
        Command::Reproduce(args) => commands::reproduce::run(&args, json),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "eigenveil", &mut script);
            output::bytes(&script)
        }
    }
}

/// Maximum number of threads that read the disk for requests. Each takes a stack and, with its first query, a heap with
/// 64 MiB of address space: tokio's default of 512 threads does not fit into 1 GiB, and a failed allocation ends the
/// process.
const READING_THREADS: usize = 4;

fn runtime() -> Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .max_blocking_threads(READING_THREADS)
        .build()
        .map_err(|error| CliError::failed(format!("the runtime could not start: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_has_help_with_an_example() {
        fn check(command: &clap::Command, path: &str) {
            let help = command
                .get_after_help()
                .map(ToString::to_string)
                .unwrap_or_default();
            assert!(help.contains("Example"), "{path} has no example");
            assert!(command.get_about().is_some(), "{path} has no description");
            for sub in command
                .get_subcommands()
                .filter(|sub| sub.get_name() != "help")
            {
                check(sub, &format!("{path} {}", sub.get_name()));
            }
        }
        check(&Cli::command(), "eigenveil");
    }
}
