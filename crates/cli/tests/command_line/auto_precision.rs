//! `--precision auto`: uses only what `optimize` proved on this machine for this model and shape.

use crate::home::place_with_peaks_on;
use crate::place::Place;
use serde_json::Value;

const SHAPE: &str = "--size nano --batch-size 2 --seq-len 32 --threads 1";
const QUICK: &str = "--rounds 4 --time 1 --curve-steps 10";

#[test]
fn auto_takes_what_was_proved_and_says_what_to_do_before_that() {
    let place = place_with_peaks_on(1);
    let train = |flags: &str| place.run(&format!("train {SHAPE} --num-steps 2 --json {flags}"));
    let before = train("--precision auto");
    assert_eq!(before.code, Some(2), "{}", before.stderr);
    assert!(before.stderr.contains("no precision is proven yet for size nano at 2 × 32"), "{}", before.stderr);
    assert!(before.stderr.contains("headroom optimize --size nano --batch-size 2 --seq-len 32"), "{}", before.stderr);

    let proof =
        place.succeeds(&format!("optimize {SHAPE} {QUICK} --passes v2 --precisions bf16,fp8 --json --output-dir out"));
    let record: Value = serde_json::from_str(&proof.stdout).unwrap();
    assert_eq!(record, place.json("out/precisions.json"));
    let rows = record["precisions"].as_array().unwrap();
    let names: Vec<&str> = rows.iter().map(|row| row["precision"].as_str().unwrap()).collect();
    assert_eq!(names, ["bf16", "fp8"]);
    let gates =
        ["determinism", "every_parameter_has_a_gradient", "final_loss", "gradients", "loss", "memory", "throughput"];
    for row in rows {
        assert_eq!(row["gates"].as_object().unwrap().keys().collect::<Vec<_>>(), gates);
        for right in ["gradients", "final_loss", "loss", "determinism", "every_parameter_has_a_gradient"] {
            assert_eq!(row["gates"][right]["result"], "pass", "{right}: {row}");
        }
    }

    let proved = record["precision"].as_str().unwrap();
    let after = train("--precision auto --output-dir run");
    assert_eq!(after.code, Some(0), "{}", after.stderr);
    assert!(after.stderr.contains(&format!("--precision auto uses {proved}: proven here")), "{}", after.stderr);
    assert_eq!(after.losses(), train(&format!("--precision {proved}")).losses(), "the same bytes as when it is named");
    // Another shape was not proved, and without the flag it is fp32 as before.
    let other = place.run("train --size nano --batch-size 2 --seq-len 64 --num-steps 2 --precision auto");
    assert!(other.code == Some(2) && other.stderr.contains("only at 2 × 32"), "{}", other.stderr);
    let plain = train("");
    assert!(!plain.stderr.contains("auto") && plain.losses() == train("--precision fp32").losses());
}

#[test]
fn a_resumed_run_stays_in_its_precision_under_auto() {
    let place = Place::new();
    place.succeeds(&format!("train {SHAPE} --num-steps 2 --precision bf16 --save check"));
    let resumed = place.succeeds("train --resume check --num-steps 3 --threads 1 --precision auto");
    assert!(resumed.stderr.contains("stays with bf16, as in the resumed run"), "{}", resumed.stderr);
}
