//! Runs of the binary that the tests share.

#[path = "../common/made_up_peaks.rs"]
mod made_up_peaks;

use headroom_record::atomic::write_json;
use headroom_record::device::DEVICE_FILE;
pub use made_up_peaks::made_up_peaks;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The binary, with made-up peaks saved where it looks for them.
pub fn headroom() -> Command {
    static HOME: OnceLock<TempDir> = OnceLock::new();
    let home = HOME.get_or_init(|| {
        let home = tempfile::tempdir().unwrap();
        write_json(&home.path().join(DEVICE_FILE), &made_up_peaks()).unwrap();
        home
    });
    let mut command = Command::new(env!("CARGO_BIN_EXE_headroom"));
    command.env("HEADROOM_HOME", home.path());
    command
}

pub struct Run {
    pub folder: PathBuf,
    pub output: Output,
    pub took: Duration,
    _place: TempDir,
}

impl Run {
    pub fn of(arguments: &str) -> Run {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("run");
        let started = Instant::now();
        let output = headroom().args(arguments.split(' ')).arg("--output-dir").arg(&folder).output().unwrap();
        Run { folder, took: started.elapsed(), output, _place: place }
    }

    /// A run that must succeed.
    pub fn done(arguments: &str) -> Run {
        let run = Run::of(arguments);
        assert!(run.output.status.success(), "{}", said(&run.output));
        run
    }

    pub fn json(&self, name: &str) -> Value {
        let text = fs::read_to_string(self.folder.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    pub fn names(&self) -> Vec<String> {
        names_in(&self.folder)
    }

    /// The only file whose name has this prefix and suffix.
    pub fn only(&self, begins: &str, ends: &str) -> PathBuf {
        let found: Vec<String> =
            self.names().into_iter().filter(|name| name.starts_with(begins) && name.ends_with(ends)).collect();
        assert_eq!(found.len(), 1, "{begins}…{ends}: {found:?}");
        self.folder.join(&found[0])
    }
}

pub fn names_in(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

pub fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Version 1 of tiny, profiled.
pub fn tiny() -> &'static Run {
    static RUN: OnceLock<Run> = OnceLock::new();
    RUN.get_or_init(|| Run::done("profile --size tiny --passes none --num-steps 12"))
}

/// Nano with its defaults, profiled, with clipped gradients and two micro-batches per step.
pub fn nano() -> &'static Run {
    static RUN: OnceLock<Run> = OnceLock::new();
    RUN.get_or_init(|| {
        Run::done("profile --size nano --num-steps 20 --clip 1 --gradient-accumulation-steps 2 --log-interval 100")
    })
}
