//! Findings of `headroom lint` in every format.

mod coverage;
mod difference;
mod github;
mod gitlab;
mod json;
mod markdown;
mod sarif;
mod statistics;
mod text;

pub use difference::unified as difference;
pub use github::show as github;
pub use gitlab::show as gitlab;
pub use json::show as json;
pub use markdown::show as markdown;
pub use sarif::show as sarif;
pub use statistics::{show as statistics, show_as_json as statistics_as_json};
pub use text::show as text;

use headroom_lint::fix::Safety;
use headroom_lint::{SourceFinding, SourceReport};

/// The cost shown for a source finding that no trace has measured.
pub const UNMEASURED: &str = "unmeasured";

fn safety_name(safety: Safety) -> &'static str {
    match safety {
        Safety::Safe => "safe",
        Safety::Unsafe => "unsafe",
        Safety::Shown => "shown",
    }
}

/// `3.5% of the step (measured, TR101)`; for a cost that several lines share, also how many.
fn evidence(finding: &SourceFinding) -> String {
    finding.measured.as_ref().map_or_else(|| UNMEASURED.to_string(), headroom_lint::Measured::shown)
}

/// How many of the findings are measured.
fn how_measured(report: &SourceReport) -> String {
    match report.findings.iter().filter(|finding| finding.measured.is_some()).count() {
        0 => UNMEASURED.to_string(),
        count => format!("{count} measured, {} {UNMEASURED}", report.findings.len() - count),
    }
}

#[cfg(test)]
mod tests {
    use headroom_lint::{Input, Selection, SourceReport, lint};

    /// The rules' report on a small script with two faults.
    pub fn report() -> SourceReport {
        let script = "import torch\nfrom torch.utils.data import DataLoader\n\n\ndef train(model, data, optimizer):\n    loader = DataLoader(data, num_workers=2, pin_memory=True)\n    total = 0.0\n    for step, batch in enumerate(loader):\n        loss = model(batch.to(\"cuda\", non_blocking=True))\n        loss.backward()\n        optimizer.step()\n        total += loss.item()\n    return total\n";
        let input = Input { path: "train.py".to_string(), bytes: script.as_bytes().to_vec() };
        let codes = ["TP101".to_string(), "TP605".to_string()];
        lint(&[input], &Selection::new(&codes, &[]).expect("known codes"))
    }

    #[test]
    fn the_script_of_these_tests_has_two_findings() {
        let codes: Vec<&str> = report().findings.iter().map(|finding| finding.code).collect();
        assert_eq!(codes, ["TP605", "TP101"]);
    }
}
