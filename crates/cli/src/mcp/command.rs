//! A command of `headroom` as a process of its own: its result, its lines as progress, its end when nobody wants it any more.
//!
//! A tool is the command line's command: the same document, the same words in an error. A trace that takes minutes or all of
//! the memory is that process's business, and leaves the server able to answer.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::mpsc::UnboundedSender;

/// The most that a command may print.
const MOST_OUTPUT: u64 = 256 << 20;
/// The most that is kept of what it says to people; the last lines count.
const MOST_NOTES: usize = 400;
/// One line of it.
const MOST_LINE: usize = 4_000;
/// How long a command may take to end after it was asked to.
const PATIENCE: Duration = Duration::from_secs(5);
/// Silence after which the client is told that work goes on.
const SILENCE: Duration = Duration::from_secs(5);

/// How commands are started.
#[derive(Clone, Debug)]
pub struct Starter {
    pub program: PathBuf,
    pub folder: PathBuf,
}

/// The outcome of a command.
#[derive(Debug)]
pub struct Done {
    pub document: Value,
    /// Size of the document as it was printed.
    pub bytes: usize,
    pub notes: Vec<String>,
    pub exit_code: i32,
}

/// Why there is no document.
#[derive(Debug, PartialEq)]
pub enum Failure {
    /// In the words of the command line.
    Told(String),
    Cancelled,
}

impl Starter {
    /// Runs to the end, unless `cancelled` comes first. Every line for people is told as it comes.
    pub async fn run(
        &self,
        words: &[OsString],
        cancelled: impl Future<Output = ()>,
        tell: UnboundedSender<String>,
    ) -> Result<Done, Failure> {
        let mut child = self.start(words)?;
        let (Some(out), Some(err)) = (child.stdout.take(), child.stderr.take()) else {
            return Err(Failure::Told("the command has no output".into()));
        };
        let work = async {
            let (printed, notes) = tokio::join!(all_of(out), lines_of(err, &tell));
            (printed, notes, child.wait().await)
        };
        let finished = tokio::select! {
            finished = work => Some(finished),
            () = cancelled => None,
        };
        let Some((printed, notes, status)) = finished else {
            end(&mut child).await;
            return Err(Failure::Cancelled);
        };
        let status = status.map_err(|error| Failure::Told(format!("cannot tell how the command ended: {error}")))?;
        let printed = printed.map_err(|error| Failure::Told(format!("cannot read the command's output: {error}")))?;
        judged(printed, notes, status).await
    }

    fn start(&self, words: &[OsString]) -> Result<Child, Failure> {
        let mut command = Command::new(&self.program);
        command.args(words).current_dir(&self.folder).kill_on_drop(true);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let program: &Path = &self.program;
        command.spawn().map_err(|error| Failure::Told(format!("cannot start {}: {error}", program.display())))
    }
}

/// All that is printed, or an error beyond what can be kept.
async fn all_of(out: impl AsyncRead + Unpin) -> std::io::Result<Vec<u8>> {
    let mut printed = Vec::new();
    out.take(MOST_OUTPUT + 1).read_to_end(&mut printed).await?;
    if printed.len() as u64 > MOST_OUTPUT {
        return Err(std::io::Error::other(format!("it is longer than {} MiB", MOST_OUTPUT >> 20)));
    }
    Ok(printed)
}

/// Lines for people, told one by one; where none comes for a while, that it still runs.
async fn lines_of(err: impl AsyncRead + Unpin, tell: &UnboundedSender<String>) -> Vec<String> {
    // Whoever does not listen loses nothing.
    let tell = |line: String| drop(tell.send(line));
    let mut notes: Vec<String> = Vec::new();
    let mut reader = BufReader::new(err);
    let (mut line, mut silent) = (Vec::new(), Duration::ZERO);
    loop {
        match tokio::time::timeout(SILENCE, reader.read_until(b'\n', &mut line)).await {
            Err(_) => {
                silent += SILENCE;
                tell(format!("still running, no output for {} s", silent.as_secs()));
            }
            Ok(Ok(0) | Err(_)) if line.is_empty() => return notes,
            Ok(_) => {
                silent = Duration::ZERO;
                let text: String = String::from_utf8_lossy(&line).trim_end().chars().take(MOST_LINE).collect();
                line.clear();
                tell(text.clone());
                if notes.len() == MOST_NOTES {
                    notes.remove(0);
                }
                notes.push(text);
            }
        }
    }
}

/// A document is an answer whatever the exit code: 1 is a no, and 2 may come with what could be read.
async fn judged(printed: Vec<u8>, notes: Vec<String>, status: ExitStatus) -> Result<Done, Failure> {
    let bytes = printed.len();
    let parsed = tokio::task::spawn_blocking(move || serde_json::from_slice::<Value>(&printed)).await;
    match (parsed, status.code()) {
        (Ok(Ok(document)), Some(exit_code)) => Ok(Done { document, bytes, notes, exit_code }),
        (_, Some(_)) => Err(Failure::Told(error_in(&notes))),
        (_, None) => {
            Err(Failure::Told(format!("the command was killed from outside ({status})\n{}", error_in(&notes))))
        }
    }
}

/// From the last line that begins an error on, without the word itself.
fn error_in(notes: &[String]) -> String {
    let start = notes.iter().rposition(|line| line.starts_with("error: ")).unwrap_or(0);
    let said = notes[start..].join("\n");
    let said = said.strip_prefix("error: ").unwrap_or(&said).trim();
    if said.is_empty() { "the command ended without a result".to_string() } else { said.to_string() }
}

/// Asks it to end, so that it can end processes of its own, and does so itself where that takes too long.
async fn end(child: &mut Child) {
    #[cfg(unix)]
    if let Some(pid) = child.id().and_then(|id| i32::try_from(id).ok()).and_then(rustix::process::Pid::from_raw)
        && rustix::process::kill_process(pid, rustix::process::Signal::TERM).is_ok()
        && tokio::time::timeout(PATIENCE, child.wait()).await.is_ok()
    {
        return;
    }
    // Gone already, or about to be.
    let _ = child.kill().await;
}
