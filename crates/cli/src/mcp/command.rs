//! Runs a `headroom` command as a separate process: collects its result, forwards its lines as progress, and ends it
//! when it is no longer wanted.
//!
//! A tool is the same command as on the command line, with the same document and the same error messages. A trace that
//! takes minutes or all of the memory only affects that process, and the server can still answer.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{Child, Command};
use tokio::sync::mpsc::UnboundedSender;

use headroom_scripts::printed::Lines;

/// The most bytes that a command may print.
const MOST_OUTPUT: u64 = 256 << 20;
/// The most lines of its messages that are kept; the last ones count.
const MOST_NOTES: usize = 400;
/// The most bytes of one such line.
const MOST_LINE: usize = 4_000;
/// How long a command may take to end after being asked to.
const PATIENCE: Duration = Duration::from_secs(5);
/// Silence after which the client is told that work continues.
const SILENCE: Duration = Duration::from_secs(5);

/// How to start commands.
#[derive(Clone, Debug)]
pub struct Starter {
    pub program: PathBuf,
    pub folder: PathBuf,
}

/// The outcome of a command.
#[derive(Debug)]
pub struct Done {
    pub document: Value,
    /// Size of the document as printed.
    pub bytes: usize,
    pub notes: Vec<String>,
    pub exit_code: i32,
}

/// Why there is no document.
#[derive(Debug, PartialEq)]
pub enum Failure {
    /// The message, as the command line words it.
    Told(String),
    Cancelled,
}

impl Starter {
    /// Runs to the end, unless `cancelled` comes first. Forwards every message line as it comes.
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

/// Everything that is printed, or an error beyond the limit.
async fn all_of(out: impl AsyncRead + Unpin) -> std::io::Result<Vec<u8>> {
    let mut printed = Vec::new();
    out.take(MOST_OUTPUT + 1).read_to_end(&mut printed).await?;
    if printed.len() as u64 > MOST_OUTPUT {
        return Err(std::io::Error::other(format!("it is longer than {} MiB", MOST_OUTPUT >> 20)));
    }
    Ok(printed)
}

/// Forwards message lines one by one; after some silence, reports that the command is still running.
async fn lines_of(mut err: impl AsyncRead + Unpin, tell: &UnboundedSender<String>) -> Vec<String> {
    // A closed channel is fine: nothing is lost.
    let tell = |line: String| drop(tell.send(line));
    let mut notes: VecDeque<String> = VecDeque::new();
    let mut hear = |line: String| {
        tell(line.clone());
        if notes.len() == MOST_NOTES {
            notes.pop_front();
        }
        notes.push_back(line);
    };
    let mut lines = Lines::new(MOST_LINE);
    let (mut bytes, mut silent) = (vec![0; 16 << 10], Duration::ZERO);
    loop {
        match tokio::time::timeout(SILENCE, err.read(&mut bytes)).await {
            Err(_) => {
                silent += SILENCE;
                tell(format!("still running, no output for {} s", silent.as_secs()));
            }
            Ok(Ok(0) | Err(_)) => break,
            Ok(Ok(read)) => {
                silent = Duration::ZERO;
                lines.add(&bytes[..read], &mut hear);
            }
        }
    }
    lines.rest().into_iter().for_each(hear);
    notes.into()
}

/// A document is an answer whatever the exit code: 1 means no, and 2 may come with the parts that could be read.
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

/// The text from the last line that starts an error, without the word itself.
fn error_in(notes: &[String]) -> String {
    let start = notes.iter().rposition(|line| line.starts_with("error: ")).unwrap_or(0);
    let said = notes[start..].join("\n");
    let said = said.strip_prefix("error: ").unwrap_or(&said).trim();
    if said.is_empty() { "the command ended without a result".to_string() } else { said.to_string() }
}

/// Asks the process to end, so that it can end its own children, and kills it if that takes too long.
async fn end(child: &mut Child) {
    #[cfg(unix)]
    if let Some(pid) = child.id().and_then(|id| i32::try_from(id).ok()).and_then(rustix::process::Pid::from_raw)
        && rustix::process::kill_process(pid, rustix::process::Signal::TERM).is_ok()
        && tokio::time::timeout(PATIENCE, child.wait()).await.is_ok()
    {
        return;
    }
    // The process has ended or is about to.
    let _ = child.kill().await;
}
