//! Results that cannot be written are an error for every command that prints; a closed pipe is not.

use crate::place::Place;

const TRACE: &str = r#"[{"ph":"X","cat":"cpu_op","name":"aten::mm","pid":1,"tid":1,"ts":1,"dur":9}]"#;

fn with_files() -> Place {
    let place = Place::new();
    place.write("trace.json", TRACE);
    place
        .write("train.py", "import torch\n\n\ndef f(o, l):\n    for x in l:\n        o.zero_grad(set_to_none=False)\n");
    place
}

const COMMANDS: [&str; 17] = [
    "lint train.py",
    "lint train.py --format json",
    "lint train.py --format sarif",
    "lint train.py --diff --unsafe-fixes",
    "lint - --fix < train.py",
    "explain",
    "explain TP101",
    "completions bash",
    "workshop sheet 2",
    "analyze trace.json",
    "analyze trace.json --format html",
    "compare trace.json trace.json",
    "runs list",
    "runs export",
    "train --size nano --show-tree",
    "--help",
    "--version",
];

#[test]
fn a_full_disk_behind_standard_output_is_told_by_every_command() {
    let place = with_files();
    for command in COMMANDS {
        let done = place.shell(&format!("$HEADROOM {command} > /dev/full"));
        done.is_error(3, command, &["standard output"]);
    }
}

#[test]
fn a_reader_that_left_is_no_error_for_any_command() {
    let place = with_files();
    for command in COMMANDS {
        let done = place.shell(&format!("{{ sleep 0.05; $HEADROOM {command}; echo code $? >&2; }} | true"));
        // Findings give exit code 1, whether read or not.
        let codes: &[&str] = if command.starts_with("lint") { &["code 0", "code 1"] } else { &["code 0"] };
        assert!(codes.iter().any(|code| done.stderr.contains(code)), "{command}: {}", done.stderr);
    }
}
