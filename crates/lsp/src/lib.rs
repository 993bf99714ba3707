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
pub mod framing;
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

use std::io::{BufRead, Write};
use std::path::PathBuf;
use std::thread;

use headroom_lint::lint_within;
use lsp_server::{Connection, Message};

use framing::{FrameError, read_message};
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
pub fn serve_standard_streams(settings: Settings) -> Result<Ending, FrameError> {
    // Locked by the threads that use them.
    serve_streams(std::io::BufReader::new(std::io::stdin()), std::io::stdout(), settings)
}

/// Serves the client behind two streams; an error if a message could not be read.
fn serve_streams(
    mut from_client: impl BufRead + Send + 'static,
    mut to_client: impl Write + Send + 'static,
    settings: Settings,
) -> Result<Ending, FrameError> {
    let (connection, Connection { sender, receiver }) = Connection::memory();
    let reader = thread::spawn(move || {
        while let Some(message) = read_message(&mut from_client)? {
            let is_exit = matches!(&message, Message::Notification(notification) if notification.method == "exit");
            if sender.send(message).is_err() || is_exit {
                break;
            }
        }
        Ok(())
    });
    let writer = thread::spawn(move || receiver.into_iter().try_for_each(|message| message.write(&mut to_client)));
    let ending = serve(connection, settings);
    let read = reader.join().unwrap_or(Ok(()));
    // A client that has left reads nothing.
    let _ = writer.join();
    read.map(|()| ending)
}
