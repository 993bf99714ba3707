//! Training on many files: folders, patterns and JSONL, tokenized once, resumed to the token, with a held-out end.

use crate::place::{Place, SMALL};
use std::fs;
use std::path::PathBuf;

/// About 3,000 bytes in five files of three kinds.
fn texts(place: &Place) {
    fs::create_dir_all(place.path("texts/more")).unwrap();
    let words = |seed: usize| {
        let word = |at: usize| ["tree", "river", "stone", "wind", "light"][(at * at + seed) % 5];
        (0..100).map(word).collect::<Vec<_>>().join(" ")
    };
    place.write("texts/a.txt", words(1));
    place.write("texts/b.md", words(2));
    place.write("texts/more/c.txt", words(3));
    let line = |seed| format!("{{\"id\": {seed}, \"text\": \"{}\"}}\n", words(seed));
    place.write("texts/more/d.jsonl", line(4) + &line(5) + &line(6));
}

fn kept(place: &Place) -> Vec<PathBuf> {
    let entries = fs::read_dir(place.path("home/tokens")).into_iter().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

fn assert_same_checkpoint(place: &Place, left: &str, right: &str) {
    for file in ["model.safetensors", "optimizer.safetensors", "config.json", "training_state.json"] {
        let [left, right] = [left, right].map(|folder| place.read(&format!("{folder}/{file}")));
        assert!(left == right, "{file} differs");
    }
}

#[test]
fn a_resume_in_the_middle_of_an_epoch_over_many_files_is_the_run_that_never_stopped() {
    let place = Place::new();
    texts(&place);
    // 3,000 tokens give about 180 windows of 16: 40 steps of 3 × 4 windows are between two and three epochs.
    let line =
        "train --size nano --batch-size 4 --seq-len 16 --gradient-accumulation-steps 3 --data texts --eval-every 7";
    let done = place.succeeds(&format!("{line} --num-steps 40 --save straight"));
    assert!(done.stdout.contains("corpus texts, 4 files, 6 documents"), "{}", done.stdout);
    assert!(done.stdout.contains("the last 5% of the data"), "{}", done.stdout);
    assert!(done.stderr.contains("tokenizing 4 files"), "{}", done.stderr);
    let done = place.succeeds(&format!("{line} --num-steps 11 --save ck"));
    assert!(!done.stderr.contains("tokenizing"), "cut once: {}", done.stderr);
    fs::create_dir(place.path("elsewhere")).unwrap();
    for steps in [18, 29, 40] {
        let line = format!("cd elsewhere && $HEADROOM train --resume ../ck --save ../ck --num-steps {steps}");
        let done = place.shell(&line);
        assert_eq!(done.code, Some(0), "{}", done.stderr);
        assert!(!done.stderr.contains("other data"), "{}", done.stderr);
    }
    assert_same_checkpoint(&place, "ck", "straight");
}

#[test]
fn a_kill_while_the_files_are_cut_leaves_nothing_half_made() {
    let place = Place::new();
    fs::create_dir(place.path("texts")).unwrap();
    for name in 0..20 {
        place.write(&format!("texts/{name}.txt"), format!("{name} words and more of them; ").repeat(100_000));
    }
    let line = format!("train {SMALL} --data texts --num-steps 3 --json");
    for wait in [0, 5, 20, 40, 80] {
        let run = place.start(&line);
        run.waits_until(|| place.path("home/tokens").exists());
        std::thread::sleep(std::time::Duration::from_millis(wait));
        run.kill();
        for path in kept(&place) {
            let name = path.file_name().unwrap().to_str().unwrap().to_string();
            assert!(name.ends_with(".tokens") || name.ends_with(".index"), "{name}");
        }
    }
    let losses = place.succeeds(&line).losses();
    fs::remove_dir_all(place.path("home/tokens")).unwrap();
    assert_eq!(place.succeeds(&line).losses(), losses);
    assert_eq!(kept(&place).len(), 2);
}

#[test]
fn two_runs_that_cut_the_same_files_at_once_both_train() {
    let place = Place::new();
    fs::create_dir(place.path("texts")).unwrap();
    for name in 0..10 {
        place.write(&format!("texts/{name}.txt"), format!("{name} words and more of them; ").repeat(50_000));
    }
    let line = |output: &str| format!("train {SMALL} --data texts --num-steps 3 --json --output-dir {output}");
    let runs = [place.start(&line("one")), place.start(&line("other"))];
    let losses = runs.map(|run| {
        let done = run.ends();
        assert_eq!(done.code, Some(0), "{}", done.stderr);
        done.losses()
    });
    assert_eq!(losses[0], losses[1]);
    assert_eq!(kept(&place).len(), 2);
}

#[test]
fn no_room_for_the_tokens_is_a_clear_error_and_nothing_stays() {
    let place = Place::new();
    place.write("lines.jsonl", format!("{{\"text\": \"{}\"}}\n", "many words ".repeat(50)).repeat(1000));
    let line = format!("ulimit -f 100; $HEADROOM train {SMALL} --data lines.jsonl");
    place.shell(&line).is_error(3, &line, &["cannot write", "tokens"]);
    assert!(kept(&place).is_empty(), "{:?}", kept(&place));
}

#[test]
fn bad_folders_are_refused_and_leave_nothing_behind() {
    let place = Place::new();
    fs::create_dir(place.path("texts")).unwrap();
    place.refuses(&format!("train {SMALL} --data texts"), &["texts", "holds no file"]);
    place.refuses(&format!("train {SMALL} --data texts/*.txt"), &["*.txt", "holds no file"]);
    place.write("texts/a.txt", "words ".repeat(50));
    place.write("texts/image", b"\x89PNG\r\n");
    place.refuses(&format!("train {SMALL} --data texts"), &["texts/image", "not UTF-8", "pattern"]);
    place.write("lines.jsonl", "{\"body\": \"words\"}\n");
    place.refuses(&format!("train {SMALL} --data lines.jsonl"), &["line 1 of", "no column `text`", "body"]);
    place.refuses(&format!("train {SMALL} --data lines.jsonl --text-column title"), &["no column `title`"]);
    place.refuses(&format!("train {SMALL} --data texts/a.txt --text-column body"), &["--text-column", "no effect"]);
    place.refuses(&format!("train {SMALL} --data markov --held-out 0.1"), &["--held-out", "no effect", "markov"]);
    place.refuses(&format!("train {SMALL} --data texts/a.txt --held-out 1"), &["--held-out is 1", "below 1"]);
    place.refuses(
        &format!("train {SMALL} --data texts/a.txt --eval-every 1 --held-out 0.99"),
        &["held out", "--eval-data"],
    );
}

#[test]
fn a_truncated_copy_is_cut_again() {
    let place = Place::new();
    texts(&place);
    let line = format!("train {SMALL} --data texts --num-steps 3 --json");
    let losses = place.succeeds(&line).losses();
    let tokens = kept(&place).into_iter().find(|path| path.extension().unwrap() == "tokens").unwrap();
    let whole = fs::read(&tokens).unwrap();
    fs::write(&tokens, &whole[..whole.len() / 2]).unwrap();
    let done = place.succeeds(&line);
    assert!(done.stderr.contains("tokenizing 4 files"), "{}", done.stderr);
    assert_eq!(done.losses(), losses);
    assert!(fs::read(&tokens).unwrap() == whole);
}

#[test]
fn a_file_keeps_its_windows_and_an_evaluated_one_holds_its_end_out() {
    let place = Place::new();
    // The end is a letter that training never sees: a model that had seen it would find it likely.
    place.write("a.txt", "ab".repeat(950) + &"z".repeat(100));
    let line = "train --size nano --batch-size 4 --seq-len 16 --data a.txt --learning-rate 1e-2 --num-steps 40 --json";
    let evaluated = |flags: &str| {
        let done = place.succeeds(&format!("{line} --eval-every 40 {flags}"));
        let found = done.objects().iter().find_map(|object| object["eval_loss"].as_f64()).unwrap();
        (found, *done.losses().last().unwrap())
    };
    let (held_out, trained) = evaluated("");
    assert!(trained < 0.5 && held_out > 4.0, "{held_out} {trained}");
    let (seen, _) = evaluated("--held-out 0");
    assert!(seen < 2.0, "{seen}");
}
