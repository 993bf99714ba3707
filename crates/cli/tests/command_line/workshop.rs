//! The documents of `docs/workshop`: every command in them is run, at a small size.

use crate::home::place_with_peaks;
use std::fs;
use std::path::Path;

/// The `headroom` lines of the fenced `sh` blocks, in order.
fn commands(document: &str) -> Vec<String> {
    let mut found = vec![];
    let mut inside = false;
    for line in document.lines() {
        match line {
            "```sh" => inside = true,
            "```" => inside = false,
            line if inside && line.starts_with("headroom ") => found.push(line.to_string()),
            line if inside => assert!(line.is_empty() || line.starts_with('#'), "not a command of ours: {line}"),
            _ => {}
        }
    }
    found
}

/// The same command on the smallest model and for few steps: seconds become fractions of one.
pub fn small(command: &str) -> String {
    let command = command.split(" #").next().unwrap_or(command);
    let mut words: Vec<String> = vec![];
    let mut before = "";
    for word in command.split_whitespace() {
        let smaller = match (before, word) {
            ("--size", _) => "nano",
            ("--num-steps", _) => "10",
            ("--batch-size", _) => "2",
            ("--seq-len", _) => "32",
            ("--batch", _) => "2,4",
            ("--seq", _) => "16,32",
            ("--curve-steps", _) => "3",
            (_, "tiny") => "nano",
            (_, "small" | "medium") => "",
            _ => word,
        };
        words.push(smaller.into());
        before = word;
    }
    let mut line = words.join(" ").replacen("headroom", "$HEADROOM", 1);
    // Commands that take long, or whose answer depends on how busy the machine is, get shorter or looser flags.
    if line.contains(" study ") && !line.contains("--num-steps") {
        line += " --num-steps 10";
    }
    if line.contains(" optimize ") {
        line += " --rounds 4 --time 1 --curve-steps 2 --batch-size 2 --seq-len 16 --min-speedup 0.001";
    }
    if line.contains(" regress ") {
        line += " --threshold 100000";
    }
    line
}

/// The experiment at its smallest; `line` is one of its commands, or another.
pub fn short_experiment(line: &str) -> &'static str {
    match (line.contains(" k1 "), line.contains("--model tree"), line.contains("--speed") || line.contains("--cost")) {
        (true, true, true) => " --branching 2 --k 1 --time 1",
        (true, true, false) => " --branching 2 --k 1 --steps 2 --seeds 1 --eval-batches 1",
        (true, false, false) => " --sources 1 --steps 3 --seeds 2 --eval-batches 1",
        _ => "",
    }
}

#[test]
fn every_command_of_the_workshop_runs() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/workshop");
    let mut documents: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    documents.retain(|path| path.extension().is_some_and(|kind| kind == "md"));
    documents.sort();
    assert!(documents.len() >= 5, "{documents:?}");
    // One place for all: later exercises compare with runs of earlier ones.
    let place = place_with_peaks();
    let mut run = 0;
    for document in documents {
        for command in commands(&fs::read_to_string(&document).unwrap()) {
            let line = small(&command) + short_experiment(&command);
            let done = place.shell(&line);
            // A ladder at toy size may well fail a gate, which is an answer too.
            let answers: &[i32] = if command.contains(" optimize") { &[0, 1] } else { &[0] };
            assert!(
                done.code.is_some_and(|code| answers.contains(&code)),
                "{}: {command}\nas {line}\n{}{}",
                document.display(),
                done.stdout,
                done.stderr
            );
            run += 1;
        }
    }
    assert!(run >= 15, "{run} commands");
}

#[test]
fn commands_are_made_small_and_stay_themselves() {
    let text = "text\n```sh\nheadroom study tiny small --versions v1 # all\n\n```\n```console\n$ headroom no\n```\n";
    assert_eq!(commands(text), ["headroom study tiny small --versions v1 # all"]);
    assert_eq!(small(&commands(text)[0]), "$HEADROOM study nano  --versions v1 --num-steps 10");
    assert_eq!(small("headroom train --size small --num-steps 50"), "$HEADROOM train --size nano --num-steps 10");
}
