//! Selective updates, and the experiment around them.

use crate::home::place_with_peaks;
use crate::place::{Place, SMALL};
use headroom_record::provenance::check_provenance;
use serde_json::Value;

fn weights(place: &Place, folder: &str) -> [Vec<u8>; 2] {
    ["model.safetensors", "optimizer.safetensors"].map(|file| place.read(&format!("{folder}/{file}")))
}

#[test]
fn choosing_everything_saves_the_bytes_of_a_dense_run() {
    let place = Place::new();
    place.succeeds(&format!("train {SMALL} --clip 0.5 --num-steps 6 --save dense"));
    place.succeeds(&format!("train {SMALL} --clip 0.5 --num-steps 6 --save all --update topk:all"));
    assert!(weights(&place, "dense") == weights(&place, "all"));
}

#[test]
fn a_run_says_what_it_updated_and_what_it_works_on() {
    let place = Place::new();
    let done = place.succeeds(&format!("train {SMALL} --num-steps 8 --log-interval 4 --update path --output-dir o"));
    assert!(done.stdout.contains("update path of 21 nodes"), "{}", done.stdout);
    assert!(done.stdout.contains("Steps 1 to 8 worked mostly on "), "{}", done.stdout);
    let log = String::from_utf8(place.read("o/training_output.log")).unwrap();
    let line = log.lines().find(|line| line.starts_with("Step 8/8")).unwrap();
    assert!(line.contains("samples/s") && line.ends_with('%') && line.contains(", on "), "{line}");
    let record = place.json("o/attribution.json");
    check_provenance(&record).unwrap();
    assert_eq!((record["update"].as_str(), record["total_steps"].as_u64()), (Some("path"), Some(8)));
    let lists = ["nodes", "updates", "moved"].map(|key| record[key].as_array().unwrap().clone());
    assert!(lists.iter().all(|list| list.len() == 21));
    for (updates, moved) in lists[1].iter().zip(&lists[2]) {
        assert_eq!(updates.as_u64() > Some(0), moved.as_f64() > Some(0.0), "{record}");
    }
    let chosen = record["chosen"].as_array().unwrap();
    let times = |node: usize| chosen.iter().filter(|step| step.as_array().unwrap().contains(&node.into())).count();
    assert!((0..21).all(|node| lists[1][node] == times(node)));
    // At every step, one leaf takes the full update.
    let shares = record["shares"].as_array().unwrap();
    assert!(shares.iter().all(|step| step.as_array().unwrap().iter().filter(|share| **share == 1.0).count() == 1));
}

#[test]
fn a_run_that_chooses_goes_on_to_the_byte_also_from_its_own_folder() {
    let place = Place::new();
    for update in ["topk:3", "random:3"] {
        place.succeeds(&format!("train {SMALL} --num-steps 8 --update {update} --save straight --overwrite"));
        place.succeeds(&format!("train {SMALL} --num-steps 4 --update {update} --save ck --overwrite"));
        place.succeeds("train --resume ck --num-steps 8 --save ck --output-dir o --overwrite");
        assert!(weights(&place, "straight") == weights(&place, "ck"), "{update}");
        let [straight, cut] = ["straight", "ck"].map(|folder| place.json(&format!("{folder}/training_state.json")));
        assert_eq!(straight["node_steps"], cut["node_steps"]);
        assert_eq!(straight["node_steps"].as_object().unwrap().len(), 21);
        assert_eq!(place.json("o/attribution.json")["steps"], serde_json::json!([5, 6, 7, 8]));
    }
    // A dense run after it continues with separate counts, and says so.
    let done = place.succeeds("train --resume ck --num-steps 9 --update dense");
    assert!(done.stderr.contains("different numbers of updates"), "{}", done.stderr);
}

#[test]
fn the_tree_is_shown_with_its_parameters() {
    let place = Place::new();
    let shown = place.succeeds("train --size nano --show-tree").stdout;
    assert!(shown.starts_with("model ") && shown.contains("202,048") && shown.contains("│  │  ├─ q_proj"), "{shown}");
    assert!(shown.ends_with("21 leaves to choose from\n"), "{shown}");
    assert!(place.succeeds("train --size nano --tied --show-tree").stdout.ends_with("20 leaves to choose from\n"));
    let object: Value = serde_json::from_str(&place.succeeds("train --size nano --show-tree --json").stdout).unwrap();
    assert_eq!((object["leaves"].as_u64(), object["nodes"][0]["parameters"].as_u64()), (Some(21), Some(202_048)));
    assert_eq!(place.names(), [] as [String; 0]);
}

#[test]
fn rules_that_cannot_be_followed_are_refused() {
    let place = Place::new();
    for (update, words) in [
        ("topk:0", ["--update", "from 1 up"]),
        ("topk:22", ["chooses 22 nodes", "has 21"]),
        ("random:all", ["--update", "not a number of nodes"]),
        ("sometimes", ["`sometimes`", "random:K"]),
    ] {
        place.refuses(&format!("train {SMALL} --num-steps 1 --update {update}"), &words);
    }
    place.refuses("k1 --k 22", &["--k 22", "21 nodes"]);
    place.refuses("k1 --device null", &["computes nothing"]);
}

