//! `headroom lsp`: lint in an editor, over standard input and output.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use headroom_lsp::{Ending, Settings, serve_standard_streams};

/// Serve lint to an editor: findings as one types, fixes, rules' pages, measured costs.
///
/// An editor starts it and speaks the Language Server Protocol with it over standard input and output. Settings of the
/// editor (docs/editor.md) come before these flags. Exits with 0 after the protocol's shutdown, and with 1 where the
/// editor left without it.
#[derive(clap::Args)]
pub struct Arguments {
    /// A trace of the scripts (.json, .json.gz or a folder of ranks): lines it measures show their share of the step
    #[arg(long, value_name = "TRACE")]
    trace: Vec<PathBuf>,
    /// Show also what is true but seldom worth a change, and what is not training.
    #[arg(long)]
    pedantic: bool,
    /// Only these rules: codes (TP101), groups (TP1), names, or all; separated by commas.
    #[arg(long, value_delimiter = ',')]
    select: Vec<String>,
    /// Not these rules.
    #[arg(long, value_delimiter = ',')]
    ignore: Vec<String>,
    /// Speak over standard input and output, as always: editors that offer other ways say so.
    #[arg(long)]
    stdio: bool,
}

pub fn run(arguments: Arguments) -> Result<ExitCode> {
    let Arguments { trace, pedantic, select, ignore, stdio } = arguments;
    if std::io::stdin().is_terminal() && !stdio {
        bail!(
            "an editor starts this command and speaks with it; a terminal cannot\n  help: docs/editor.md has settings \
             for VS Code, Neovim, Helix and Zed; `headroom lint` shows findings here"
        );
    }
    super::lint::check_threads()?;
    // The command line is meant from the folder it was given in.
    let whole = |path: &PathBuf| std::path::absolute(path).with_context(|| format!("cannot find {}", path.display()));
    let trace = trace.iter().map(whole).collect::<Result<Vec<PathBuf>>>()?;
    let settings = Settings::given(select, ignore, pedantic, trace);
    settings.check()?;
    let ending = serve_standard_streams(settings).context("standard input is not the Language Server Protocol")?;
    Ok(match ending {
        Ending::Asked => ExitCode::SUCCESS,
        Ending::Left => ExitCode::from(1),
    })
}
