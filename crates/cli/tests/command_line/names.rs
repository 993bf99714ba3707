//! Untrusted names: bytes that are not UTF-8, and terminal escape sequences.

use crate::place::{Place, SMALL};

#[test]
fn a_path_that_is_not_utf8_is_a_path_like_any_other() {
    let place = Place::new();
    let done = place.shell(&format!("$HEADROOM train {SMALL} --num-steps 2 --output-dir \"$(printf 'o\\377')\""));
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    let done = place.shell(
        "$HEADROOM study nano --device null --num-steps 4 --output-dir \"$(printf 's\\377')\" && \
         ls \"$(printf 's\\377')\"",
    );
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    assert!(done.stdout.contains("study.json"), "{}", done.stdout);
}

/// Clears the screen, and turns text red.
const ESCAPES: &str = "\u{1b}[2J\u{1b}[31m";

fn is_harmless(text: &str) -> bool {
    !text.contains(|letter: char| letter.is_control() && letter != '\n' && letter != '\t')
}

#[test]
fn names_in_a_trace_cannot_steer_the_terminal() {
    let place = Place::new();
    let event = |name: &str, category: &str, start: u32| serde_json::json!({ "ph": "X", "cat": category, "name": name, "pid": 1, "tid": 1, "ts": start, "dur": 90 });
    let name = format!("aten::{ESCAPES}mm\u{9b}31m");
    let trace = serde_json::json!([event(&name, "cpu_op", 1), event(&name, "cpu_op", 200)]);
    place.write("trace.json", trace.to_string());
    for command in ["analyze trace.json", "analyze trace.json --format json", "compare trace.json trace.json"] {
        let done = place.succeeds(command);
        assert!(is_harmless(&done.stdout) && is_harmless(&done.stderr), "{command}: {:?}", done.stdout);
    }
    let json: serde_json::Value =
        serde_json::from_str(&place.succeeds("analyze trace.json --format json").stdout).unwrap();
    assert!(json.to_string().contains("aten::"), "JSON keeps the name, escaped");
}

#[test]
fn names_of_runs_and_files_cannot_steer_the_terminal() {
    let place = Place::new();
    let name = "\"$(printf 'red\\033[31m')\"";
    let done = place.shell(&format!("$HEADROOM train {SMALL} --num-steps 2 --output-dir {name} --name {name}"));
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    assert!(is_harmless(&done.stderr), "{:?}", done.stderr);
    for command in ["runs list", "runs show 1", "runs export --format csv"] {
        let shown = place.succeeds(command);
        assert!(is_harmless(&shown.stdout), "{command}: {:?}", shown.stdout);
        assert!(shown.stdout.contains("red\\u001b[31m"), "{command}: {:?}", shown.stdout);
    }
}
