//! Properties of the cost of findings, over every trace and run that is stored in the project.

use std::path::{Path, PathBuf};

use headroom_trace::read_file;

use crate::measures::intervals::{covered, merged};
use crate::roadmap::RoadmapItem;
use crate::trace_rules::TraceFinding;
use crate::{Analysis, Options, analyze};

/// Every stored trace, by its path.
fn stored() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut folders = vec![root.join("../trace/tests/data"), root.join("tests/data/runs")];
    let mut found = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("is a folder") {
            let path = entry.expect("is readable").path();
            let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            match path.is_dir() {
                true => folders.push(path),
                false if name.ends_with(".trace.json.gz") || name.starts_with("trace_step_") => found.push(path),
                false => {}
            }
        }
    }
    found.sort();
    assert!(found.len() >= 10, "{found:?}");
    found
}

fn over_all(check: impl Fn(&str, &Analysis)) {
    for path in stored() {
        let trace = read_file(&path).expect("is a trace");
        let analysis = analyze(&[trace], &Options::default()).expect("there is a trace");
        check(&path.display().to_string(), &analysis);
    }
}

const ROUNDING: f64 = 1e-9;

#[test]
fn expected_is_at_most_the_bound_and_the_bound_at_most_share_and_step() {
    over_all(|path, analysis| {
        for finding in &analysis.findings {
            let (expected, share) = (finding.saving_expected_share, finding.share_of_step.unwrap_or(1.0));
            assert!((0.0..=share + ROUNDING).contains(&expected) && share <= 1.0, "{path}: {finding:?}");
            if let Some(bound) = finding.saving_bound_share {
                assert!(expected <= bound + ROUNDING && bound <= share + ROUNDING, "{path}: {finding:?}");
            }
        }
        let roadmap = &analysis.roadmap;
        let (expected, bound) = (roadmap.total_saving_expected_share, roadmap.total_saving_bound_share);
        assert!((0.0..=bound + ROUNDING).contains(&expected) && bound <= 1.0 + ROUNDING, "{path}: {roadmap:?}");
        for item in &roadmap.items {
            assert!(item.additional_share <= item.alone_share.unwrap_or(1.0) + ROUNDING, "{path}: {item:?}");
        }
    });
}

#[test]
fn findings_and_roadmap_state_the_same_savings() {
    over_all(|path, analysis| {
        let same = |finding: &TraceFinding, item: &RoadmapItem| {
            finding.code == item.code
                && finding.message == item.message
                && finding.saving_expected_share == item.expected_share
                && finding.saving_bound_share == item.alone_share
        };
        let promising = analysis
            .findings
            .iter()
            .filter(|finding| finding.saving_expected_share > crate::constants::cost::LEAST_COST.get());
        assert_eq!(promising.clone().count(), analysis.roadmap.items.len(), "{path}");
        for finding in promising {
            assert!(analysis.roadmap.items.iter().any(|item| same(finding, item)), "{path}: {finding:?}");
        }
    });
}

#[test]
fn shares_of_findings_about_different_time_add_up_to_at_most_the_step() {
    over_all(|path, analysis| {
        // The largest first: each joins those whose time it does not touch.
        let (mut host, mut device, mut sum) = (Vec::new(), std::collections::HashSet::new(), 0.0);
        for finding in &analysis.findings {
            let removal = &finding.found.removal;
            let touches = removal.device.keys().any(|at| device.contains(at))
                || removal.host.iter().any(|span| covered(&host, *span) > 0);
            if removal.is_empty() || touches {
                continue;
            }
            device.extend(removal.device.keys().copied());
            host = merged([host, removal.host.clone()].concat());
            sum += finding.share_of_step.unwrap_or(0.0);
        }
        assert!(sum <= 1.0 + ROUNDING, "{path}: {sum}");
    });
}

#[test]
fn nothing_is_promised_for_a_window_without_a_steady_state() {
    // The first launch of a kernel takes 900 of 1,000 µs; a wait for the device would save something.
    let mut made = crate::fabricated::Fabricated::on("NVIDIA H200");
    let millis = 1_000_000;
    made.step(1, 0, 100 * millis);
    made.operator("aten::mm", 0, 60 * millis);
    made.launch((millis, 59 * millis), "k", (59 * millis, 60 * millis));
    made.operator("aten::item", 61 * millis, 99 * millis);
    made.span("cuda_runtime", "cudaStreamSynchronize", 1, 61 * millis, 99 * millis, "");
    made.launch((99 * millis, 99 * millis + 5_000), "k", (99 * millis + 10_000, 100 * millis));
    let analysis = analyze(&[made.trace()], &Options::default()).expect("there is a trace");
    assert!(analysis.trust.withheld.contains(&"steady-state"), "{:?}", analysis.trust);
    assert!(analysis.findings.iter().any(|finding| finding.code == "TR101"), "{:?}", analysis.findings);
    for finding in &analysis.findings {
        assert_eq!((finding.saving_expected_share, finding.saving_bound_share), (0.0, None), "{finding:?}");
    }
    assert!(analysis.roadmap.items.is_empty() && analysis.roadmap.total_saving_bound_share == 0.0);
}

/// Four steps: eight kernels of 1 ms that are launched at once, a read-back of the loss, then the host's own work.
fn read_back_before_work_of(millis: i64) -> Analysis {
    let (milli, mut made) = (1_000_000, crate::fabricated::Fabricated::on("NVIDIA H200"));
    let step = (8 + millis) * milli;
    for number in 0..4 {
        let start = number * step;
        made.step(number as u32 + 1, start, start + step);
        made.operator("aten::mm", start, start + 200_000);
        for kernel in 0..8 {
            let (call, work) = (start + 20_000 * kernel, start + milli * kernel + 10_000);
            made.launch((call, call + 5_000), "k", (work, work + milli - 1_000));
        }
        made.operator("aten::item", start + 300_000, start + 8 * milli + 50_000);
        made.span("cuda_runtime", "cudaStreamSynchronize", 1, start + 310_000, start + 8 * milli + 40_000, "");
    }
    analyze(&[made.trace()], &Options::default()).expect("there is a trace")
}

#[test]
fn a_wait_is_promised_the_work_that_its_removal_hides_behind_the_device() {
    let wait = |analysis: &Analysis| {
        let wait = analysis.findings.iter().find(|finding| finding.code == "TR101");
        wait.map(|wait| (wait.share_of_step.unwrap_or(0.0), wait.saving_expected_share)).expect("is reported")
    };
    // 1 ms of 9 and 6 ms of 14 could run beside the eight kernels; the last step's work has none after it.
    for (millis, least) in [(1, 0.08), (6, 0.3)] {
        let (share, expected) = wait(&read_back_before_work_of(millis));
        let most = millis as f64 / (8 + millis) as f64 + 0.01;
        assert!((least..=share).contains(&expected) && share <= most, "{millis} ms: {share} {expected}");
    }
    // The device works for 8 ms: no more of 40 ms is hidden.
    let (share, expected) = wait(&read_back_before_work_of(40));
    assert!(expected <= share && share <= 9.0 / 48.0, "{share} {expected}");
}
