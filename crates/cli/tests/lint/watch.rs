//! `lint --watch` runs again when a file changes, and ends on Ctrl-C.

#![cfg(unix)]

use super::{SCRIPT, folder_with};
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(30);

#[test]
fn a_change_is_seen_and_an_interrupt_ends_it() {
    let folder = folder_with(SCRIPT);
    let mut child = Command::new(env!("CARGO_BIN_EXE_headroom"))
        .args(["lint", "--watch", "--select", "TP501"])
        .current_dir(folder.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("headroom starts");
    let (sender, lines) = mpsc::channel();
    let stdout = BufReader::new(child.stdout.take().expect("a pipe"));
    std::thread::spawn(move || {
        for line in stdout.lines().map_while(Result::ok) {
            let _ = sender.send(line);
        }
    });
    let next_summary = || loop {
        let line = lines.recv_timeout(PATIENCE).expect("a summary");
        if line.contains(" in 1 file") {
            return line;
        }
    };
    assert!(next_summary().starts_with("1 finding in 1 file"));
    fs::write(folder.path().join("train.py"), SCRIPT.replace("set_to_none=False", "set_to_none=True")).unwrap();
    assert_eq!(next_summary(), "nothing found in 1 file");
    let interrupt = |id: u32| Command::new("kill").args(["-INT", &id.to_string()]).status().expect("kill starts");
    assert!(interrupt(child.id()).success());
    assert_eq!(child.wait().expect("it ends").code(), Some(130));
}
