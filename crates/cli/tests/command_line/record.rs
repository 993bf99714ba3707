//! `headroom record` with a script that does not train: `tests/data` has a fake torch with the parts that the hook
//! uses.

use crate::place::{Done, Place};
use std::path::Path;
use std::process::{Command, Stdio};

/// Takes as many steps as its argument says.
const TRAIN: &str =
    "import sys, torch\noptimizer = torch.optim.SGD()\nfor _ in range(int(sys.argv[1])):\n    optimizer.step()\n";

fn record(place: &Place, script: &str, flags: &str, arguments: &str) -> Done {
    place.write("train.py", script);
    let torch = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/fake_torch");
    place.shell(&format!(
        "PYTHONDONTWRITEBYTECODE=1 PYTHONPATH={} $HEADROOM record {flags} -- python3 train.py {arguments}",
        torch.display()
    ))
}

fn traces_in(place: &Place, folder: &str) -> Vec<String> {
    let entries = std::fs::read_dir(place.path(folder)).unwrap().map(|entry| entry.unwrap());
    let others = entries.filter(|entry| entry.file_name() != "light");
    let mut names: Vec<String> = others.map(|entry| entry.file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn each_recording_has_a_folder_of_its_own() {
    let place = Place::new();
    for _ in 0..2 {
        let done = record(&place, TRAIN, "", "20");
        assert_eq!(done.code, Some(0), "{}", done.stderr);
    }
    let folders = traces_in(&place, "runs");
    assert_eq!(folders.len(), 2, "{folders:?}");
    for folder in &folders {
        assert!(folder.contains("-recorded"), "{folder}");
        assert_eq!(traces_in(&place, &format!("runs/{folder}")).len(), 1);
    }
}

#[test]
fn a_folder_that_holds_a_trace_is_refused_and_nothing_of_the_users_is_removed() {
    let place = Place::new();
    std::fs::create_dir(place.path("o")).unwrap();
    place.write("o/record.notes.json", "mine");
    let done = record(&place, TRAIN, "--output-dir o", "20");
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    assert_eq!(place.read("o/record.notes.json"), b"mine");
    let before = traces_in(&place, "o");
    assert_eq!(before.len(), 2, "{before:?}");

    record(&place, TRAIN, "--output-dir o", "20").is_error(2, "o is taken", &["holds another trace", "--overwrite"]);
    assert_eq!(traces_in(&place, "o"), before);
    let failed = record(&place, "import sys; sys.exit(7)", "--output-dir o --overwrite", "");
    assert_eq!(failed.code, Some(3), "{}", failed.stderr);
    assert_eq!(traces_in(&place, "o"), before, "without a new recording the old one stays");

    place.write("o/mine.pt.trace.json", "{}");
    let done = record(&place, TRAIN, "--output-dir o --overwrite", "20");
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    let after = traces_in(&place, "o");
    assert_eq!(after.len(), 3, "{after:?}");
    assert!(after.contains(&"record.notes.json".to_string()) && after.contains(&"mine.pt.trace.json".to_string()));
    assert_ne!(after, before, "the earlier recording is replaced");
    let light = std::fs::read_dir(place.path("o/light")).unwrap().count();
    assert_eq!(light, 1, "and so is its light trace");
}

#[test]
fn a_script_with_a_profiler_of_its_own_runs_as_it_would_alone() {
    let place = Place::new();
    let own = "import torch\noptimizer = torch.optim.SGD()\nfor _ in range(5):\n    optimizer.step()\n\
               with torch.profiler.profile() as own:\n    for _ in range(20):\n        optimizer.step()\n\
               print('the script is done')\n";
    let done = record(&place, own, "--output-dir o", "");
    done.is_error(2, "it stepped aside", &["uses torch.profiler itself", "recording stops", "headroom analyze"]);
    assert!(done.stdout.contains("the script is done"), "{}\n{}", done.stdout, done.stderr);
    assert!(!place.path("o").exists(), "a folder that was made for nothing goes again");

    let early = "import torch\nown = torch.autograd.profiler.profile()\noptimizer = torch.optim.SGD()\n\
                 for _ in range(5):\n    optimizer.step()\nwith own:\n    optimizer.step()\nprint('done')\n";
    let done = record(&place, early, "--output-dir o", "");
    assert!(done.stdout.contains("done"), "{}\n{}", done.stdout, done.stderr);
    done.is_error(2, "made before", &["uses torch.profiler itself"]);
}

#[test]
fn a_profiler_after_the_recording_is_in_nobodys_way() {
    let place = Place::new();
    let late = format!("{TRAIN}with torch.profiler.profile() as own:\n    optimizer.step()\nprint('done')\n");
    let done = record(&place, &late, "--output-dir o", "20");
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    assert!(done.stdout.contains("done"));
}

#[test]
fn a_process_that_was_forked_after_the_recording_does_not_count_again() {
    let place = Place::new();
    let forks = format!("{TRAIN}import os\nif os.fork() == 0:\n    sys.exit(0)\nos.wait()\n");
    let done = record(&place, &forks, "--output-dir o", "20");
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    assert_eq!(done.stderr.matches("recorded ").count(), 1, "{}", done.stderr);
}

#[test]
fn a_request_to_end_reaches_the_script() {
    let place = Place::new();
    let waits = "import os, time\nopen('started.tmp', 'w').write(str(os.getpid()))\nos.rename('started.tmp', 'started')\n\
                 time.sleep(600)\n";
    place.write("train.py", waits);
    let mut command = place.command("record --output-dir o -- python3 train.py");
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let run = crate::place::Running::of(child);
    run.has_written(&place.path("started"));
    let script = String::from_utf8(place.read("started")).unwrap();
    let done = run.signal("TERM");
    assert_eq!(done.code, Some(143), "{}", done.stderr);
    assert!(done.stderr.contains("interrupted"), "{}", done.stderr);
    let alive = Command::new("kill").args(["-0", &script]).stderr(Stdio::null()).status().unwrap().success();
    assert!(!alive, "the script outlives the command that started it");
}

#[cfg(target_os = "linux")]
#[test]
fn a_script_ends_with_the_command_that_was_killed() {
    let place = Place::new();
    place.write("train.py", "import os, time\nopen('started.tmp', 'w').write(str(os.getpid()))\nos.rename('started.tmp', 'started')\ntime.sleep(600)\n");
    let mut command = place.command("record --output-dir o -- python3 train.py");
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let run = crate::place::Running::of(child);
    run.has_written(&place.path("started"));
    let script = String::from_utf8(place.read("started")).unwrap();
    run.kill();
    let is_alive = || Command::new("kill").args(["-0", &script]).stderr(Stdio::null()).status().unwrap().success();
    let begin = std::time::Instant::now();
    while is_alive() && begin.elapsed().as_secs() < 10 {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    assert!(!is_alive(), "the script outlives the command that started it");
}

/// The recording from the header of the only trace in `folder`.
fn recording(place: &Place, folder: &str) -> serde_json::Value {
    let name = traces_in(place, folder).into_iter().find(|name| name.ends_with(".pt.trace.json")).expect("a trace");
    let trace: serde_json::Value = serde_json::from_slice(&place.read(&format!("{folder}/{name}"))).unwrap();
    trace["headroom_recording"].clone()
}

#[test]
fn twenty_steps_are_enough_for_the_truth_a_light_and_a_full_trace() {
    let place = Place::new();
    let done = record(&place, TRAIN, "--output-dir o --format json", "20");
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    let said = recording(&place, "o");
    assert_eq!(said["true_step_seconds"].as_array().unwrap().len(), 8, "{said}");
    assert_eq!(said["profiler"], "full");
    let light = said["light_trace"].as_str().unwrap();
    assert!(place.path(&format!("o/{light}")).is_file(), "{light}");
    assert!(!done.stderr.contains("the script ended after"), "{}", done.stderr);

    let told: serde_json::Value = serde_json::from_str(&done.stdout).unwrap();
    assert_eq!(told["true_step"]["from"], "measured");
    assert_eq!(told["true_step"]["timed_steps"], 8);
    assert_eq!(told["true_step"]["joined_share"], 1.0);
    let again = place.shell("$HEADROOM analyze o --format json");
    assert_eq!(again.stdout, done.stdout, "`analyze` of the folder says what `record` said");
}

#[test]
fn a_shorter_script_leaves_what_was_recorded_and_is_told_what_is_missing() {
    let place = Place::new();
    let done = record(&place, TRAIN, "--output-dir full", "17");
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    assert!(done.stderr.contains("ended after 17 of the 19 steps"), "{}", done.stderr);
    assert_eq!(recording(&place, "full")["profiler"], "full");

    let done = record(&place, TRAIN, "--output-dir light", "13");
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    assert!(done.stderr.contains("shapes, stacks and memory were not recorded"), "{}", done.stderr);
    assert_eq!(recording(&place, "light")["profiler"], "light");
    assert!(!place.path("light/light").exists(), "no folder of light traces is left");

    let done = record(&place, TRAIN, "--output-dir none", "9");
    done.is_error(2, "too few", &["took 9 training steps, and 14 are needed", "--timed-steps"]);
    let done = record(&place, TRAIN, "--output-dir few --warmup-steps 1 --timed-steps 2 --steps 1", "8");
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    assert_eq!(recording(&place, "few")["true_step_seconds"].as_array().unwrap().len(), 2);
}

#[test]
fn steps_are_found_with_two_optimizers_skipped_steps_and_closures() {
    let place = Place::new();
    let loop_of = |before: &str, body: &str| {
        format!("import time, torch\n{before}\nfor number in range(20):\n{body}    time.sleep(0.01)\n")
    };
    let two = "critic, generator = torch.optim.SGD(), torch.optim.SGD()";
    let gan = loop_of(two, "    for _ in range(5):\n        critic.step()\n    generator.step()\n");
    let scaled = "optimizer, scaler = torch.optim.SGD(), torch.amp.GradScaler(left_out=[2, 6, 7, 14])";
    let scaled = loop_of(scaled, "    scaler.step(optimizer)\n");
    let closed = loop_of("optimizer = torch.optim.SGD()", "    optimizer.step(lambda: time.sleep(0.001))\n");
    let renewed =
        loop_of("", "    if number in (0, 3):\n        optimizer = torch.optim.SGD()\n    optimizer.step()\n");
    for (name, script) in [("gan", gan), ("scaled", scaled), ("closed", closed)] {
        let done = record(&place, &script, &format!("--output-dir {name}"), "");
        assert_eq!(done.code, Some(0), "{name}: {}", done.stderr);
        let said = recording(&place, name);
        let times = said["true_step_seconds"].as_array().unwrap();
        assert_eq!(times.len(), 8, "{name}: {said}");
        assert!(times.iter().all(|time| time.as_f64().unwrap() >= 0.01), "{name}: every step holds the sleep: {said}");
        assert_eq!(said["profiler"], "full", "{name}");
    }
    let done = record(&place, &renewed, "--output-dir renewed --timed-steps 3", "");
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    assert_eq!(recording(&place, "renewed")["true_step_seconds"].as_array().unwrap().len(), 3);
}
