//! The language server for lint: findings while typing, fixes, rule pages, and measured costs beside the line.
//!
//! One thread does all the work, in the order of the messages; another only receives messages, so that a newer text or
//! a cancellation is seen before the next piece of work begins.

#![allow(
    clippy::mutable_key_type,
    reason = "the protocol's edits are by `Uri`, whose cell keeps where its parts begin and does not enter its hash"
)]

mod abilities;
mod actions;
mod cells;
mod checked;
mod diagnostics;
mod documents;
mod hover;
mod notebook;
mod notifications;
mod panics;
mod queue;
mod requests;
mod server;
mod session;
mod settings;
mod text;
mod traces;
mod uri;
mod workspace;

#[cfg(test)]
mod tests;

use std::path::PathBuf;

use headroom_lint::lint_within;
use lsp_server::Connection;

use server::Server;
use settings::Paths;
pub use settings::Settings;

/// How a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The client sent `exit` after `shutdown`.
    Asked,
    /// The client disconnected, or sent `exit` without `shutdown`.
    Left,
}

impl Settings {
    /// Settings from the command line: they apply where the client sets nothing.
    pub fn given(select: Vec<String>, ignore: Vec<String>, pedantic: bool, trace: Vec<PathBuf>) -> Settings {
        Settings {
            select: Some(select),
            ignore: Some(ignore),
            pedantic: Some(pedantic),
            trace: Some(Paths::Several(trace)),
        }
    }
}

/// Serves the client behind a connection until one of the two ends it.
pub fn serve(connection: Connection, settings: Settings) -> Ending {
    let lint = |question: &workspace::Question| lint_within(question.inputs, question.projects, &question.selection);
    session::run(Server::new(connection, settings, Box::new(lint)))
}

/// Serves the client on standard input and output; an error if a message could not be read.
pub fn serve_standard_streams(settings: Settings) -> std::io::Result<Ending> {
    let (connection, threads) = Connection::stdio();
    let ending = serve(connection, settings);
    threads.join()?;
    Ok(ending)
}
