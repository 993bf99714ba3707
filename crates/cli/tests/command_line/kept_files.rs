//! Existing files stay, unless the command was told to replace them.

use crate::place::{Place, SMALL};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, symlink};

#[test]
fn a_checkpoint_of_another_run_is_not_replaced_without_a_word() {
    let place = Place::new();
    place.succeeds(&format!("train {SMALL} --num-steps 2 --save ck"));
    let before = place.read("ck/model.safetensors");
    let again = format!("train {SMALL} --num-steps 1 --seed 7");
    for line in [format!("{again} --save ck"), format!("train --init-from ck {SMALL} --num-steps 1 --save ck")] {
        place.refuses(&line, &["ck holds another model", "model.safetensors", "--overwrite", "--resume ck"]);
        assert!(place.read("ck/model.safetensors") == before, "{line}");
    }
    // The same folder under another path.
    place.succeeds("train --resume ./ck --save ck/../ck --num-steps 3");
    assert_eq!(place.json("ck/training_state.json")["step"], 3);
    place.succeeds(&format!("{again} --save ck --overwrite"));
    assert_eq!(place.json("ck/training_state.json")["step"], 1);
    place.refuses(&format!("{again} --overwrite"), &["--overwrite has nothing to overwrite"]);
}

#[test]
fn a_model_from_elsewhere_is_not_replaced_either() {
    let place = Place::new();
    place.copy_case("nano");
    let before = place.read("nano/model.safetensors");
    place.refuses("train --init-from nano --num-steps 1 --save nano", &["nano holds another model"]);
    assert!(place.read("nano/model.safetensors") == before);
    assert!(!place.path("nano/.lock").exists(), "nothing is added to a folder that is refused");
}

#[test]
fn a_registry_that_is_deleted_during_a_run_is_told_and_gets_the_run_again() {
    let place = Place::new();
    let run = place.start(&format!("train {SMALL} --num-steps 1000000 --output-dir o --name kept"));
    run.has_written(&place.path("o/config.json"));
    fs::remove_dir_all(place.path("home")).unwrap();
    let done = run.interrupt();
    assert!(done.stderr.contains("was deleted or replaced during the run"), "{}", done.stderr);
    let shown = place.succeeds("runs list --json");
    assert_eq!(shown.objects_in_array(), 1, "{}", shown.stdout);
    assert!(shown.stdout.contains("\"kept\"") && shown.stdout.contains("\"interrupted\""), "{}", shown.stdout);
}

/// A script that `--fix` changes.
const SCRIPT: &str = "import torch\n\n\ndef train(model, loader, optimizer):\n    for x in loader:\n        \
                      mask = torch.zeros(8).to(\"cuda\")\n        model(x).backward()\n        optimizer.step()\n";

fn is_fixed(text: &[u8]) -> bool {
    text == SCRIPT.replace("zeros(8).to(\"cuda\")", "zeros(8, device=\"cuda\")").as_bytes()
}

#[test]
fn fixes_go_through_links_and_to_every_name_of_a_file() {
    let place = Place::new();
    place.write("real.py", SCRIPT);
    symlink("real.py", place.path("link.py")).unwrap();
    place.write("one.py", SCRIPT);
    fs::hard_link(place.path("one.py"), place.path("two.py")).unwrap();
    place.succeeds("lint --fix link.py one.py");
    assert!(fs::symlink_metadata(place.path("link.py")).unwrap().is_symlink());
    for name in ["real.py", "one.py", "two.py"] {
        assert!(is_fixed(&place.read(name)), "{name}");
    }
    assert_eq!(fs::metadata(place.path("one.py")).unwrap().nlink(), 2);
    assert_eq!(place.names(), ["link.py", "one.py", "real.py", "two.py"]);
}

#[test]
fn a_name_that_is_not_utf8_is_written_to_and_not_another() {
    let place = Place::new();
    let (odd, shown_alike) = (OsStr::from_bytes(b"a\xff.py"), "a\u{fffd}.py");
    fs::write(place.path(".").join(odd), SCRIPT).unwrap();
    place.write(shown_alike, "# mine\n");
    let done = place.shell("$HEADROOM lint --fix .");
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    assert_eq!(place.read(shown_alike), b"# mine\n");
    assert!(is_fixed(&fs::read(place.path(".").join(odd)).unwrap()));
}

#[test]
fn a_kill_in_the_middle_of_fixes_leaves_whole_files_and_nothing_else() {
    let place = Place::new();
    const FILES: usize = 40;
    let write_all = || (0..FILES).for_each(|file| place.write(&format!("{file}.py"), SCRIPT));
    for delay in 0..8 {
        write_all();
        let run = place.start("lint --fix . --no-config");
        // At different moments after the first fixed file.
        run.waits_until(|| (0..FILES).any(|file| is_fixed(&place.read(&format!("{file}.py")))));
        std::thread::sleep(std::time::Duration::from_micros(700 * delay));
        run.kill();
        for file in 0..FILES {
            let text = place.read(&format!("{file}.py"));
            assert!(is_fixed(&text) || text == SCRIPT.as_bytes(), "{file}.py is neither old nor new");
        }
    }
    write_all();
    place.succeeds("lint --fix . --no-config");
    assert_eq!(place.names().len(), FILES, "{:?}", place.names());
}
