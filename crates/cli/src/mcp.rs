//! `headroom mcp [FOLDER…]`: answers an agent over the Model Context Protocol on standard input and output.
//!
//! Every tool is a command of this same program, run as a separate process ([`command`]) on paths inside the given
//! folders ([`folders`]). Its document is cut to a bounded answer ([`bounds`]).

mod allowed;
mod bounds;
mod command;
mod folders;
mod in_memory;
mod kept;
mod lines;
mod runs_here;
mod schemas;
mod server;
mod tools;

use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use rmcp::service::{QuitReason, ServerInitializeError, ServiceExt};

use crate::{output, signals};
use allowed::Allowed;
use folders::Folders;
pub use in_memory::InMemory;
use lines::BoundedLines;
use server::Server;

/// Serve an agent over the Model Context Protocol: analyze, compare, explain, lint, optimize (dry run) and runs as tools.
///
/// Reads from standard input and writes to standard output, as clients expect. Changes nothing, and reads nothing outside the
/// folders. docs/agents.md has settings for the usual clients.
#[derive(clap::Args)]
pub struct Arguments {
    /// Folders that may be read; relative paths start at the first [default: the working folder]
    folders: Vec<PathBuf>,
    /// Let `optimize` run this command, exactly these words (repeatable): --allow-run "python train.py"
    #[arg(long, value_name = "COMMAND", num_args = 0..=1, default_missing_value = "")]
    allow_run: Vec<String>,
}

pub fn run(arguments: Arguments) -> Result<ExitCode> {
    let folders = Folders::new(&arguments.folders)?;
    let allowed = Allowed::new(&arguments.allow_run)?;
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()
        .context("cannot start the server's runtime")?;
    let code = runtime.block_on(serve(Server::new(folders, allowed, program)));
    // Standard input may never end, so the thread that reads it is not joined.
    runtime.shutdown_background();
    code
}

/// Answers until the client leaves or a signal asks the server to stop.
async fn serve(server: Server) -> Result<ExitCode> {
    let (stop, stopped) = tokio::sync::oneshot::channel();
    let stop = std::sync::Mutex::new(Some(stop));
    let interrupt = signals::listen(move || {
        if let Some(stop) = stop.lock().ok().and_then(|mut stop| stop.take()) {
            // Fails only if the client has left and nothing waits any more.
            let _ = stop.send(());
        }
    })?;
    let talk = async {
        let (input, answers) = rmcp::transport::stdio();
        let input = BoundedLines::new(input, output::note);
        let talking = match server.clone().serve((input, answers)).await {
            Ok(talking) => talking,
            Err(ServerInitializeError::ConnectionClosed(_)) => return Ok(()),
            Err(error) => return Err(anyhow::anyhow!("the client did not start the protocol correctly: {error}")),
        };
        match talking.waiting().await {
            Ok(QuitReason::JoinError(error)) | Err(error) => Err(anyhow::anyhow!("the server ended: {error}")),
            Ok(_) => Ok(()),
        }
    };
    if std::io::stdin().is_terminal() {
        output::note("waiting for a client on standard input; docs/agents.md shows how to set up clients");
    }
    tokio::select! {
        talked = talk => talked?,
        _ = stopped => {}
    }
    server.rest().await;
    Ok(interrupt.exit_code())
}

#[cfg(test)]
mod tests;
