//! Figures of each step, so that two traces can be compared with the spread over their steps.

use serde::Serialize;

use super::intervals::covered;
use super::view::View;

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct PerStep {
    pub seconds: f64,
    /// Time in which the device had work.
    pub busy_seconds: f64,
    pub kernels: usize,
}

pub fn per_step(view: &View) -> Vec<PerStep> {
    let device = &view.trace.device;
    let mut steps: Vec<PerStep> = view
        .steps
        .list
        .iter()
        .map(|step| PerStep {
            seconds: step.seconds,
            busy_seconds: covered(&view.busy, step.span) as f64 / 1e9,
            kernels: 0,
        })
        .collect();
    for at in device.busy().filter(|&at| device.category[at] == headroom_trace::Category::Kernel) {
        if let Some(step) = view.steps.at(device.start[at]) {
            steps[step].kernels += 1;
        }
    }
    steps
}