#[test]
fn a_profile_of_a_run_that_chooses_has_it_in_its_report() {
    let place = place_with_peaks();
    place.succeeds(&format!("profile {SMALL} --num-steps 8 --update topk:2 --output-dir o"));
    let [markdown, html] = ["o/report.md", "o/report.html"].map(|file| String::from_utf8(place.read(file)).unwrap());
    assert!(markdown.contains("## Updated nodes") && markdown.contains("Updated by topk:2 over 8 steps"));
    assert!(html.contains("Updated nodes") && html.contains("Nodes over steps"));
}

#[test]
fn the_experiment_holds_every_rule_against_its_controls() {
    let place = Place::new();
    let line = "k1 --steps 8 --dense-steps 3 --sources 2 --seeds 2 --k 3 --eval-batches 1 --output-dir k --json";
    let record: Value = serde_json::from_str(&place.succeeds(line).stdout).unwrap();
    assert_eq!(record, place.json("k/k1.json"));
    check_provenance(&record).unwrap();
    let runs = record["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 2 * 2 * 4);
    for run in runs.iter().filter(|run| run["budget"] == "equal_steps") {
        assert_eq!(run["steps"], 16, "{run}");
    }
    let budget = 2 * 3 * 202_048;
    for run in runs.iter().filter(|run| run["budget"] == "equal_updates") {
        let updated = run["updated_parameters"].as_u64().unwrap();
        assert!((budget..2 * budget).contains(&updated), "{run}");
    }
    let text = String::from_utf8(place.read("k/k1.md")).unwrap();
    for words in ["At equal steps", "random:3", "Differences beyond the noise", "forgetting"] {
        assert!(text.contains(words), "{words}");
    }
    place.refuses(line, &["already holds an experiment"]);
    assert!(place.succeeds("runs list").stdout.contains("k1"));
}

/// Losses of every run, regardless of order and times.
fn losses(record: &Value) -> Vec<String> {
    let of = |run: &Value| {
        format!("{} {} {} {} {}", run["task"], run["arm"], run["seed"], run["steps_per_phase"], run["losses"])
    };
    let mut all: Vec<String> = record["runs"].as_array().unwrap().iter().map(of).collect();
    all.sort();
    all
}

#[test]
fn the_experiment_on_a_tree_answers_its_questions_and_goes_on_after_a_kill() {
    let place = Place::new();
    let line = "k1 --model tree --branching 2-2 --steps 4 --dense-steps 2 --seeds 2 --k 2 --eval-batches 1 --threads 1";
    let record: Value = serde_json::from_str(&place.succeeds(&format!("{line} --output-dir k --json")).stdout).unwrap();
    assert_eq!(record, place.json("k/k1-tree.json"));
    check_provenance(&record).unwrap();
    let lengths = ["answers", "arms"].map(|key| record[key].as_array().unwrap().len());
    // Two tasks, three quantities held equal, five arms; and one arm that updates no node, at equal steps.
    assert_eq!(lengths, [3, 2 * (3 * 5 + 1)]);
    let arms: Vec<&str> =
        record["arms"].as_array().unwrap()[..6].iter().map(|arm| arm["arm"].as_str().unwrap()).collect();
    assert_eq!(arms, ["dense", "topk:2", "path", "random:2", "no node", "llama"]);
    let parameters = ["parameters", "llama_parameters"].map(|key| record["design"][key].as_f64().unwrap());
    assert!((parameters[1] / parameters[0] - 1.0).abs() < 0.01, "{parameters:?}");
    let text = String::from_utf8(place.read("k/k1-tree.md")).unwrap();
    for words in ["Does the hierarchy help?", "better than chance?", "prevent forgetting?", "Texts at equal FLOPs"] {
        assert!(text.contains(words), "{words}");
    }
    place.refuses(&format!("{line} --output-dir k"), &["already holds an experiment", "--resume"]);

    let cut = place.start(&format!("{line} --output-dir cut"));
    cut.has_written(&place.path("cut/k1-tree.json"));
    cut.kill();
    let kept = losses(&place.json("cut/k1-tree.json"));
    assert!(!kept.is_empty() && kept.len() < losses(&record).len(), "{}", kept.len());
    place.refuses(&format!("{line} --output-dir cut --resume --seed 7"), &["another design"]);
    let done = place.succeeds(&format!("{line} --output-dir cut --resume"));
    assert!(done.stderr.contains("runs are already done"), "{}", done.stderr);
    assert_eq!(losses(&place.json("cut/k1-tree.json")), losses(&record));
    place.refuses("k1 --resume", &["--model tree"]);
    place.refuses("k1 --model tree --branching 2-2 --k 8 --output-dir other", &["7 nodes of the tree"]);
}

#[test]
fn habits_of_the_bottleneck_report_are_timed_on_the_tree() {
    let place = Place::new();
    let line = "k1 --model tree --speed --time 1 --branching 2 --k 1 --threads 1 --output-dir s --json";
    let record: Value = serde_json::from_str(&place.succeeds(line).stdout).unwrap();
    assert_eq!(record, place.json("s/k1-speed.json"));
    check_provenance(&record).unwrap();
    let rows = record["rows"].as_array().unwrap();
    assert!(rows.len() == 5 && rows.iter().all(|row| row["speedup"].as_f64() > Some(0.0)), "{rows:?}");
    let text = String::from_utf8(place.read("s/k1-speed.md")).unwrap();
    for words in ["norms ranked on the device", "32 in one batch", "3-5x", "hidden by the average"] {
        assert!(text.contains(words), "{words}");
    }
    place.refuses(line, &["already holds results of this kind"]);
    place.refuses("k1 --speed", &["--model tree"]);
}
