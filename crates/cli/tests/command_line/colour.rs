//! Colour on a terminal, and never in files, pipes or documents.

use crate::place::Place;

const ESCAPE: char = '\u{1b}';
const SCRIPT: &str = "import torch\n\n\ndef f(o, l):\n    for x in l:\n        o.zero_grad(set_to_none=False)\n";

/// Runs the command with a terminal for its output.
pub fn at_a_terminal(place: &Place, variables: &str, line: &str) -> String {
    let words: Vec<String> = line.split_whitespace().map(|word| format!("'{word}'")).collect();
    let spawn = format!("import os, pty; pty.spawn([os.environ['HEADROOM'], {}])", words.join(", "));
    let unset = "env -u NO_COLOR -u CLICOLOR_FORCE -u CLICOLOR TERM=xterm";
    place.shell(&format!("{unset} {variables} python3 -c \"{spawn}\"")).stdout
}

fn with_script() -> Place {
    let place = Place::new();
    place.write("train.py", SCRIPT);
    place
}

#[test]
fn a_terminal_gets_colour_unless_it_or_the_user_wants_none() {
    let place = with_script();
    let shown = at_a_terminal(&place, "", "lint train.py");
    assert!(shown.contains("\u{1b}[1mTP501\u{1b}[0m"), "{shown:?}");
    for variables in ["NO_COLOR=1", "OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=1"] {
        assert!(at_a_terminal(&place, variables, "lint train.py --color always").contains(ESCAPE), "{variables}");
    }
    for (variables, line) in [
        ("NO_COLOR=1", "lint train.py"),
        ("TERM=dumb", "lint train.py"),
        ("", "lint train.py --color never"),
        ("", "--color never lint train.py"),
        ("", "lint train.py --json"),
        ("", "lint train.py --format sarif"),
        ("", "--color never --help"),
        // Open MPI gives each rank a terminal, and copies from it to wherever its own output goes.
        ("OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=1", "lint train.py"),
        ("OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=1", "--help"),
    ] {
        let shown = at_a_terminal(&place, variables, line);
        assert!(!shown.contains(ESCAPE) && !shown.is_empty(), "{variables} {line}: {shown:?}");
    }
}

#[test]
fn pipes_and_files_get_colour_only_where_it_is_forced_and_documents_never() {
    let place = with_script();
    let plain = place.run("lint train.py").stdout;
    assert!(!plain.contains(ESCAPE) && plain.contains("TP501"), "{plain:?}");
    let forced = place.shell("CLICOLOR_FORCE=1 $HEADROOM lint train.py").stdout;
    assert_eq!(forced, place.run("lint train.py --color always").stdout);
    assert!(forced.contains(ESCAPE));
    let bare: String = forced
        .split(ESCAPE)
        .enumerate()
        .map(|(at, part)| match at {
            0 => part,
            _ => part.split_once('m').expect("an end").1,
        })
        .collect();
    assert_eq!(bare, plain, "colour changes no letter");
    for line in ["lint train.py --json", "explain --json", "runs list --json", "lint train.py --diff"] {
        let shown = place.run(&format!("{line} --color always")).stdout;
        assert!(!shown.contains(ESCAPE), "{line}: {shown:?}");
    }
    place.run("lint train.py --color always --output-file found.txt");
    assert_eq!(String::from_utf8(place.read("found.txt")).unwrap(), plain);
    place.refuses("lint train.py --color sometimes", &["sometimes", "always"]);
}

#[test]
fn the_flag_may_stand_before_the_command_and_is_not_part_of_a_run() {
    let place = Place::new();
    let small = "--size nano --batch-size 2 --seq-len 16 --num-steps 3";
    place.succeeds(&format!("--color never train {small} --output-dir a"));
    let file = String::from_utf8(place.read("a/run.toml")).unwrap();
    assert!(!file.contains("color"), "{file}");
    place.succeeds("--color never train --config a/run.toml --output-dir b");
    assert_eq!(place.json("b/config.json")["configuration"]["num_steps"], 3);
    let runs: serde_json::Value = serde_json::from_str(&place.succeeds("runs list --json").stdout).unwrap();
    assert_eq!(runs[0]["command"], "train", "{runs}");
}

#[test]
fn what_a_trace_is_named_gives_a_terminal_no_orders() {
    let place = Place::new();
    let event = r#"[{"ph":"X","cat":"cpu_op","name":"red \u001b[31m op","pid":1,"tid":1,"ts":1,"dur":9}]"#;
    place.write("trace.json", event);
    let shown = place.succeeds("analyze trace.json --verbose --color always").stdout;
    assert!(shown.contains(r"\u001b[31m") && !shown.contains("\u{1b}[31m op"), "{shown:?}");
}
