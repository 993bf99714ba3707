//! One side of a race: a process that answers `tiny v1-fp32 10` (ten timed steps) with one line of JSON.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::process;

/// The interface that a race needs from a side; tests provide a stand-in for the process.
pub trait Contestant {
    fn turn(&mut self, steps: usize) -> Result<Answer>;
}

#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// Median of the steps of this turn.
    pub ms_per_step: f64,
    /// Growth of the process's peak resident memory since its start, in MiB.
    pub peak_mb: f64,
    pub loss: f64,
    /// The whole answer, including what the side reports about itself, such as its version.
    pub all: Value,
}

/// A server process that runs one size and variant, stopped while it is not its turn.
pub struct Server {
    name: String,
    /// Size and variant: the beginning of every request.
    race: String,
    child: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Server {
    pub fn start(name: &str, command: &mut Command, size: &str, variant: &str) -> Result<Server> {
        let spelled = process::spell(command);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {name}: `{spelled}`"))?;
        let (Some(requests), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
            bail!("{name} has no standard input and output");
        };
        let server = Server {
            name: name.to_string(),
            race: format!("{size} {variant}"),
            child,
            requests,
            answers: BufReader::new(answers),
        };
        server.signal("STOP")?;
        Ok(server)
    }

    /// Pauses or resumes the process: threads that spin while waiting would slow the other side down.
    fn signal(&self, signal: &str) -> Result<()> {
        let line = format!("kill -{signal} {}", self.child.id());
        let output = Command::new("sh").args(["-c", &line]).output().context("cannot start sh")?;
        if !output.status.success() {
            bail!("{} cannot be signalled: {}", self.name, String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(())
    }
}

impl Contestant for Server {
    fn turn(&mut self, steps: usize) -> Result<Answer> {
        let request = format!("{} {steps}", self.race);
        let mut line = String::new();
        self.signal("CONT")?;
        let exchanged = writeln!(self.requests, "{request}")
            .and_then(|()| self.requests.flush())
            .and_then(|()| self.answers.read_line(&mut line));
        if !exchanged.is_ok_and(|bytes| bytes > 0) {
            let status = self.child.wait().with_context(|| format!("{} is lost", self.name))?;
            bail!("{} ended with {status} instead of answering `{request}`", self.name);
        }
        self.signal("STOP")?;
        parse(&line).with_context(|| format!("{} asked `{request}`", self.name))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Killing fails only if the process is already gone.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn parse(line: &str) -> Result<Answer> {
    let line = line.trim();
    let all: Value =
        serde_json::from_str(line).with_context(|| format!("answered something other than JSON: {line}"))?;
    if let Some(error) = all["error"].as_str() {
        bail!("answered that it failed: {error}");
    }
    let number = |key: &str| {
        let value = all[key].as_f64().with_context(|| format!("answered without `{key}`: {line}"))?;
        if !value.is_finite() || value < 0.0 {
            bail!("answered with {key} = {value}");
        }
        Ok(value)
    };
    let ms_per_step = number("ms_per_step")?;
    if ms_per_step == 0.0 {
        bail!("answered with ms_per_step = 0");
    }
    Ok(Answer { ms_per_step, peak_mb: number("peak_mb")?, loss: number("loss")?, all })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn served(script: &str) -> Server {
        Server::start("the fake", Command::new("sh").args(["-c", script]), "tiny", "v1-fp32").expect("sh starts")
    }

    fn error_of(script: &str) -> String {
        format!("{:#}", served(script).turn(3).expect_err("the turn fails"))
    }

    #[test]
    fn a_server_is_asked_by_line_and_answers_every_turn() {
        // The time in the answer is derived from the number of steps requested.
        let script = r#"while read -r size variant steps; do
            echo "{\"size\": \"$size\", \"variant\": \"$variant\", \"ms_per_step\": $steps.5, \"peak_mb\": 12, \"loss\": 6.9}"
        done"#;
        let mut server = served(script);
        let first = server.turn(3).expect("an answer");
        assert_eq!((first.ms_per_step, first.peak_mb, first.loss), (3.5, 12.0, 6.9));
        assert_eq!((&first.all["size"], &first.all["variant"]), (&"tiny".into(), &"v1-fp32".into()));
        assert_eq!(server.turn(7).expect("another").ms_per_step, 7.5);
    }

    #[test]
    fn a_server_that_is_not_its_turn_stands_still() {
        let server = served("while :; do :; done");
        let state = || {
            let id = server.child.id().to_string();
            process::capture("ps", &["-o", "stat=", "-p", &id]).expect("ps knows the process")
        };
        // The signal is sent without waiting for its effect.
        let stopped = (0..100).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(10));
            state().starts_with('T')
        });
        assert!(stopped, "the state is {}", state());
    }

    #[test]
    fn a_failure_the_server_reports_is_passed_on() {
        let said = error_of(r#"read -r line; echo '{"size": "tiny", "error": "OutOfMemory: 3 GiB"}'"#);
        assert_eq!(said, "the fake asked `tiny v1-fp32 3`: answered that it failed: OutOfMemory: 3 GiB");
    }

    #[test]
    fn a_server_that_ends_is_named_with_its_status() {
        let said = error_of("read -r line; exit 7");
        assert_eq!(said, "the fake ended with exit status: 7 instead of answering `tiny v1-fp32 3`");
    }

    #[test]
    fn answers_that_are_no_result_are_refused() {
        for (line, reason) in [
            ("warming up", "answered something other than JSON: warming up"),
            (r#"{"peak_mb": 1, "loss": 1}"#, "answered without `ms_per_step`"),
            (r#"{"ms_per_step": 0, "peak_mb": 1, "loss": 1}"#, "answered with ms_per_step = 0"),
            (r#"{"ms_per_step": 5, "peak_mb": -1, "loss": 1}"#, "answered with peak_mb = -1"),
        ] {
            let said = format!("{:#}", parse(line).expect_err(line));
            assert!(said.starts_with(reason), "{said}");
        }
    }
}
