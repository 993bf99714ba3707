//! One convention for all commands: `--json` means `--format json`, standard output contains only the document, and
//! exit codes mean the same everywhere. A command missing from these tables fails the tests.

use crate::apply::offer_patch;
use crate::home::place_with_peaks;
use crate::place::{Place, SMALL};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;

const TRACE: &str = r#"[{"ph":"X","cat":"cpu_op","name":"aten::mm","pid":1,"tid":1,"ts":1,"dur":9}]"#;
const SCRIPT: &str = "import torch\n\n\ndef f(o, l):\n    for x in l:\n        o.zero_grad(set_to_none=False)\n";
/// Prints to both streams while it takes steps.
const TRAIN: &str = "import sys, torch\nprint('the script speaks')\noptimizer = torch.optim.SGD()\nfor _ in range(20):\n    \
                     optimizer.step()\nprint('the script is done')\n";
const OPTIMIZE: &str = "--size nano --batch-size 2 --seq-len 16 --rounds 4 --time 1 --curve-steps 2 --min-speedup 0.001 \
                        --precisions none";

/// Commands without a result: a server's address, a shell script, protocols of other programs.
const NO_RESULTS: [&str; 6] = ["serve", "completions", "lsp", "mcp", "man", "help"];

enum Document {
    /// All of standard output.
    One,
    /// An object per line during the run; the last one has this key.
    Lines(&'static str),
}

use Document::{Lines, One};

/// Every command, in every form, that prints results. `{}` is a unique number, so that each run has its own folders.
const RESULTS: [(&str, Document); 34] = [
    ("train --size nano --batch-size 2 --seq-len 16 --num-steps 8 --log-interval 2 --output-dir t{}", Lines("summary")),
    ("train --size nano --validate-setup", Lines("ready")),
    ("train --size nano --show-tree", One),
    ("profile --size nano --batch-size 2 --seq-len 16 --num-steps 9 --output-dir p{}", Lines("summary")),
    ("optimize OPTIMIZE --output-dir o{}", One),
    ("apply offered --dry-run", One),
    ("study nano --num-steps 4 --output-dir s{}", One),
    ("scale --size nano --batch 2,4 --seq 16,32 --plan-only --output-dir c{}", One),
    ("k1 --size nano --sources 1 --steps 2 --seeds 2 --eval-batches 1 --output-dir k{}", One),
    ("k1 --model tree --branching 1 --k 1 --steps 2 --seeds 1 --eval-batches 1 --output-dir kt{}", One),
    ("device --threads 1", One),
    ("device --device rocm", One),
    ("eval --from ck --batches 1", One),
    ("generate --from ck --prompt a --max-tokens 4", One),
    ("analyze trace.json", One),
    ("analyze trace.json other.json", One),
    ("compare trace.json other.json --fail-if 'memory>5%'", One),
    ("record --output-dir r{} -- python3 train.py", One),
    ("lint script.py", One),
    ("lint script.py --statistics", One),
    ("lint fixed.py --fix", One),
    ("lint silenced.py --add-noqa", One),
    ("explain", One),
    ("explain TP101", One),
    ("workshop sheet 1", One),
    ("workshop check run1", One),
    ("runs list", One),
    ("runs show main", One),
    ("runs compare main 2", One),
    ("runs name 2 second", One),
    ("runs export", One),
    ("runs delete 3", One),
    ("runs prune --keep 1000 --dry-run", One),
    ("regress --baseline main 2 --threshold 100000", One),
];

/// Runs 1 (`main`) and 2 to compare, 3 and 4 to delete, a checkpoint, traces and scripts.
fn prepared() -> Place {
    let place = place_with_peaks();
    for (number, name) in [(1, "--name main --save ck --data markov"), (2, "--data markov"), (3, ""), (4, "")] {
        place.succeeds(&format!("train {SMALL} --num-steps 12 {name} --output-dir run{number}"));
    }
    for (name, text) in [
        ("trace.json", TRACE),
        ("other.json", TRACE),
        ("script.py", SCRIPT),
        ("silenced.py", SCRIPT),
        ("fixed.py", SCRIPT),
        ("train.py", TRAIN),
    ] {
        place.write(name, text);
    }
    offer_patch(&place, "offered", None);
    place
}

fn shell(place: &Place, line: &str) -> crate::place::Done {
    let torch = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/fake_torch");
    place.shell(&format!("PYTHONDONTWRITEBYTECODE=1 PYTHONPATH={} $HEADROOM {line}", torch.display()))
}

/// Names of all commands, including the subcommands of `runs`.
fn commands(place: &Place) -> BTreeSet<String> {
    let listed = |help: &str| -> Vec<String> {
        let list = help.split("Commands:\n").nth(1).expect("a list of commands");
        let lines = list.lines().take_while(|line| !line.is_empty());
        // Continuation lines of a description are indented further.
        let first = lines.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
        first.filter_map(|line| line.split_whitespace().next()).map(String::from).collect()
    };
    let mut all: BTreeSet<String> = listed(&place.succeeds("--help").stdout).into_iter().collect();
    all.remove("runs");
    all.extend(listed(&place.succeeds("runs --help").stdout).into_iter().map(|name| format!("runs {name}")));
    all.retain(|name| !NO_RESULTS.contains(&name.trim_start_matches("runs ")));
    all
}

/// `runs list` from `runs list --limit 3`.
fn name_of(line: &str) -> String {
    let words: Vec<&str> = line.split_whitespace().collect();
    if words[0] == "runs" { words[..2].join(" ") } else { words[0].to_string() }
}

fn keys(value: &Value) -> Vec<String> {
    value.as_object().map_or_else(Vec::new, |object| object.keys().cloned().collect())
}

#[test]
fn every_command_that_prints_results_prints_one_json_document_by_both_flags() {
    let place = prepared();
    let covered: BTreeSet<String> = RESULTS.iter().map(|(line, _)| name_of(line)).collect();
    assert_eq!(covered, commands(&place), "every command is in the table, and no other");
    for (number, (line, document)) in RESULTS.iter().enumerate() {
        let mut shapes = vec![];
        for (turn, flag) in ["--json", "--format json"].iter().enumerate() {
            // A run can be deleted only once; the second time it is the next one.
            let line = line.replace("{}", &format!("{number}{turn}")).replace("OPTIMIZE", OPTIMIZE);
            let line = if turn == 1 { line.replace("runs delete 3", "runs delete 4") } else { line };
            let (before, after) = line
                .split_once(" -- ")
                .map_or((line.as_str(), String::new()), |(before, after)| (before, format!(" -- {after}")));
            let done = shell(&place, &format!("{before} {flag}{after}"));
            // Findings, or a gate that fails at toy size, are an answer and not an error.
            assert!(matches!(done.code, Some(0 | 1)), "{line} {flag}: {:?}\n{}", done.code, done.stderr);
            let value = match document {
                One => serde_json::from_str(&done.stdout)
                    .unwrap_or_else(|error| panic!("{line} {flag}: {error}\n{}", done.stdout)),
                Lines(last) => {
                    let objects = done.objects();
                    assert!(objects.iter().all(Value::is_object), "{line} {flag}");
                    let value = objects.last().expect("a line").clone();
                    assert!(value.get(last).is_some(), "{line} {flag}: {value}");
                    value
                }
            };
            if line.starts_with("record") {
                assert!(done.stderr.contains("the script speaks") && done.stderr.contains("the script is done"));
            }
            shapes.push(keys(&value));
        }
        assert_eq!(shapes[0], shapes[1], "{line}: the two flags say the same");
    }
    place.refuses("runs list --json --format text", &["cannot be used with"]);
}

#[test]
fn a_recording_shown_as_text_leaves_the_scripts_output_where_it_was() {
    let place = prepared();
    let done = shell(&place, "record --output-dir r -- python3 train.py");
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    assert!(done.stdout.contains("the script is done") && done.stdout.contains("aten::mm"), "{}", done.stdout);
}

/// Every command with arguments and its exit code: 0 done, 1 no, 2 bad input, 3 the run itself failed.
const ENDINGS: [(&str, i32); 79] = [
    ("train --size nano --num-steps 2 --output-dir e0", 0),
    ("train --size mini", 2),
    ("train --size nano --num-steps 40 --output-dir e1 --learning-rate 1e30", 3),
    ("profile --size nano --num-steps 9 --output-dir e2", 0),
    ("profile --size nano --device tpu", 2),
    ("optimize --size nano --batch-size 2 --seq-len 16 --passes v2 --precisions none --output-dir e3", 0),
    ("optimize HARD --output-dir e3", 1),
    ("optimize --size mini", 2),
    ("optimize -- no-such-program", 3),
    ("apply offered", 0),
    ("apply main", 2),
    ("study nano --num-steps 4 --output-dir e4", 0),
    ("study mini", 2),
    ("scale --size nano --batch 2,4 --seq 16,32 --plan-only --output-dir e5", 0),
    ("scale --size mini", 2),
    ("k1 --size nano --sources 1 --steps 2 --seeds 2 --eval-batches 1 --output-dir e6", 0),
    ("k1 --size mini", 2),
    ("device --threads 1", 0),
    ("device --device rocm --system-root nowhere", 1),
    ("device --device tpu", 2),
    ("device --json > /dev/full", 3),
    ("eval --from ck --batches 1", 0),
    ("eval --from nowhere", 2),
    ("eval --from ck --batches 1 > /dev/full", 3),
    ("generate --from ck --prompt a --max-tokens 4", 0),
    ("generate --from nowhere --prompt a", 2),
    ("generate --from ck --prompt a --max-tokens 4 > /dev/full", 3),
    ("analyze trace.json", 0),
    ("analyze slow.json.gz --fail-on critical", 1),
    ("analyze script.py", 2),
    ("analyze trace.json > /dev/full", 3),
    ("compare trace.json other.json", 0),
    ("compare fixed.json.gz slow.json.gz --fail-if 'kernels>5%'", 1),
    ("compare fixed.json.gz slow.json.gz --fail-if 'step>1%'", 0),
    ("compare fixed.json.gz slow.json.gz --fail-if 'step>1%' --undecided fail", 1),
    ("compare trace.json other.json --fail-if 'speed>5%'", 2),
    ("compare trace.json other.json > /dev/full", 3),
    ("record --output-dir e7 -- python3 train.py", 0),
    ("record --output-dir e7 -- python3 train.py", 2),
    ("record --output-dir e8 -- python3 -c 'raise SystemExit(1)'", 3),
    ("lint clean.py", 0),
    ("lint script.py", 1),
    ("lint script.py --exit-zero", 0),
    ("lint nowhere.py", 2),
    ("lint clean.py > /dev/full", 3),
    ("explain", 0),
    ("explain TP999", 2),
    ("explain > /dev/full", 3),
    ("workshop sheet 1", 0),
    ("workshop sheet 7", 2),
    ("workshop check run1", 1),
    ("workshop check home", 2),
    ("workshop sheet 1 > /dev/full", 3),
    ("runs list", 0),
    ("runs list --status unheard-of", 2),
    ("runs list > /dev/full", 3),
    ("runs show main", 0),
    ("runs show nobody", 2),
    ("runs show main > /dev/full", 3),
    ("runs compare main 2", 0),
    ("runs compare main nobody", 2),
    ("runs compare main 2 > /dev/full", 3),
    ("runs name 2 second", 0),
    ("runs name 2 main", 2),
    ("runs export", 0),
    ("runs export --format xml", 2),
    ("runs export > /dev/full", 3),
    ("runs delete 3", 0),
    ("runs delete 3", 2),
    ("runs prune --keep 1000", 0),
    ("runs prune", 2),
    ("runs prune --older-than 3y", 2),
    ("runs prune --max-size 3X", 2),
    ("regress --baseline main 2 --threshold 100000", 0),
    ("regress --baseline main 2 --threshold 100000 --max-memory-growth 0", 0),
    ("regress --baseline v1 wide --threshold 100000 --max-memory-growth 0 --even-if-different", 1),
    ("regress --baseline nobody", 2),
    ("regress --baseline main 2 --threshold 100000 > /dev/full", 3),
    ("no-such-command", 2),
];

#[test]
fn every_command_ends_with_the_exit_codes_that_are_documented() {
    let place = prepared();
    place.write("clean.py", "x = 1\n");
    for name in ["slow", "fixed"] {
        let from = format!("../trace/tests/data/{name}.pt.trace.json.gz");
        let from = Path::new(env!("CARGO_MANIFEST_DIR")).join(from);
        std::fs::copy(from, place.path(&format!("{name}.json.gz"))).unwrap();
    }
    place.succeeds(&format!("train {SMALL} --num-steps 12 --name v1 --output-dir v1"));
    place.succeeds("train --size nano --batch-size 4 --seq-len 16 --num-steps 12 --name wide --output-dir wide");
    let mut covered: BTreeSet<(String, i32)> = BTreeSet::new();
    for (line, code) in ENDINGS {
        let done = shell(&place, &line.replace("HARD", &OPTIMIZE.replace("0.001", "1000")));
        assert_eq!(done.code, Some(code), "{line}\n{}\n{}", done.stdout, done.stderr);
        if code >= 2 {
            let errors = done.stderr.lines().filter(|line| line.starts_with("error: ")).count();
            // Lint reports files that it cannot read in its result.
            assert!(errors == 1 || line.starts_with("lint"), "{line}: {}", done.stderr);
        }
        covered.insert((name_of(line), code));
    }
    for name in commands(&place) {
        for code in [0, 2] {
            assert!(covered.contains(&(name.clone(), code)), "{name} has no line that ends with {code}");
        }
    }
    for name in ["compare", "lint", "analyze", "optimize", "regress", "workshop", "device"] {
        assert!(covered.contains(&(name.into(), 1)), "{name} can say no");
    }
    let long = format!("train {SMALL} --num-steps 1000000 --output-dir long");
    for (signal, code) in [("HUP", 129), ("INT", 130), ("TERM", 143)] {
        let run = place.start(&format!("{long}-{signal}"));
        run.has_written(&place.path(&format!("long-{signal}/progress.jsonl")));
        assert_eq!(run.signal(signal).code, Some(code), "{signal}");
    }
    let help = place.succeeds("--help").stdout;
    for code in ["0 ", "1 ", "2 ", "3 ", "129 ", "130, 143 "] {
        assert!(help.contains(&format!("\n  {code}")), "{code} is explained in the help: {help}");
    }
}
