//! `headroom lsp`: serves lint to an editor over standard input and output.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use headroom_lsp::{Ending, Settings, serve_standard_streams};

/// Serve lint to an editor: findings as you type, fixes, rule pages, measured costs.
///
/// An editor starts this command and speaks the Language Server Protocol over standard input and output. The editor's settings
/// (docs/editor.md) override these flags. Exits with 0 after the protocol's shutdown, and with 1 if the editor leaves without it.
#[derive(clap::Args)]
pub struct Arguments {
    /// A trace of the scripts (.json, .json.gz or a folder of ranks): measured lines show their share of the step
    #[arg(long, value_name = "TRACE")]
    trace: Vec<PathBuf>,
    /// Also show findings that are seldom worth a change, and findings outside of training code.
    #[arg(long)]
    pedantic: bool,
    /// Only these rules: codes (TP101), groups (TP1), names, or all; separated by commas.
    #[arg(long, value_delimiter = ',')]
    select: Vec<String>,
    /// All rules but these.
    #[arg(long, value_delimiter = ',')]
    ignore: Vec<String>,
    /// Use standard input and output; always the case, accepted because some editors pass it.
    #[arg(long)]
    stdio: bool,
}

pub fn run(arguments: Arguments) -> Result<ExitCode> {
    let Arguments { trace, pedantic, select, ignore, stdio } = arguments;
    if std::io::stdin().is_terminal() && !stdio {
        bail!(
            "this command talks to an editor, not to a terminal\n  help: docs/editor.md has settings for VS Code, Neovim, Helix \
             and Zed; `headroom lint` shows findings here"
        );
    }
    super::lint::check_threads()?;
    // Paths on the command line are relative to the folder it was given in.
    let whole = |path: &PathBuf| std::path::absolute(path).with_context(|| format!("cannot find {}", path.display()));
    let trace = trace.iter().map(whole).collect::<Result<Vec<PathBuf>>>()?;
    let settings = Settings::given(select, ignore, pedantic, trace);
    settings.check()?;
    let ending =
        serve_standard_streams(settings).context("standard input does not follow the Language Server Protocol")?;
    Ok(match ending {
        Ending::Asked => ExitCode::SUCCESS,
        Ending::Left => ExitCode::from(1),
    })
}
