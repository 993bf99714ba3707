//! Runs every command in `docs/workshop` at a small size.

use crate::home::place_with_peaks;
use crate::place::Place;
use std::fs;
use std::path::{Path, PathBuf};

/// Kinds of command blocks, by the words after `sh`: `cargo xtask torch` runs those that need PyTorch; those for a GPU
/// are run by hand.
const RUN_HERE: [&str; 2] = ["```sh", "```sh cpu"];
const RUN_ELSEWHERE: [&str; 2] = ["```sh torch", "```sh h200"];

/// The `headroom` lines of the fenced blocks that begin with one of `fences`, in order.
fn commands(document: &str, fences: &[&str]) -> Vec<String> {
    let mut found = vec![];
    let (mut in_block, mut inside) = (false, false);
    for line in document.lines().map(str::trim) {
        if line.starts_with("```") {
            in_block = !in_block;
            let is_known = !line.starts_with("```sh") || RUN_HERE.contains(&line) || RUN_ELSEWHERE.contains(&line);
            assert!(is_known, "a block that no machine runs: {line}");
            inside = in_block && fences.contains(&line);
        } else if inside {
            let is_ours = line.starts_with("headroom ") || line.starts_with("python ");
            assert!(is_ours || line.is_empty() || line.starts_with('#'), "not a command of ours: {line}");
            found.extend(is_ours.then(|| line.split(" #").next().unwrap_or(line).trim().to_string()));
        }
    }
    found
}

/// Pages in working order: README, the numbered parts, the others.
fn pages() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/workshop");
    let mut pages: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    pages.retain(|path| path.extension().is_some_and(|kind| kind == "md"));
    let name = |path: &PathBuf| path.file_name().unwrap().to_string_lossy().into_owned();
    pages.sort_by_key(|path| (name(path) != "README.md", !name(path).starts_with(char::is_numeric), name(path)));
    pages
}

/// The same command on the smallest model and for few steps, so that it takes a fraction of a second.
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
    if command.contains(" k1 ") {
        // `short_experiment` adds its own.
        for flag in ["--steps", "--seeds", "--time"] {
            if let Some(at) = words.iter().position(|word| word == flag) {
                words.drain(at..(at + 2).min(words.len()));
            }
        }
    }
    let mut line = words.join(" ").replacen("headroom", "$HEADROOM", 1);
    // Slow commands, and those whose answer depends on the machine's load, get shorter or looser flags.
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

/// Flags for the smallest experiment if `line` is one of its commands, else nothing.
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
    let pages = pages();
    assert!(pages.len() >= 7, "{pages:?}");
    // One folder for all: later exercises compare with runs of earlier ones.
    let place = place_with_peaks();
    for script in fs::read_dir(pages[0].parent().unwrap()).unwrap().map(|entry| entry.unwrap().path()) {
        if script.extension().is_some_and(|kind| kind == "py") {
            fs::copy(&script, place.path(&script.file_name().unwrap().to_string_lossy())).unwrap();
        }
    }
    let mut run = 0;
    for page in pages {
        for command in commands(&fs::read_to_string(&page).unwrap(), &RUN_HERE) {
            let line = small(&command) + short_experiment(&command);
            let done = place.shell(&line);
            // A ladder at toy size may fail a gate, a script has findings, and toy runs are not the required ones.
            let may_say_no = [" optimize", " lint ", " workshop check "].iter().any(|name| command.contains(name));
            let answers: &[i32] = if may_say_no { &[0, 1] } else { &[0] };
            assert!(
                done.code.is_some_and(|code| answers.contains(&code)),
                "{}: {command}\nas {line}\n{}{}",
                page.display(),
                done.stdout,
                done.stderr
            );
            run += 1;
        }
    }
    assert!(run >= 15, "{run} commands");
}

/// Sheets contain the commands of their pages, including those for PyTorch and GPUs.
#[test]
fn every_command_of_a_record_sheet_stands_on_its_page() {
    let place = Place::new();
    for part in 0..=6 {
        let page =
            pages().into_iter().find(|path| path.file_name().unwrap().to_string_lossy().starts_with(&part.to_string()));
        let page = fs::read_to_string(page.unwrap_or_else(|| panic!("there is no page of part {part}"))).unwrap();
        let all = commands(&page, &[RUN_HERE, RUN_ELSEWHERE].concat());
        let sheet = place.succeeds(&format!("workshop sheet {part}")).stdout;
        let named = commands(&sheet, &RUN_HERE);
        assert!(!named.is_empty(), "{sheet}");
        for command in named {
            assert!(all.contains(&command), "part {part} has no `{command}`, only {all:#?}");
        }
    }
}

#[test]
fn commands_are_made_small_and_stay_themselves() {
    let text = "text\n```sh\nheadroom study tiny small --versions v1 # all\n\n```\n```console\n$ headroom no\n```\n";
    assert_eq!(commands(text, &RUN_HERE), ["headroom study tiny small --versions v1"]);
    assert_eq!(small(&commands(text, &RUN_HERE)[0]), "$HEADROOM study nano  --versions v1 --num-steps 10");
    assert_eq!(small("headroom k1 --seeds 3 --time 30 --output-dir a"), "$HEADROOM k1 --output-dir a");
    assert_eq!(small("headroom train --size small --num-steps 50"), "$HEADROOM train --size nano --num-steps 10");
}
