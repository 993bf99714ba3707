//! TR136 metrics-each-step: a library's metrics are computed at every step.
//! Training does not need them there.

use std::collections::BTreeSet;

use headroom_trace::Category;

use super::{Evidence, Found, TraceRule, for_nothing, percent};
use crate::constants::metrics_each_step::LEAST_STEPS;
use crate::constants::tr136;
use crate::finding::{Cause, Confidence, Effort};
use crate::measures::python::frame;
use crate::measures::recomputed::Recomputed;
use crate::measures::view::View;

pub const RULE: TraceRule = TraceRule {
    code: "TR136",
    name: "metrics-each-step",
    cause: Cause::Recomputed,
    page: include_str!("metrics_each_step.md"),
    effort: Effort::Low,
    check,
};

fn check(evidence: &Evidence) -> Vec<Found> {
    let metrics = &metrics_each_step(evidence.view);
    let said = |share| {
        format!(
            "metrics are computed at every step, in {:.0} library call(s): {} of the step",
            metrics.parts_per_step,
            percent(share)
        )
    };
    let advice = "compute them at an interval, or only in validation; keep logged values on the device until \
                  then, and switch off the library's input checks (validate_args=False)";
    let mut found = for_nothing::found(evidence, &tr136::NEEDLESS_SHARE, metrics, said, advice);
    found.iter_mut().for_each(|found| found.confidence = Confidence::Medium);
    found.into_iter().collect()
}

/// Packages that do nothing but compute metrics.
const LIBRARIES: &[&str] = &["torchmetrics", "torcheval"];

/// Calls into such a library, with all the work they launch.
fn metrics_each_step(view: &View) -> Recomputed {
    let host = &view.trace.host;
    let calls = view.host_spans_named(is_of_a_library);
    let is_outermost = |at: usize| !view.ancestors(at).skip(1).any(|outer| is_of_a_library(view.host_name(outer)));
    let (mut steps, mut spans) = (BTreeSet::new(), Vec::new());
    for at in calls.into_iter().filter(|&at| host.category[at] == Category::PythonFunction && is_outermost(at)) {
        let Some(step) = view.step_of(at) else { continue };
        steps.insert(step);
        spans.push(view.host_span(at));
    }
    if (steps.len() as f64) < LEAST_STEPS.get() * view.steps.count() {
        return Recomputed::default();
    }
    Recomputed::of(view, spans.len(), spans)
}

fn is_of_a_library(name: &str) -> bool {
    let Some(frame) = frame(name) else { return false };
    frame.file.split(['/', '\\']).any(|part| LIBRARIES.contains(&part))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabricated::{Fabricated, MICRO};

    /// Two steps, of which `with` call a function of this file that calls another.
    fn steps_with(file: &str, with: i64) -> Recomputed {
        let mut made = Fabricated::on("NVIDIA H200");
        for step in 0..2 {
            let begin = 1_000 * step * MICRO;
            made.step(step as u32 + 1, begin, begin + 1_000 * MICRO);
            made.operator("aten::mm", begin + 10 * MICRO, begin + 40 * MICRO);
            let call = (begin + 20 * MICRO, begin + 25 * MICRO);
            made.launch(call, "gemm", (begin + 30 * MICRO, begin + 400 * MICRO));
            if step < with {
                let outer = format!("{file}(286): forward");
                made.span("python_function", &outer, 1, begin + 500 * MICRO, begin + 700 * MICRO, "");
                let inner = format!("{file}(543): update");
                made.span("python_function", &inner, 1, begin + 510 * MICRO, begin + 690 * MICRO, "");
                made.operator("aten::bincount", begin + 520 * MICRO, begin + 560 * MICRO);
                let call = (begin + 530 * MICRO, begin + 535 * MICRO);
                made.launch(call, "histogram", (begin + 540 * MICRO, begin + 640 * MICRO));
            }
        }
        made.viewed(metrics_each_step)
    }

    #[test]
    fn a_call_at_every_step_goes_with_all_that_it_orders() {
        let found = steps_with("site-packages/torchmetrics/metric.py", 2);
        assert_eq!((found.parts_per_step, found.kernels.len()), (1.0, 2));
        assert!((found.host_seconds - 400e-6).abs() < 1e-9, "each call once: {}", found.host_seconds);
        assert!((found.device_seconds - 200e-6).abs() < 1e-9, "{}", found.device_seconds);
    }

    #[test]
    fn an_interval_and_other_code_are_none() {
        assert!(steps_with("torchmetrics/metric.py", 1).kernels.is_empty());
        assert!(steps_with("torchmetrics_of_mine/metric.py", 2).kernels.is_empty());
    }
}
