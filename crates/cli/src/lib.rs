//! The `headroom` command: results on stdout, progress on stderr, and a meaningful exit code.

mod analyze;
mod apply;
mod compare;
mod completions;
mod device;
mod eval;
mod explain;
mod failure;
mod generate;
mod isolation;
mod k1;
mod kept;
mod lint;
mod lsp;
mod mcp;
mod memory_size;
mod optimize;
mod output;
mod pages;
mod profile;
mod proved;
mod race;
mod ranks;
mod record;
mod registry;
mod regress;
mod runs;
mod scale;
mod serve;
mod shown;
mod signals;
mod study;
mod tokenizer;
mod train;
mod undecided;
mod verified;
mod verify;
mod version;
mod workshop;

#[doc(hidden)]
pub use mcp::InMemory;

use clap::error::ErrorKind;
use clap::{ColorChoice, CommandFactory, FromArgMatches, Parser, Subcommand};
use headroom_engine::cpu::isa::Isa;
use headroom_record::atomic::FileError;
use output::colour::{self, When};
use std::ffi::OsString;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use train::config_file::{self, Given};

/// Show how far a training run is from what the hardware allows and why, and prove the fix.
#[derive(Parser)]
#[command(name = "headroom", version = version::SHORT, long_version = version::LONG, propagate_version = true)]
#[command(max_term_width = 120, after_help = EXIT_CODES)]
struct Cli {
    /// Colour the result: auto (if standard output is a terminal; obeys `NO_COLOR` and `CLICOLOR_FORCE`), always or never
    #[arg(long, global = true, value_enum, default_value_t = When::Auto, value_name = "WHEN", hide_possible_values = true)]
    color: When,
    /// Look for configurations and projects only in these folders (for `headroom mcp`)
    #[arg(long, value_name = "FOLDER", hide = true)]
    within: Vec<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

const EXIT_CODES: &str = "\
Exit codes:
  0          done; an undecided gate (a limit that is checked) counts as done, unless --undecided fail
  1          the answer is no: a finding at least as severe as --fail-on, a failed gate, a regression
  2          bad input or usage
  3          the run itself failed: full disk, device lost, loss not finite, a failed script
  129        ended by the terminal's hangup
  130, 143   interrupted by Ctrl-C or by a request to terminate

Results go to standard output, progress and errors to standard error. `--json` is `--format json` on every command.";

#[derive(Subcommand)]
enum Command {
    /// Train a language model and report its speed
    Train(Box<train::Arguments>),
    /// Train and record everything: a full run folder and a report
    Profile(Box<train::Arguments>),
    Optimize(optimize::Arguments),
    Apply(apply::Arguments),
    /// Measure what this machine can do, and save it
    Device(device::Arguments),
    Eval(Box<eval::Arguments>),
    Generate(generate::Arguments),
    Analyze(analyze::Arguments),
    Compare(compare::Arguments),
    Study(study::Arguments),
    Scale(scale::Arguments),
    K1(k1::Arguments),
    Runs(runs::Arguments),
    Regress(regress::Arguments),
    Record(record::Arguments),
    Lint(lint::Arguments),
    Lsp(lsp::Arguments),
    Serve(serve::Arguments),
    Mcp(mcp::Arguments),
    Explain(explain::Arguments),
    Workshop(workshop::Arguments),
    /// Print a completion script for a shell
    Completions(completions::Arguments),
    /// Write man pages and completions into a folder (for packages)
    #[command(hide = true)]
    Pages(pages::Arguments),
    /// Answer timing requests on standard input (for benchmarks)
    #[command(hide = true)]
    Race(race::Arguments),
}

impl Command {
    /// The command's name, if all ranks of a launcher would do the same work and write the same files.
    fn is_for_one_process(&self) -> Option<&'static str> {
        match self {
            Command::Optimize(_) => Some("optimize"),
            Command::Apply(_) => Some("apply"),
            Command::Study(_) => Some("study"),
            Command::Scale(_) => Some("scale"),
            Command::K1(_) => Some("k1"),
            Command::Eval(_) => Some("eval"),
            Command::Generate(_) => Some("generate"),
            _ => None,
        }
    }
}

