//! Help, completions, and the commands beside training.

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
    assert!(place.succeeds("--version").stdout.starts_with("headroom "));
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
    // On a machine that others keep busy nothing is kept, and the command says so.
    let is_kept = !done.stderr.contains("not kept");
    assert_eq!(null.stderr.contains("assumed peaks"), !is_kept, "{}\n{}", done.stderr, null.stderr);
    let fresh = Place::new().succeeds("train --device null --size nano --num-steps 1");
    assert!(fresh.stderr.contains("assumed peaks"), "{}", fresh.stderr);
}
