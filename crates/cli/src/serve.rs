//! `headroom serve`: the dashboard, on loopback only, behind a random token, read-only by default.

mod bodies;
mod cache;
mod catalog;
mod changes;
mod folder;
mod guard;
mod listen;
mod pages;
mod reply;
mod routes;

use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result, bail};

use crate::output;
pub use folder::{bytes_of_traces, is_trace_name};
use guard::Token;

/// Show runs and traces in a browser: overview, operators, timeline, memory, roofline, comparison, live view.
#[derive(clap::Args)]
pub struct Arguments {
    /// Run folders, folders of runs, or traces (.json, .json.gz); `runs/` here and the registry are always shown
    paths: Vec<PathBuf>,
    /// Scripts that a trace was recorded from (a folder or a file): findings then name source lines
    #[arg(long, value_name = "PATH")]
    source: Vec<PathBuf>,
    /// Port to listen on [default: a free one]
    #[arg(long, default_value_t = 0)]
    port: u16,
    /// Open the page in the default browser
    #[arg(long)]
    open: bool,
    #[command(flatten)]
    packed: crate::analyze::Packed,
    /// Let pages delete and name runs
    #[arg(long)]
    allow_changes: bool,
}

/// Whether pages may change files on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    ReadOnly,
    Changes,
}

pub fn run(arguments: Arguments) -> Result<ExitCode> {
    if let Some(missing) = arguments.paths.iter().chain(&arguments.source).find(|path| !path.exists()) {
        bail!("{}: there is no such file or folder\n  help: give a run folder or a trace", missing.display());
    }
    let access = if arguments.allow_changes { Access::Changes } else { Access::ReadOnly };
    let token = Token::random()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()
        .context("cannot start the server's runtime")?;
    runtime.block_on(async {
        let listener = listen::bind(arguments.port).await?;
        let port = listener.local_addr().context("cannot tell the port")?.port();
        let state = routes::State::new(
            catalog::Catalog::new(arguments.paths),
            cache::Cache::new(arguments.source, arguments.packed.ratio()),
            access,
            token,
            port,
        );
        let address = format!("http://127.0.0.1:{port}/{}", state.token.text());
        output::result(&format!("{address}\n"))?;
        let mode = match access {
            Access::ReadOnly => "read-only",
            Access::Changes => "runs may be deleted and named",
        };
        output::note(&format!(
            "The dashboard is at the address above, for this machine only ({mode}). Ctrl-C ends it."
        ));
        if arguments.open {
            open_browser(&address);
        }
        state.read_ahead();
        listen::serve(listener, routes::router(state)).await
    })
}

/// Opens the browser. The address has been printed, so a desktop without an opener loses nothing.
fn open_browser(address: &str) {
    let opener = match std::env::consts::OS {
        "macos" => "open",
        "windows" => "explorer",
        _ => "xdg-open",
    };
    let started =
        Command::new(opener).arg(address).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    if let Err(error) = started {
        output::note(&format!("{opener} could not be started ({error}): open the address by hand."));
    }
}
