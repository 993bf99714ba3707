//! A folder to run the command in, and the results.

use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A model that takes a few milliseconds per step.
pub const SMALL: &str = "--size nano --batch-size 2 --seq-len 16";

/// A temporary folder: the command's working directory, with its own home.
pub struct Place(TempDir);

pub struct Done {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Place {
    pub fn new() -> Place {
        Place(tempfile::tempdir().unwrap())
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub fn write(&self, name: &str, bytes: impl AsRef<[u8]>) {
        fs::write(self.path(name), bytes).unwrap();
    }

    pub fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    pub fn json(&self, name: &str) -> Value {
        serde_json::from_slice(&self.read(name)).unwrap()
    }

    /// Names in the folder itself, without the command's home.
    pub fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.0.path()).unwrap();
        let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.retain(|name| name != "home");
        names.sort();
        names
    }

    /// Copies a stored case (weights, a batch, and PyTorch's results) here under its own name.
    pub fn copy_case(&self, name: &str) {
        let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../training/tests/data").join(name);
        copy_folder(&from, &self.path(name));
    }

    pub fn copy(&self, from: &str, to: &str) {
        copy_folder(&self.path(from), &self.path(to));
    }

    /// The arguments are split at spaces.
    pub fn command(&self, line: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_headroom"));
        command.args(line.split_whitespace());
        self.at_home(&mut command);
        command
    }

    /// A shell's command line, in which `$HEADROOM` is the binary.
    pub fn shell(&self, line: &str) -> Done {
        let mut command = Command::new("sh");
        command.args(["-c", line]).env("HEADROOM", env!("CARGO_BIN_EXE_headroom"));
        self.at_home(&mut command);
        Done::of(command.output().unwrap())
    }

    fn at_home(&self, command: &mut Command) {
        command.current_dir(self.0.path()).env("HEADROOM_HOME", self.path("home")).stdin(Stdio::null());
    }

    pub fn run(&self, line: &str) -> Done {
        let done = Done::of(self.command(line).output().unwrap());
        assert!(!done.stderr.contains("panicked"), "{line}\n{}", done.stderr);
        done
    }

    pub fn succeeds(&self, line: &str) -> Done {
        let done = self.run(line);
        assert_eq!(done.code, Some(0), "{line}\n{}", done.stderr);
        done
    }

    /// Expects one clear error with these words, exit code 2, and no new files.
    pub fn refuses(&self, line: &str, words: &[&str]) {
        let before = self.names();
        let done = self.run(line);
        done.is_error(2, line, words);
        assert_eq!(self.names(), before, "{line} leaves something behind");
    }

    pub fn start(&self, line: &str) -> Running {
        let child = self.command(line).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        Running(Some(child))
    }

    /// Starts it with standard error in a file, which can be read meanwhile.
    pub fn start_with_errors_in(&self, line: &str, file: &str) -> Running {
        let errors = fs::File::create(self.path(file)).unwrap();
        Running(Some(self.command(line).stdout(Stdio::piped()).stderr(errors).spawn().unwrap()))
    }
}

impl Done {
    fn of(output: Output) -> Done {
        Done {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    pub fn is_error(&self, code: i32, line: &str, words: &[&str]) {
        assert_eq!(self.code, Some(code), "{line}\n{}", self.stderr);
        let errors: Vec<&str> = self.stderr.lines().filter(|line| line.starts_with("error: ")).collect();
        assert_eq!(errors.len(), 1, "{line}\n{}", self.stderr);
        for word in words {
            assert!(self.stderr.contains(word), "{line}\n`{word}` is not in: {}", self.stderr);
        }
    }

    /// Every line of stdout as JSON.
    pub fn objects(&self) -> Vec<Value> {
        let parse = |line: &str| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        self.stdout.lines().map(parse).collect()
    }

    /// The number of objects in the array on stdout.
    pub fn objects_in_array(&self) -> usize {
        serde_json::from_str::<Vec<Value>>(&self.stdout).unwrap().len()
    }

    /// The losses from `--json`, in step order.
    pub fn losses(&self) -> Vec<f64> {
        self.objects().iter().filter_map(|object| object["loss"].as_f64()).collect()
    }

    pub fn summary(&self) -> Value {
        self.objects().last().unwrap()["summary"].clone()
    }
}

/// A run in the background; killed if the test ends before it.
pub struct Running(Option<Child>);

impl Running {
    pub fn of(child: Child) -> Running {
        Running(Some(child))
    }

    pub fn kill(mut self) {
        let mut child = self.0.take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Waits for it to end on its own.
    pub fn ends(mut self) -> Done {
        Done::of(self.0.take().unwrap().wait_with_output().unwrap())
    }

    /// Interrupts it as Ctrl-C does.
    pub fn interrupt(self) -> Done {
        self.signal("INT")
    }

    pub fn signal(mut self, name: &str) -> Done {
        let child = self.0.take().unwrap();
        let sent = Command::new("kill").args([&format!("-{name}"), &child.id().to_string()]).status().unwrap();
        assert!(sent.success());
        Done::of(child.wait_with_output().unwrap())
    }

    /// Requests termination twice within an instant.
    pub fn terminate_twice(mut self) -> Done {
        let child = self.0.take().unwrap();
        let id = child.id().to_string();
        let sent = Command::new("sh").args(["-c", &format!("kill -TERM {id}; kill -TERM {id}")]).status().unwrap();
        assert!(sent.success());
        Done::of(child.wait_with_output().unwrap())
    }

    /// Waits for a file that it creates.
    pub fn has_written(&self, path: &Path) {
        self.waits_until(|| path.exists());
    }

    pub fn waits_until(&self, come: impl Fn() -> bool) {
        let started = Instant::now();
        while !come() {
            assert!(started.elapsed() < Duration::from_secs(180), "it does not come");
            sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

/// Asserts equal lengths, and every pair within `tolerance`.
pub fn assert_near(have: &[f64], want: &[f64], tolerance: f64) {
    assert_eq!(have.len(), want.len());
    for (index, (have, want)) in have.iter().zip(want).enumerate() {
        assert!((have - want).abs() <= tolerance, "number {index}: {have} against {want}");
    }
}
