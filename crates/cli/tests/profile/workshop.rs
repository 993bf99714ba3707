//! Python readers, as in the workshop's exercises, find their figures in the folders where they look.

use crate::runs::{headroom, said, tiny};
use std::process::Command;

/// Opens the files as exercises 2 and 3 do and formats their figures as printed there: a figure that is missing, null
/// or text is an error.
const READER: &str = r#"
import json, sys
flops = json.load(open("./bottleneck_analysis/flops_analysis/flops_profile.json"))
numbers = [flops["efficiency_metrics"]["mfu_percent"], flops["performance_metrics"]["flops_per_sec"],
           flops["efficiency_metrics"]["device_peak_flops"], flops["flops_analysis"]["flops_per_parameter"],
           flops["performance_metrics"]["throughput_samples_per_sec"]]
print(" ".join(f"{number:.2e}" for number in numbers))
for path in ("./bottleneck_analysis/flops_analysis/computational_intensity.json", "./bandwidth_analysis/computational_intensity.json"):
    data = json.load(open(path))
    keys = ("arithmetic_intensity_flops_per_byte", "memory_bandwidth_used_gb_per_sec", "memory_bandwidth_utilization_percent")
    print(" ".join(f"{data[key]:.2f}" for key in keys), data["memory_bound_vs_compute_bound"])
summary = json.load(open("./exercise1_profiles/performance_summary.json"))["performance_summary"]
print(f'{summary["avg_training_speed"]:.1f} {summary["peak_memory_mb"]:.0f} {summary["final_loss"]:.4f}')
"#;

/// The workshop's folders, each with the flags of the exercise that fills it.
const EXERCISES: [(&str, &str); 3] = [
    ("profile", "./bottleneck_analysis"),
    ("train --computational-intensity", "./bandwidth_analysis"),
    ("train --enable-pytorch-profiler", "./exercise1_profiles"),
];

#[test]
fn pythons_readers_find_every_figure() {
    let place = tempfile::tempdir().unwrap();
    for (command, folder) in EXERCISES {
        let arguments = command.split(' ').chain(["--size", "nano", "--num-steps", "6", "--profile-dir", folder]);
        let done = headroom().args(arguments).current_dir(place.path()).output().unwrap();
        assert!(done.status.success(), "{}", said(&done));
    }
    let python = Command::new("python3").args(["-c", READER]).current_dir(place.path()).output();
    let Ok(output) = python else {
        assert!(std::env::var_os("CI").is_none(), "CI has no python3 to read with");
        return;
    };
    let (said, complaint) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{complaint}");
    assert_eq!(said.lines().count(), 4);
    assert!(said.contains("_bound"), "{said}");
}

/// The course's commands, typed as in the course, work or are answered with the command to use.
#[test]
fn commands_of_the_course_do_what_they_say() {
    let place = tempfile::tempdir().unwrap();
    let run = |line: &str| headroom().args(line.split(' ')).current_dir(place.path()).output().unwrap();
    let succeeds = |line: &str| {
        let done = run(line);
        assert!(done.status.success(), "{line}: {}", said(&done));
        said(&done)
    };
    succeeds(
        "train --size nano --num-steps 6 --enable-pytorch-profiler --profile-dir ./profiles --output-dir ./output",
    );
    let files = |folder: &str| {
        let entries = std::fs::read_dir(place.path().join(folder)).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect::<Vec<_>>()
    };
    for folder in ["profiles", "output"] {
        let names = files(folder);
        let traces = names.iter().filter(|name| name.ends_with(".json") && name.contains("trace")).count();
        assert_eq!(traces, 2, "{folder}: {names:?}");
    }
    assert!(!files("profiles").contains(&"config.json".to_string()), "a copy of the profile is not the run");
    succeeds("train --size nano --num-steps 2 --profile-dir ./alone");
    succeeds("train --config alone/run.toml");

    let existing = "profile --analyze-existing ./output/pytorch_profiling --generate-report --output-dir ./detailed";
    let analyzed = succeeds(existing);
    assert!(analyzed.contains("in its own folder: reading") && analyzed.contains("the pace"), "{analyzed}");
    let mut written = files("detailed");
    written.sort();
    assert_eq!(written, ["analysis.json", "report.html", "report.md"]);
    assert!(succeeds("analyze ./profiles").contains("the pace"));

    let refused = run("train --precision fp16");
    assert_eq!(refused.status.code(), Some(2));
    assert!(said(&refused).contains("--precision bf16"), "{}", said(&refused));
}

/// The lesson's figures are derived by hand; the tool computes the same.
#[test]
fn figures_of_the_lesson_are_those_of_the_tool() {
    let page =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/workshop/0-architecture.md")).unwrap();
    let flops = &tiny().json("flops_profile.json");
    let analysis = &flops["flops_analysis"];
    let counted = [
        &flops["model_info"]["total_params"],
        &analysis["forward_flops"],
        &analysis["backward_flops"],
        &analysis["optimizer_flops"],
        &analysis["avg_flops_per_step"],
        &analysis["needed_forward_flops"],
        &analysis["needed_flops_per_step"],
    ];
    for figure in counted {
        let figure = with_commas(figure.as_u64().unwrap());
        assert!(page.contains(&figure), "{figure} is not in the lesson");
    }
    let activations = tiny().json("memory_analysis.json")["by_category"]["activations"].as_f64().unwrap();
    assert!(page.contains(&format!("**{activations:.2} MiB**")), "{activations}");
}

fn with_commas(figure: u64) -> String {
    let digits = figure.to_string();
    let groups: Vec<&str> =
        digits.as_bytes().rchunks(3).rev().map(|group| std::str::from_utf8(group).unwrap()).collect();
    groups.join(",")
}
