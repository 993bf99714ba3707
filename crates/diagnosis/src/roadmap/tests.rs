//! Findings with known costs, in one step of 1,000 µs without a device, so everything removed is saved.

use super::*;
use crate::finding::Severity;
use crate::measures::intervals::Span;
use crate::simulation::tests::trace_of;
use crate::trace_rules::Found;

const WALL: i64 = 1_000;

/// A finding that removes the host's time from `start` to `end`, in microseconds.
fn finding(code: &'static str, effort: Effort, start: i64, end: i64) -> TraceFinding {
    let mut found = Found::new(None, format!("{code} costs"), "do less");
    if end > start {
        found.removal.host = vec![Span { start: 1_000 * start, end: 1_000 * end }];
    }
    TraceFinding {
        code,
        name: "a-cost",
        cause: Cause::GpuIdle,
        severity: Severity::Low,
        share_of_step: None,
        saving_bound_share: None,
        saving_expected_share: 0.0,
        message: found.message.clone(),
        function: None,
        place: None,
        sources: Vec::new(),
        evidence: Vec::new(),
        advice: found.advice.clone(),
        effort,
        confidence: Confidence::High,
        found,
    }
}

fn roadmap_of(findings: &mut [TraceFinding]) -> Roadmap {
    let trace = trace_of(WALL, &[("cpu_op", "a", 1, 0, WALL, 0)]);
    priced(&View::new(&trace), findings)
}

/// Sets the savings as `cost::price` does for findings without a share.
fn priced(view: &View, findings: &mut [TraceFinding]) -> Roadmap {
    let simulation = Simulation::new(view);
    for finding in findings.iter_mut().filter(|finding| !finding.found.removal.is_empty()) {
        let bound = simulation.saved_share(&finding.found.removal);
        let expected = finding.found.expected.as_ref();
        finding.saving_expected_share = expected.map_or(bound, |expected| simulation.saved_share(expected).min(bound));
        finding.saving_bound_share = told(bound);
    }
    roadmap(view, &simulation, findings)
}

/// The bound of an item, which has to have one.
fn alone(item: &RoadmapItem) -> f64 {
    item.alone_share.expect("says something")
}

fn close(left: f64, right: f64) -> bool {
    (left - right).abs() < 1e-9
}

#[test]
fn each_saving_counts_beyond_those_before_it() {
    let mut findings = [finding("TR001", Effort::Low, 0, 400), finding("TR002", Effort::Low, 300, 600)];
    let made = roadmap_of(&mut findings);
    let shares: Vec<(f64, f64)> = made.items.iter().map(|item| (alone(item), item.additional_share)).collect();
    assert!(close(shares[0].0, 0.4) && close(shares[0].1, 0.4), "{shares:?}");
    assert!(close(shares[1].0, 0.3) && close(shares[1].1, 0.2), "{shares:?}");
    assert!(close(made.total_saving_bound_share, 0.6));
    assert!(close(made.step_seconds_now, 1e-3) && close(made.step_seconds_at_best, 0.4e-3));
    assert!(
        findings[0].saving_bound_share == made.items[0].alone_share
            && findings[1].saving_bound_share == made.items[1].alone_share
    );
    assert_eq!((made.items[0].message.as_str(), made.items[0].advice.as_str()), ("TR001 costs", "do less"));
}

#[test]
fn little_effort_comes_first_unless_much_more_is_saved() {
    let codes = |findings: &mut [TraceFinding]| -> Vec<&'static str> {
        roadmap_of(findings).items.iter().map(|item| item.code).collect()
    };
    let mut close_by = [finding("TR001", Effort::High, 0, 390), finding("TR002", Effort::Low, 400, 500)];
    assert_eq!(codes(&mut close_by), ["TR002", "TR001"], "a quarter of the saving, a quarter of the effort");
    let mut far = [finding("TR001", Effort::High, 0, 410), finding("TR002", Effort::Low, 500, 600)];
    assert_eq!(codes(&mut far), ["TR001", "TR002"]);
    let mut medium = [finding("TR001", Effort::Medium, 0, 190), finding("TR002", Effort::Low, 200, 300)];
    assert_eq!(codes(&mut medium), ["TR002", "TR001"]);
    let mut medium = [finding("TR001", Effort::Medium, 0, 210), finding("TR002", Effort::Low, 300, 400)];
    assert_eq!(codes(&mut medium), ["TR001", "TR002"]);
    let mut equal = [finding("TR009", Effort::Low, 0, 100), finding("TR003", Effort::Low, 200, 300)];
    assert_eq!(codes(&mut equal), ["TR003", "TR009"], "of two alike the first code");
    equal[0].share_of_step = Some(0.1);
    assert_eq!(codes(&mut equal), ["TR009", "TR003"], "of two that save the same the one that costs more");
}

