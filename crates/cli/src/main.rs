//! The headroom command.

mod explain;
mod lint;

use std::process::ExitCode;

use clap::Parser;

#[derive(Parser)]
#[command(name = "headroom", version, about = "Finds what holds a training run back")]
struct Headroom {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    Lint(lint::Arguments),
    Explain(explain::Arguments),
}

fn main() -> ExitCode {
    let result = match Headroom::parse().command {
        Command::Lint(arguments) => lint::run(arguments),
        Command::Explain(arguments) => explain::run(arguments),
    };
    result.unwrap_or_else(|error| {
        #[expect(clippy::print_stderr, reason = "errors of the command go to stderr")]
        {
            eprintln!("error: {error:#}");
        }
        ExitCode::from(2)
    })
}
