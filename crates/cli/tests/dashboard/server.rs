//! Starts a `headroom serve` for a test, with the runs it shows.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::http::{Response, request};

pub struct Server {
    process: Child,
    pub port: u16,
    pub token: String,
}

impl Server {
    /// Starts it in a folder, with arguments after `serve`.
    pub fn start(folder: &Path, arguments: &[&str]) -> Server {
        let mut process = headroom(folder).arg("serve").args(arguments).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("http://127.0.0.1:").unwrap_or_else(|| panic!("not an address: {line}"));
        let (port, token) = address.split_once('/').unwrap();
        Server { port: port.parse().unwrap(), token: token.into(), process }
    }

    pub fn address(&self) -> String {
        format!("http://127.0.0.1:{}/{}", self.port, self.token)
    }

    pub fn host(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub fn cookie(&self) -> String {
        format!("headroom_{}={}", self.port, self.token)
    }

    /// The server's memory.
    pub fn resident_mebibytes(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches("kB").trim().parse::<u64>().unwrap() >> 10
    }

    /// A request from a logged-in browser.
    pub fn get(&self, path: &str) -> Response {
        request(self.port, "GET", path, &[("Host", &self.host()), ("Cookie", &self.cookie())], b"")
    }

    pub fn json(&self, path: &str) -> Value {
        let response = self.get(path);
        assert_eq!(response.status, 200, "{path}: {}", response.text());
        response.json()
    }

    /// The id of the run or trace with this name.
    pub fn id(&self, name: &str) -> String {
        let list = self.json("/api/runs");
        let found = list["runs"].as_array().unwrap().iter().find(|run| run["name"] == name);
        let found = found.unwrap_or_else(|| panic!("{name} is not in {list}"));
        found["id"].as_str().unwrap().to_string()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The command, with its own cache and registry.
pub fn headroom(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_headroom"));
    command.current_dir(folder).env("HEADROOM_HOME", folder.join("home"));
    command
}

/// Runs the command to its end.
pub fn run(folder: &Path, arguments: &[&str]) {
    let output = headroom(folder).args(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// The trace of a PyTorch script that the trace crate's tests also use.
pub fn torch_trace(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../trace/tests/data").join(name)
}

/// A dotted key in a JSON file.
pub fn figure(file: &Path, key: &str) -> Value {
    let text = std::fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let value: Value = serde_json::from_str(&text).unwrap();
    at(&value, key).clone()
}

pub fn at<'a>(value: &'a Value, key: &str) -> &'a Value {
    key.split('.').fold(value, |value, part| &value[part])
}
