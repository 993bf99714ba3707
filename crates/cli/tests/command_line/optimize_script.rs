//! `headroom optimize -- COMMAND` with nothing to optimize: a clear answer, and no files left. `cargo xtask torch` runs
//! scripts that train, with real PyTorch.

use crate::colour::at_a_terminal;
use crate::place::{Done, Place};

fn optimize(place: &Place, options: &str, script: &str) -> Done {
    place.write("train.py", script);
    place.shell(&format!("$HEADROOM optimize {options} -- python3 train.py"))
}

fn names(place: &Place) -> Vec<String> {
    let entries = std::fs::read_dir(place.path(".")).unwrap().map(|entry| entry.unwrap());
    let mut names: Vec<String> = entries.map(|entry| entry.file_name().into_string().unwrap()).collect();
    // The registry of runs.
    names.retain(|name| name != "home");
    names.sort();
    names
}

#[test]
fn a_script_that_never_trains_is_told_so_and_its_folder_is_as_it_was() {
    let place = Place::new();
    place.write("train.py", "");
    let before = names(&place);
    let script = "open('left.txt', 'w').write('x'); print('nothing to train')";
    let done = optimize(&place, "", script);
    done.is_error(3, "no step", &["was not recorded", "it ended without loading PyTorch", "nothing to train"]);
    assert_eq!(names(&place), before, "what the script wrote is in its copy");
}

#[test]
fn a_terminal_gets_a_live_line_and_redirected_output_none() {
    let place = Place::new();
    let done = optimize(&place, "--time-limit 20", "import time; time.sleep(1.5)");
    assert!(
        done.stderr.contains("] timing and recording") && !done.stderr.contains(['\r', '\u{1b}']),
        "{}",
        done.stderr
    );
    let shown = at_a_terminal(&place, "", "optimize --time-limit 20 -- python3 train.py");
    assert!(shown.contains("s left · running the unchanged script"), "{shown:?}");
    // The line is gone at the end, and the error stands by itself.
    let end = shown.rfind("error: ").expect("an error");
    assert!(!shown[end..].contains("s left"), "{shown:?}");
}

#[test]
fn a_notebook_is_declined_before_anything_runs() {
    let place = Place::new();
    let before = names(&place);
    let done = place.shell("$HEADROOM optimize -- jupyter nbconvert --execute train.ipynb");
    done.is_error(2, "a notebook", &["train.ipynb is a notebook", "help: `jupyter nbconvert --to script`"]);
    assert_eq!(names(&place), before);
}

#[test]
fn a_script_that_fails_is_shown_by_its_last_lines() {
    let place = Place::new();
    let done = optimize(&place, "", "print('a' * 9)\nraise ValueError('no such file')");
    done.is_error(3, "it fails", &["ended with exit status: 1", "ValueError: no such file"]);
    place.shell("$HEADROOM optimize -- no-such-program train.py").is_error(
        3,
        "no program",
        &["cannot start `no-such-program`"],
    );
}

#[cfg(unix)]
#[test]
fn output_of_a_failing_script_is_masked_private_and_gone_with_the_run() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new();
    place.write(
        "train.py",
        "import os\nprint('Authorization: Bearer abcd1234efgh')\nprint(os.environ['SOME_API_KEY'])\nraise ValueError('my own words')",
    );
    let done = place.shell("SOME_API_KEY='correct horse' $HEADROOM optimize -- python3 train.py");
    done.is_error(3, "it fails", &["Authorization: Bearer ***", "ValueError: my own words", "printed.txt"]);
    let file = "runs/optimize-train/printed.txt";
    let kept = String::from_utf8(place.read(file)).unwrap();
    assert!(kept.starts_with("==> as-it-is <==\n") && kept.contains("Authorization: Bearer ***\n***\n"), "{kept}");
    assert_eq!(std::fs::metadata(place.path(file)).unwrap().permissions().mode() & 0o777, 0o600);
    let listed = place.succeeds("runs list --json").stdout;
    assert!(listed.contains("ended with exit status: 1; its output is in"), "{listed}");
    for said in [&done.stderr, &kept, &listed] {
        assert!(!said.contains("abcd1234efgh") && !said.contains("correct horse"), "{said}");
    }
    assert!(!listed.contains("my own words"), "the registry has none of the output: {listed}");
    place.succeeds("runs delete newest");
    assert!(!place.path(file).exists(), "it goes with the run");
}

#[test]
fn a_gigabyte_of_output_fills_neither_memory_nor_disk() {
    let place = Place::new();
    let script = "print('first words')\nfor _ in range(1000): print('x' * 1000000)\nraise ValueError('last words')";
    let done = optimize(&place, "", script);
    done.is_error(3, "it fails", &["ValueError: last words"]);
    let kept = String::from_utf8(place.read("runs/optimize-train/printed.txt")).unwrap();
    assert!(kept.len() < 300_000 && kept.contains("first words") && kept.contains("last words"), "{}", kept.len());
    assert!(kept.contains("bytes are left out here]"), "it says what is missing");
}

