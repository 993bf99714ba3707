//! Standard output for results, standard error for everything else. A reader that went away is no failure of the run.

use headroom_record::atomic::FileError;
use headroom_report::printable::printable;
use std::io::{self, ErrorKind, Write};
use std::path::Path;

/// Prints a result; control characters, which can come from names in a trace, are written out. The reader of a pipe may
/// have left (`| head -1`); a full disk behind a redirection is an error.
pub fn result(text: &str) -> Result<(), FileError> {
    exactly(&printable(text))
}

/// Prints what another program reads byte by byte: a script, a patch.
pub fn exactly(text: &str) -> Result<(), FileError> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(FileError::new("write", Path::new("standard output"))(error))
        }
        _ => Ok(()),
    }
}

/// Prints a line for the person who waits; where nobody can read it, nothing is lost.
pub fn note(line: &str) {
    let _ = writeln!(io::stderr().lock(), "{}", printable(line));
}
