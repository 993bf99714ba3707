//! Several traces at once: ranks of one run are joined, other runs are separate, and none is silently dropped.

use crate::place::{Done, Place};
use serde_json::Value;
use std::path::Path;

const TRAIN: &str = "import torch\noptimizer = torch.optim.SGD()\nfor _ in range(20):\n    optimizer.step()\n";

fn rank(rank: u32, world: u32, base: i64) -> String {
    let event = r#"{"ph":"X","cat":"cpu_op","name":"aten::mm","pid":1,"tid":1,"ts":1,"dur":9}"#;
    format!(
        r#"{{"distributedInfo": {{"backend": "gloo", "rank": {rank}, "world_size": {world}}}, "baseTimeNanoseconds": {base},
            "traceEvents": [{event}]}}"#
    )
}

const TODAY: i64 = 1_790_857_026_000_000_000;
const DAY: i64 = 86_400_000_000_000;

fn json(done: &Done) -> Value {
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    serde_json::from_str(&done.stdout).unwrap()
}

#[test]
fn ranks_of_one_run_are_one_analysis_and_two_runs_are_two() {
    let place = Place::new();
    place.write("r0.json", rank(0, 2, TODAY));
    place.write("r1.json", rank(1, 2, TODAY));
    place.write("late.json", rank(1, 2, TODAY + DAY));
    place.write("other.json", rank(1, 4, TODAY));
    let one = json(&place.run("analyze r0.json r1.json --json"));
    assert_eq!(one["ranks"]["ranks"].as_array().map(Vec::len), Some(2), "{}", one["ranks"]);
    for (second, why) in [
        ("late.json", "late.json was recorded at another time"),
        ("other.json", "other.json is from a run of 4 ranks, not 2"),
        ("r0.json", "r0.json is a second trace of rank 0"),
    ] {
        let two = json(&place.run(&format!("analyze r0.json {second} --json")));
        assert_eq!(two["runs"].as_array().map(Vec::len), Some(2), "{second}");
        assert_eq!(two["runs"][1]["trace"]["name"], *second);
        assert_eq!(two["apart"], *why);
    }
    let text = place.succeeds("analyze r0.json late.json").stdout;
    assert!(text.starts_with("2 runs, each analyzed on its own: late.json was recorded at another time\n"), "{text}");
    assert!(text.contains("\nr0.json: no steps found") && text.contains("\nlate.json: no steps found"), "{text}");
    place.refuses("analyze r0.json late.json --format html", &["a page of one run", "another time"]);
    place.refuses("analyze r0.json late.json --step-without-profiler 3", &["applies to one run"]);
    place.refuses("analyze r0.json late.json --rank 0", &["--rank 0: no trace"]);
}

#[test]
fn a_folder_of_recordings_is_not_one_of_ranks() {
    let place = Place::new();
    place.write("train.py", TRAIN);
    let torch = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/fake_torch");
    let record = |number: u32, folder: &str| {
        let done = place.shell(&format!(
            "RANK={number} PYTHONDONTWRITEBYTECODE=1 PYTHONPATH={} $HEADROOM record --output-dir {folder} -- python3 train.py",
            torch.display()
        ));
        assert_eq!(done.code, Some(0), "{}", done.stderr);
    };
    // By name these are ranks 0 and 1, but they are two recordings.
    record(0, "recordings/first");
    record(1, "recordings/second");
    std::fs::create_dir(place.path("both")).unwrap();
    for folder in ["first", "second"] {
        for entry in std::fs::read_dir(place.path(&format!("recordings/{folder}"))).unwrap().flatten() {
            if entry.path().is_file() {
                std::fs::copy(entry.path(), place.path("both").join(entry.file_name())).unwrap();
            }
        }
    }
    let both = json(&place.run("analyze both --json"));
    assert_eq!(both["runs"].as_array().map(Vec::len), Some(2), "{both}");
    assert!(both["apart"].as_str().is_some_and(|why| why.ends_with("is from another recording")), "{}", both["apart"]);
    place.refuses("analyze recordings", &["holds no trace", "first, second"]);
    place.refuses("compare both both", &["both holds traces of 2 runs", "another recording"]);
    place.refuses("lint train.py --trace both", &["--trace holds traces of 2 runs"]);
}