#[test]
fn what_saves_next_to_nothing_is_left_out() {
    let mut findings = [finding("TR001", Effort::Low, 0, 0), finding("TR002", Effort::Low, 10, 11)];
    let made = roadmap_of(&mut findings);
    assert_eq!(made.items.iter().map(|item| item.code).collect::<Vec<_>>(), ["TR002"], "{made:?}");
    assert!(close(alone(&made.items[0]), 0.001));
    let none = roadmap_of(&mut []);
    assert!(none.items.is_empty() && close(none.total_saving_bound_share, 0.0));
    assert!(close(none.step_seconds_at_best, 1e-3));
}

#[test]
fn no_more_is_saved_than_there_is() {
    let mut findings = [finding("TR001", Effort::Low, -500, 700), finding("TR002", Effort::Low, 300, 2_000)];
    let made = roadmap_of(&mut findings);
    assert!(made.items.iter().all(|item| (0.0..=1.0).contains(&item.additional_share)), "{made:?}");
    assert!(close(made.total_saving_bound_share, 1.0) && close(made.step_seconds_at_best, 0.0));
}

#[test]
fn two_costs_that_hide_each_other_are_worth_more_together() {
    // A kernel runs in parallel with the host's own work: removing either alone saves little.
    let trace = trace_of(
        WALL,
        &[
            ("cuda_runtime", "cudaLaunchKernel", 1, 0, 10, 1),
            ("kernel", "k", 7, 10, 890, 1),
            ("cuda_runtime", "cudaStreamSynchronize", 1, 890, 10, 9),
        ],
    );
    let view = View::new(&trace);
    let mut findings = [finding("TR001", Effort::Low, 20, 880), finding("TR002", Effort::Low, 0, 0)];
    findings[0].found.removal.host.push(Span { start: 950_000, end: 1_000_000 });
    findings[1].found.removal.device.insert(0, 0);
    let made = priced(&view, &mut findings);
    // Each alone saves little: the host's end, and 10 µs of waiting. Without the host's work, the kernel is all there
    // is.
    let kernel = made.items.iter().find(|item| item.code == "TR002").expect("saves something");
    assert!(close(alone(&made.items[0]), 0.05) && made.items[0].code == "TR001", "{made:?}");
    assert!(close(kernel.additional_share, 0.87) && close(alone(kernel), 0.87), "{made:?}");
    assert!(
        close(made.total_saving_bound_share, 0.92) && findings[1].saving_bound_share == kernel.alone_share,
        "{made:?}"
    );
}

#[test]
fn expected_and_bound_are_two_numbers_and_the_order_goes_by_what_is_expected() {
    let mut findings = [
        finding("TR001", Effort::Low, 0, 600),
        finding("TR002", Effort::Low, 600, 900),
        finding("TR003", Effort::Low, 0, 0),
    ];
    // The first saves at most 600 µs; 100 are expected.
    findings[0].found.expected = Some(Removal { host: vec![Span { start: 0, end: 100_000 }], ..Removal::default() });
    let made = roadmap_of(&mut findings);
    let codes: Vec<&str> = made.items.iter().map(|item| item.code).collect();
    assert_eq!(codes, ["TR002", "TR001"]);
    let first = &made.items[1];
    assert!(close(alone(first), 0.6) && close(first.expected_share, 0.1), "{made:?}");
    assert!(
        close(first.additional_expected_share, 0.1) && close(first.bound_step_seconds.expect("says something"), 0.4e-3),
        "{made:?}"
    );
    assert!(close(first.expected_step_seconds, 0.9e-3));
    assert!(close(made.total_saving_bound_share, 0.9) && close(made.total_saving_expected_share, 0.4), "{made:?}");
    assert!(close(made.step_seconds_expected, 0.6e-3) && close(made.step_seconds_at_best, 0.1e-3), "{made:?}");
    assert_eq!(made.outside_bound, ["TR003 a-cost"], "what has no model is said");
    assert!(close(findings[0].saving_expected_share, 0.1));
}

#[test]
fn idle_time_that_nothing_explains_comes_after_what_explains_some() {
    let mut findings = [finding("TR102", Effort::Low, 0, 900), finding("TR101", Effort::High, 100, 300)];
    findings[1].cause = Cause::HostSync;
    let made = roadmap_of(&mut findings);
    let shares: Vec<(&str, f64)> = made.items.iter().map(|item| (item.code, item.additional_share)).collect();
    assert_eq!((shares[0].0, shares[1].0), ("TR101", "TR102"));
    assert!(close(shares[0].1, 0.2) && close(shares[1].1, 0.7), "{shares:?}");
    assert_eq!(made.items[1].model, crate::what_if::model(Cause::GpuIdle).unwrap_or_default());
}

#[test]
fn a_bound_that_leaves_next_to_nothing_of_the_step_is_absent() {
    let mut findings = [finding("TR001", Effort::Low, 0, 951), finding("TR002", Effort::Low, 951, 1_000)];
    let made = roadmap_of(&mut findings);
    assert_eq!((made.items[0].alone_share, made.items[0].bound_step_seconds), (None, None));
    assert!(close(made.items[0].expected_share, 0.951) && close(alone(&made.items[1]), 0.049), "{made:?}");
}
