//! Standard output for results, standard error for everything else. A closed pipe is not a failure of the run.

pub mod colour;
pub mod live;

use headroom_engine::ranks::launch::has_launchers_terminal;
use headroom_record::atomic::FileError;
use headroom_report::printable::printable;
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::path::Path;
use std::sync::OnceLock;

/// This process's rank among those that train one model; only rank 0 prints.
static RANK: OnceLock<usize> = OnceLock::new();

/// Makes this process print as the given rank from now on.
pub fn set_output_rank(rank: usize) {
    let _ = RANK.set(rank);
}

fn is_silent() -> bool {
    RANK.get().is_some_and(|rank| *rank > 0)
}

/// Whether people see this stream while it is written. A rank's terminal may be its launcher's own, and its text end up
/// in a file.
pub fn is_seen(stream: &impl IsTerminal) -> bool {
    stream.is_terminal() && !has_launchers_terminal(|name| std::env::var(name).ok())
}

/// Prints a result for people, in colour on a terminal.
pub fn text(text: &str) -> Result<(), FileError> {
    match colour::is_on() {
        true => exactly(&colour::painted(&printable(text))),
        false => result(text),
    }
}

/// Prints a unified diff for people, in colour on a terminal.
pub fn difference(text: &str) -> Result<(), FileError> {
    match colour::is_on() {
        true => exactly(&colour::painted_difference(&printable(text))),
        false => result(text),
    }
}

/// Prints a result. Control characters, which can come from names in a trace, are escaped. The reader of a pipe may
/// have left (`| head -1`), but a full disk behind a redirection is an error.
pub fn result(text: &str) -> Result<(), FileError> {
    exactly(&printable(text))
}

/// Prints output that another program reads byte by byte: a script, a patch.
pub fn exactly(text: &str) -> Result<(), FileError> {
    if is_silent() {
        return Ok(());
    }
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(FileError::new("write", Path::new("standard output"))(error))
        }
        _ => Ok(()),
    }
}

/// Prints a line for the waiting user; if it cannot be written, nothing is lost.
pub fn note(line: &str) {
    if !is_silent() {
        live::above(|| drop(writeln!(io::stderr().lock(), "{}", printable(line))));
    }
}

/// Prints why this process ends, on any rank.
pub fn error(message: &str) {
    let who = RANK.get().map_or(String::new(), |rank| format!("rank {rank}: "));
    let line = format!("{who}error: {message}");
    let _ = writeln!(io::stderr().lock(), "{}", printable(&line));
}
