//! The original course's commands, typed as it prints them: each test holds a figure or a sentence that the course asks
//! for.

use crate::home::place_with_peaks;
use crate::place::{Place, SMALL};

/// The part of a text from one line's start to another's.
fn between<'a>(text: &'a str, from: &str, to: &str) -> &'a str {
    let start = text.find(from).unwrap_or_else(|| panic!("no `{from}` in:\n{text}"));
    let rest = &text[start..];
    &rest[..rest.find(to).unwrap_or_else(|| panic!("no `{to}` after `{from}` in:\n{rest}"))]
}

#[test]
fn the_first_line_of_a_run_names_the_version_that_nobody_chose() {
    let place = place_with_peaks();
    let done = place.shell("$HEADROOM train --batch-size 8 --seq-len 128 --num-steps 20 > all.txt 2>&1");
    assert_eq!(done.code, Some(0));
    let all = String::from_utf8(place.read("all.txt")).unwrap();
    let first = all.lines().next().unwrap();
    assert!(first.contains("Version 2") && first.contains("--passes v1"), "{first}");
    assert!(first.contains("default") && first.contains("baseline"), "{first}");

    let is_said = |line: &str| place.succeeds(&format!("{line} {SMALL} --num-steps 2")).stderr.contains("Version 2");
    assert!(is_said("train"));
    assert!(is_said("profile --profile-steps 1"));
    for chosen in
        ["train --passes v1", "train --passes v2", "train --passes all", "train --json", "train --format json"]
    {
        assert!(!is_said(chosen), "{chosen}");
    }
    place.succeeds(&format!("train {SMALL} --passes v1 --num-steps 1 --save ck"));
    let resumed = place.succeeds("train --resume ck --num-steps 2");
    assert!(!resumed.stderr.contains("Version 2") && resumed.stdout.contains("v1, fp32"), "{}", resumed.stderr);
}

#[test]
fn standard_output_begins_with_the_model_as_before() {
    let place = Place::new();
    let text = place.succeeds(&format!("train {SMALL} --num-steps 1")).stdout;
    assert!(text.starts_with("LLaMA nano · v2, fp32 · 202,048 parameters\n"), "{text}");
    assert!(!text.contains("Version 2"), "{text}");
    let objects = place.succeeds(&format!("train {SMALL} --num-steps 1 --json")).objects();
    assert!(objects[0]["step"] == 1 && objects.last().unwrap()["summary"].is_object(), "{objects:?}");
}

/// Exercises 1 and 2: utilisation, and `Number of Allocations`.
#[test]
fn utilisation_and_allocations_are_in_the_text() {
    let place = place_with_peaks();
    let line = "train --batch-size 8 --seq-len 128 --num-steps 8 --passes v1 --profile-memory --profile-dir o";
    let text = place.succeeds(line).stdout;
    let share =
        place.json("o/performance_summary.json")["performance_summary"]["device_utilization_percent"].as_f64().unwrap();
    let summary = between(&text, "Performance Summary:", "Final loss:");
    assert!(summary.contains(&format!("\nDevice utilisation: {share:.1}% (share of the time")), "{summary}");
    assert!(text.contains(&format!("\n  Utilisation  {share:.1}% ")), "{text}");

    let memory = place.json("o/memory_analysis.json");
    assert_eq!(memory["allocations"], 219);
    let notes = between(&text, "\nMemory\n", "\nProfile files generated");
    assert!(notes.contains("\n  219 allocations per step, "), "{notes}");
}

#[test]
fn a_run_without_a_profile_shows_its_utilisation() {
    let place = Place::new();
    let text = place.succeeds(&format!("train {SMALL} --num-steps 3 --output-dir o")).stdout;
    let share =
        place.json("o/performance_summary.json")["performance_summary"]["device_utilization_percent"].as_f64().unwrap();
    assert!(text.contains(&format!("\nDevice utilisation: {share:.1}% (share of the time")), "{text}");
}

/// Exercise 3, steps 5 and 6: the ranking, and impact against effort.
#[test]
fn a_priority_is_a_flag_to_type_and_low_effort() {
    let place = place_with_peaks();
    let line = "profile --batch-size 8 --seq-len 128 --num-steps 8 --passes v1 --profile-dir o";
    let text = place.succeeds(line).stdout;
    let ranked = between(&text, "Bottlenecks by priority\n", "  Rank: ");
    let rows: Vec<&str> = ranked.lines().skip(2).collect();
    assert_eq!(rows.len(), 7, "{ranked}");
    assert!(rows.iter().all(|row| row.contains("at most ") && row.contains("--passes v1,+")), "{ranked}");
    let rest = between(&text, "No flag changes these\n", "\nMemory\n");
    for row in ["Kernel Launch Overhead", "Memory Fragmentation", "nothing to do: buffers are placed before the run"] {
        assert!(rest.contains(row) && !ranked.contains(row), "{row}: {ranked}{rest}");
    }

    let categories = place.json("o/operator_analysis.json")["bottlenecks"]["categories"].clone();
    for row in categories.as_array().unwrap() {
        let is_flag = row["remedy"].as_str().unwrap().starts_with("--passes");
        assert_eq!((row["effort"] == "low", row["speedup_at_most"].is_number()), (is_flag, is_flag), "{row}");
    }

    for page in ["o/report.md", "o/report.html"] {
        let page = String::from_utf8(place.read(page)).unwrap();
        let fields = between(&page, "High impact, low effort", "Furthest from the roof");
        assert!(!fields.contains("nothing to do") && fields.contains("--passes v1,+fuse-loss"), "{fields}");
        assert!(page.contains("No flag changes these") && page.contains("219 allocations per step"), "{page}");
    }

    let applied = place.succeeds(&format!("profile {SMALL} --num-steps 4 --passes all --output-dir all")).stdout;
    let none = between(&applied, "Bottlenecks by priority\n", "No flag changes these\n");
    assert!(none.contains("None: no pass") && !none.contains("rank"), "{none}");
}

#[test]
fn help_names_the_courses_learning_rate_beside_the_default() {
    let help = Place::new().succeeds("train --help").stdout;
    let rate = between(&help, "--learning-rate", "--lr-schedule").split_whitespace().collect::<Vec<_>>().join(" ");
    for words in ["original course trains with 1e-4", "default: 3e-4", "stored PyTorch runs"] {
        assert!(rate.contains(words), "{words}: {rate}");
    }
}
