//! Readers and users that go away in the middle.

use crate::place::{Place, SMALL};

#[test]
fn a_reader_that_leaves_ends_the_output_and_not_the_training() {
    let place = Place::new();
    for (name, flags, pipe) in [
        ("text", "", "2>/dev/null | head -1"),
        ("everything", "", "2>&1 | head -1"),
        ("json", "--json --log-interval 1", "2>/dev/null | head -1"),
    ] {
        place.shell(&format!(
            "($HEADROOM train {SMALL} --num-steps 30 --output-dir {name} {flags}; echo $? > {name}.code) {pipe}",
        ));
        assert_eq!(place.read(&format!("{name}.code")), b"0\n", "{name}");
        assert!(place.path(name).join("performance_summary.json").exists(), "{name}");
    }
}

#[test]
fn results_that_find_no_room_are_an_error_of_the_run() {
    let place = Place::new();
    let done = place.shell(&format!("$HEADROOM train {SMALL} --num-steps 2 --output-dir o > /dev/full"));
    done.is_error(3, "stdout is full", &["standard output"]);
}

#[test]
fn a_run_without_a_place_to_save_says_so_when_interrupted() {
    let place = Place::new();
    let run = place.start(&format!("train {SMALL} --num-steps 1000000 --output-dir o"));
    run.has_written(&place.path("o/config.json"));
    let done = run.interrupt();
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    assert!(done.stderr.contains("not saved: --save DIR"), "{}", done.stderr);
    assert!(done.stdout.contains("Performance Summary:"));
}