#[test]
fn options_of_scripts_are_checked_before_anything_runs() {
    let place = Place::new();
    optimize(&place, "--only tf33", "").is_error(2, "no such remedy", &["there is no such remedy", "compile-blocks"]);
    optimize(&place, "--time-limit 5d", "").is_error(2, "no such time", &["a number with s, m or h"]);
    optimize(&place, "--time-limit 5", "").is_error(2, "too short", &["--time-limit is 5 s", "ten seconds"]);
    // The old name of the flag.
    optimize(&place, "--time 5", "").is_error(2, "too short", &["--time-limit is 5 s"]);
}

#[test]
fn options_of_the_other_half_are_refused_with_a_sentence() {
    let place = Place::new();
    let own = "to headroom's own model, and a script is given after `--`";
    for flag in
        ["--size nano", "--device cpu", "--passes v2", "--ranks 2", "--ablation", "--curve-steps 3", "--threads 1"]
    {
        let name = flag.split(' ').next().unwrap();
        optimize(&place, flag, "").is_error(2, flag, &[name, "applies", own]);
    }
    optimize(&place, "--size nano --ablation", "").is_error(
        2,
        "two",
        &["--size and --ablation apply", "leave them out"],
    );
    for flag in ["--dry-run", "--apply", "--only tf32", "--steps 9", "--allow-write .", "--isolation copy"] {
        let name = flag.split(' ').next().unwrap();
        place.refuses(
            &format!("optimize {flag}"),
            &[name, "applies to a script, and none is given", "-- python train.py"],
        );
    }
}

#[test]
fn the_help_has_two_halves_with_the_scripts_first() {
    let place = Place::new();
    let help = place.succeeds("optimize --help").stdout;
    let (before, rest) = help.split_once("For a PyTorch script (after --):").expect("a heading");
    let (script, rest) = rest.split_once("For headroom's own model (without --):").expect("a heading");
    let (own, both) = rest.split_once("For both:").expect("a heading");
    let has = |part: &str, flag: &str| part.contains(&format!("      {flag}"));
    for flag in ["--only", "--skip", "--steps", "--dry-run", "--apply", "--allow-write"] {
        assert!(has(script, flag) && !has(own, flag) && !has(both, flag), "{flag}: {help}");
    }
    for flag in ["--size", "--passes", "--ranks", "--curve-steps", "--memory-limit"] {
        assert!(has(own, flag) && !has(script, flag) && !has(both, flag), "{flag}: {help}");
    }
    for flag in ["--time-limit", "--allow", "--rounds", "--output-dir", "--json"] {
        assert!(has(both, flag), "{flag}: {help}");
    }
    assert!(!help.contains("--time ") && !help.contains("Phase 3"), "{help}");
    let (of_scripts, of_own) = (before.find("PyTorch script"), before.find("own model"));
    assert!(of_scripts.is_some() && of_scripts < of_own, "{before}");
}

#[test]
fn a_script_is_ended_with_the_command() {
    let place = Place::new();
    place.write("train.py", "import os, time\nopen(os.environ['TOLD'], 'w').write('started')\ntime.sleep(300)\n");
    // Inside, the script has another number: it is found by its words.
    let own = format!("--own-words-of-{}", std::process::id());
    let done = place.shell(&format!(
        "OWN={own}; mkdir seen; export TOLD=$PWD/seen/told; \
         $HEADROOM optimize --allow-write seen -- python3 train.py $OWN & own=$!; \
         while [ ! -s seen/told ]; do sleep 0.05; done; pgrep -f \"train.py $OWN\" >/dev/null && echo found; \
         kill -TERM $own; wait $own; code=$?; pgrep -f \"train.py $OWN\" >/dev/null && echo alive; exit $code",
    ));
    assert_eq!(done.code, Some(143), "{}", done.stderr);
    assert_eq!(done.stdout.trim(), "found", "and not alive afterwards");
    for said in ["no process is left running, and no", "of your files was changed apart from"] {
        assert!(done.stderr.contains(said), "{}", done.stderr);
    }
}

#[test]
fn a_run_after_one_that_was_ended_finds_its_folder_and_replaces_no_others() {
    let place = Place::new();
    let recording = place.path("runs/optimize-train/recording");
    std::fs::create_dir_all(&recording).unwrap();
    let own = recording.join("mine.txt");
    std::fs::write(&own, "mine").unwrap();
    optimize(&place, "", "").is_error(2, "another's folder", &["was not made by this command", "--output-dir"]);
    assert!(own.exists());
    // As a killed run leaves it.
    std::fs::write(recording.join("made-by-headroom-optimize.txt"), "").unwrap();
    std::fs::write(recording.join("trace.json"), "{").unwrap();
    optimize(&place, "", "").is_error(3, "no step", &["it ended without loading PyTorch"]);
    assert!(!recording.exists(), "it holds nothing that belongs to a result");
}
