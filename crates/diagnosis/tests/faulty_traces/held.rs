//! Holds all that is found in a made trace: what each finding says, costs and saves, and where the roadmap puts it.

use std::cell::Cell;
use std::fmt::Write;

use headroom_diagnosis::Analysis;
use headroom_diagnosis::trace_rules::TraceFinding;

thread_local! {
    static TAKEN: Cell<u32> = const { Cell::new(0) };
}

/// Holds the analysis under the name of the test, and its number among those of that test.
pub fn held(analysis: Analysis) -> Analysis {
    let number = TAKEN.with(|taken| taken.replace(taken.get() + 1));
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a test").replace("::", "-");
    let mut text = String::new();
    analysis.findings.iter().for_each(|finding| write_finding(&mut text, finding));
    let roadmap = &analysis.roadmap;
    for item in &roadmap.items {
        let shares = [item.alone_share, item.additional_share, item.expected_share, item.additional_expected_share];
        writeln!(text, "roadmap {}: {}", item.code, shares.map(|share| format!("{share:.4}")).join(", ")).unwrap();
    }
    let (best, expected) = (roadmap.step_seconds_at_best, roadmap.step_seconds_expected);
    writeln!(text, "step {:.6} s, at best {best:.6}, expected {expected:.6}", roadmap.step_seconds_now).unwrap();
    let steps = &analysis.measures.breakdown;
    writeln!(
        text,
        "{} steps of {:.6} s, device busy {:.4}",
        analysis.steps.list.len(),
        steps.wall_seconds,
        steps.busy_share
    )
    .unwrap();
    insta::assert_snapshot!(format!("{test}-{number}"), text);
    analysis
}

fn write_finding(text: &mut String, finding: &TraceFinding) {
    let share = finding.share_of_step.map_or("no share".into(), |share| format!("{share:.4}"));
    let (severity, confidence) = (finding.severity.name(), finding.confidence);
    let (bound, expected) = (finding.saving_bound_share, finding.saving_expected_share);
    writeln!(text, "{} {severity}, {confidence:?}: {share}, saves {expected:.4} to {bound:.4}", finding.code).unwrap();
    writeln!(text, "  {}\n  {}", finding.message, finding.advice).unwrap();
    finding.evidence.iter().for_each(|line| writeln!(text, "  - {line}").unwrap());
}