/// Runs the command this process was started with.
pub fn main() -> ExitCode {
    // Before any thread starts: the launcher must have a single one.
    #[cfg(target_os = "linux")]
    if let Some(code) = headroom_scripts::isolation::launched(std::env::args_os()) {
        return code;
    }
    signals::report_file_size_limit();
    let words: Vec<OsString> = std::env::args_os().collect();
    let when = colour::asked_for(&words);
    let words = match config_file::expanded(words, &Cli::command()) {
        Ok(words) => words,
        Err(error) => return failure::report(&error),
    };
    let cli = match parsed(&words, when) {
        Ok(cli) => cli,
        Err(asked) => return show(&asked),
    };
    colour::settle(cli.color, output::is_seen(&io::stdout()));
    headroom_sources::within::stay(cli.within);
    if let Err(error) = Isa::asked() {
        return failure::report(&error.into());
    }
    if let Err(error) = ranks::check_alone(cli.command.is_for_one_process()) {
        return failure::report(&error);
    }
    let mut entry = registry::Entry::default();
    let mut company = None;
    let done = match cli.command {
        Command::Train(arguments) => train::run(*arguments, &mut entry, &mut company),
        Command::Profile(arguments) => train::run_profiled(*arguments, &mut entry, &mut company),
        Command::Optimize(arguments) => optimize::run(arguments, &mut entry),
        Command::Apply(arguments) => apply::run(&arguments),
        Command::Device(arguments) => device::run(arguments, &mut company),
        Command::Eval(arguments) => eval::run(*arguments),
        Command::Generate(arguments) => generate::run(arguments),
        Command::Analyze(arguments) => analyze::run(arguments),
        Command::Compare(arguments) => compare::run(arguments),
        Command::Study(arguments) => study::run(arguments, &mut entry),
        Command::Scale(arguments) => scale::run(arguments, &mut entry),
        Command::K1(arguments) => k1::run(arguments, &mut entry),
        Command::Runs(arguments) => runs::run(arguments),
        Command::Regress(arguments) => regress::run(arguments),
        Command::Record(arguments) => record::run(arguments),
        Command::Lint(arguments) => lint::run(arguments),
        Command::Lsp(arguments) => lsp::run(arguments),
        Command::Serve(arguments) => serve::run(arguments),
        Command::Mcp(arguments) => mcp::run(arguments),
        Command::Explain(arguments) => explain::run(arguments),
        Command::Workshop(arguments) => workshop::run(arguments),
        Command::Completions(arguments) => completions::run(arguments),
        Command::Pages(arguments) => pages::run(&arguments),
        Command::Race(arguments) => race::run(arguments),
    };
    entry.close(&done);
    let failed = done.as_ref().err().map(failure::code);
    let code = done.unwrap_or_else(|error| failure::report(&error));
    if let Some(company) = company {
        company.part(failed);
    }
    code
}

/// Parses the command; commands that write their flags to a file also receive the flags as given.
fn parsed(words: &[OsString], when: When) -> Result<Cli, clap::Error> {
    let mut command = Cli::command().color(match when {
        When::Auto if io::stdout().is_terminal() && !output::is_seen(&io::stdout()) => ColorChoice::Never,
        When::Auto => ColorChoice::Auto,
        When::Always => ColorChoice::Always,
        When::Never => ColorChoice::Never,
    });
    let matches = command.try_get_matches_from_mut(words)?;
    let mut cli = Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut command))?;
    if let Command::Train(arguments) | Command::Profile(arguments) = &mut cli.command
        && let Some((name, own)) = matches.subcommand()
        && let Some(subcommand) = command.find_subcommand(name)
    {
        arguments.given = Given::of(subcommand, own);
    }
    if let (Command::Optimize(_), Some((_, own))) = (&cli.command, matches.subcommand())
        && let Some(sentence) = optimize::misplaced(own)
    {
        return Err(command.error(ErrorKind::ArgumentConflict, sentence));
    }
    Ok(cli)
}

/// Prints help, the version, or why the arguments are invalid.
fn show(asked: &clap::Error) -> ExitCode {
    if asked.kind() == ErrorKind::DisplayVersion {
        let said = output::exactly(&version::with_devices(&asked.to_string()));
        return said.map_or_else(|error| failure::report(&error.into()), |()| ExitCode::SUCCESS);
    }
    match asked.print() {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            failure::report(&FileError::new("write", Path::new("standard output"))(error).into())
        }
        _ => ExitCode::from(u8::try_from(asked.exit_code()).unwrap_or(2)),
    }
}
