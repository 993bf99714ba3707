//! A full disk: the run fails, and earlier checkpoints stay intact.

use crate::place::{Place, SMALL};
use crate::small_file_system::SmallFileSystem;

/// Files may grow to about half a megabyte; the model has 0.8.
const LIMITED: &str = "ulimit -f 700;";

#[test]
fn a_checkpoint_without_room_fails_the_run_and_the_one_before_it_still_loads() {
    let place = Place::new();
    place.succeeds(&format!("train {SMALL} --num-steps 2 --save ck"));
    let before = place.read("ck/model.safetensors");
    let line = format!("{LIMITED} $HEADROOM train --resume ck --save ck --num-steps 5 --output-dir o");
    place.shell(&line).is_error(3, &line, &["ck", "model.safetensors"]);
    assert!(place.read("ck/model.safetensors") == before);
    assert!(place.path("o/performance_summary.json").exists(), "the steps were taken, and their summary is there");
    let done = place.succeeds("train --resume ck --num-steps 3 --json");
    assert_eq!(done.objects()[0]["step"], 3);
}

#[test]
fn a_run_folder_without_room_fails_before_the_first_step_and_leaves_nothing() {
    let place = Place::new();
    let line = format!("ulimit -f 0; $HEADROOM train {SMALL} --output-dir o");
    place.shell(&line).is_error(3, &line, &["cannot write o/"]);
    assert_eq!(place.names(), [""; 0]);
}

#[test]
fn a_full_file_system_costs_the_new_checkpoint_and_not_the_old_one() {
    let place = Place::new();
    // Room for one and a half checkpoints of 2.4 MB.
    let Some(small) = SmallFileSystem::mount(&place.path("small"), "4m") else {
        eprintln!("SKIPPED: a small file system cannot be mounted here (it needs root)");
        return;
    };
    let line = format!("train {SMALL} --num-steps 8 --save small/ck --save-every 2 --output-dir o");
    place.run(&line).is_error(3, &line, &["No space left"]);
    let done = place.succeeds("train --resume small/ck --num-steps 3 --json");
    assert_eq!(done.objects()[0]["step"], 3);
    drop(small);
}
