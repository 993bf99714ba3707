//! Readers and users that leave in the middle.

use crate::home::place_with_peaks;
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
    assert_eq!(done.code, Some(130), "{}", done.stderr);
    assert!(done.stderr.contains("not saved: --save DIR"), "{}", done.stderr);
    assert!(done.stdout.contains("Performance Summary:"));
}

#[test]
fn a_request_to_terminate_has_an_exit_code_of_its_own() {
    let place = Place::new();
    let run = place.start(&format!("train {SMALL} --num-steps 1000000 --output-dir o"));
    run.has_written(&place.path("o/config.json"));
    assert_eq!(run.signal("TERM").code, Some(143));
}

#[test]
fn an_optimisation_that_is_ended_leaves_no_empty_folder() {
    let place = place_with_peaks();
    for (signal, code) in [("TERM", 143), ("INT", 130)] {
        let run = place.start("optimize --size tiny --output-dir new/deep");
        run.has_written(&place.path("new/deep"));
        let done = run.signal(signal);
        assert_eq!(done.code, Some(code), "{}", done.stderr);
        assert!(done.stderr.contains("interrupted; nothing was decided, and nothing is written"), "{}", done.stderr);
        assert!(!place.path("new").exists(), "{:?}", place.names());
    }
    // Results of another run stay as they are.
    let folder = place.path("kept");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("validation.json"), "{}").unwrap();
    let run = place.start("optimize --size tiny --output-dir kept");
    // The registry has the run as soon as its folder is claimed.
    run.waits_until(|| place.succeeds("runs list --json").stdout.matches("\"running\"").count() == 1);
    let done = run.signal("TERM");
    assert_eq!(done.code, Some(143), "{}", done.stderr);
    assert!(done.stderr.contains("what kept holds stays"), "{}", done.stderr);
    assert_eq!(std::fs::read(folder.join("validation.json")).unwrap(), b"{}");
    let runs: serde_json::Value = serde_json::from_str(&place.succeeds("runs list --json").stdout).unwrap();
    let statuses: Vec<&str> = runs.as_array().unwrap().iter().map(|run| run["status"].as_str().unwrap()).collect();
    // One that was ended between the making of its folder and its entry is not listed.
    assert!(!statuses.is_empty() && statuses.iter().all(|status| *status == "interrupted"), "{statuses:?}");
    // An error after the folder was made leaves nothing either.
    place.refuses("optimize --size nano --passes v3 --output-dir other", &["v3"]);
}

#[test]
fn a_step_that_takes_too_long_is_given_up_and_not_saved_as_if_it_were_finished() {
    let place = Place::new();
    place.succeeds(&format!("train {SMALL} --num-steps 2 --save ck"));
    let before = place.read("ck/model.safetensors");
    // A step that takes hours.
    let long = "--gradient-accumulation-steps 100000000 --num-steps 9";
    for line in [format!("train {SMALL} {long} --save new"), format!("train --resume ck --save ck {long}")] {
        let run = place.start(&format!("{line} --output-dir o"));
        run.has_written(&place.path("o/config.json"));
        let done = run.interrupt();
        assert_eq!(done.code, Some(130), "{}", done.stderr);
        assert!(done.stderr.contains("was abandoned; nothing is saved"), "{}", done.stderr);
        assert!(!done.stdout.contains("Performance Summary:"));
        assert!(!place.path("o").exists() && !place.path("new").exists(), "{:?}", place.names());
    }
    assert!(place.read("ck/model.safetensors") == before);
    assert_eq!(place.json("ck/training_state.json")["step"], 2);
}
