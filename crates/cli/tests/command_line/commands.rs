//! Help, completions, and the commands other than training.

use crate::place::Place;

#[test]
fn every_command_explains_itself() {
    let place = Place::new();
    for command in ["", "train", "k1", "device", "completions", "race"] {
        let done = place.succeeds(&format!("{command} --help"));
        assert!(done.stdout.contains("Usage: headroom"), "{command}: {}", done.stdout);
    }
    let help = place.succeeds("train --help").stdout;
    for flag in ["--size", "--num-steps", "--gradient-accumulation-steps", "--resume", "--save-every", "--memory-limit"]
    {
        assert!(help.contains(flag), "{flag}");
    }
}

#[test]
fn the_version_says_commit_features_and_devices() {
    let place = Place::new();
    let short = place.succeeds("-V").stdout;
    let first = format!("headroom {} (commit ", env!("CARGO_PKG_VERSION"));
    let commit = short.trim_end().strip_prefix(&first).and_then(|rest| rest.strip_suffix(')')).expect("a commit");
    let is_commit = commit.len() == 12 && commit.bytes().all(|byte| byte.is_ascii_hexdigit());
    assert!(is_commit || commit == "unknown", "{short}");
    let long = place.succeeds("--version").stdout;
    assert!(long.starts_with(&short), "{long}");
    for line in ["\nbuilt for ", "\ncpu: ", "\ncuda"] {
        assert!(long.contains(line), "{line}: {long}");
    }
    assert!(place.succeeds("lint -V").stdout.contains(commit));
}

#[test]
fn packages_get_a_page_per_command_and_completions_of_every_shell() {
    let place = Place::new();
    place.succeeds("pages packed");
    for (file, words) in [
        ("share/man/man1/headroom.1", ".TH HEADROOM 1"),
        ("share/man/man1/headroom-train.1", "gradient\\-accumulation\\-steps"),
        ("share/man/man1/headroom-runs-list.1", ".SH SYNOPSIS"),
        ("share/bash-completion/completions/headroom", "_headroom"),
        ("share/zsh/site-functions/_headroom", "#compdef headroom"),
        ("share/fish/vendor_completions.d/headroom.fish", "complete -c headroom"),
    ] {
        let text = std::fs::read_to_string(place.path(&format!("packed/{file}"))).expect(file);
        assert!(text.contains(words), "{file} lacks {words}:\n{text}");
    }
    // Hidden commands are for programs and have no page.
    assert!(!place.path("packed/share/man/man1/headroom-race.1").exists());
}

#[test]
fn the_workshops_names_of_flags_are_accepted() {
    let place = Place::new();
    place.succeeds(
        "train --num-layers 1 --num-heads 2 --hidden-dim 32 --seq-len 8 --batch-size 1 --num-steps 1 --profile-dir o",
    );
    assert_eq!(place.json("o/config.json")["configuration"]["num_layers"], 1);
    assert_eq!(place.json("o/config.json")["size"], "custom");
}

#[test]
fn the_common_shells_get_completions() {
    let place = Place::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = place.succeeds(&format!("completions {shell}")).stdout;
        assert!(script.contains("headroom") && script.contains("gradient-accumulation-steps"), "{shell}");
    }
    place.refuses("completions tcsh", &["tcsh", "bash"]);
    let done = place.shell("$HEADROOM completions bash | head -1");
    assert!(!done.stderr.contains("panicked"), "{}", done.stderr);
    assert!(place.shell("$HEADROOM completions bash | bash -n").stderr.is_empty());
}

#[test]
fn the_machine_is_measured_and_remembered() {
    let place = Place::new();
    let done = place.succeeds("device --json");
    let record: serde_json::Value = serde_json::from_str(&done.stdout).unwrap();
    headroom_record::provenance::check_provenance(&record).unwrap();
    assert!(record["gemm_flops"][0]["flops_per_sec"].as_f64().unwrap() > 1e8, "{record}");
    assert!(record["memory_bandwidth_bytes"].as_f64().unwrap() > 1e8, "{record}");
    let null = place.succeeds("train --device null --size nano --num-steps 1");
    // Peaks from a busy machine are not saved, and the command says so.
    let is_kept = !done.stderr.contains("not saved");
    assert_eq!(null.stderr.contains("assumed peaks"), !is_kept, "{}\n{}", done.stderr, null.stderr);
    let fresh = Place::new().succeeds("train --device null --size nano --num-steps 1");
    assert!(fresh.stderr.contains("assumed peaks"), "{}", fresh.stderr);
}
