//! TR104 data-loading: the training thread waits for its next batch.

use super::{percent, shown_time};
use crate::constants::tr104;
use crate::measures::breakdown::WhereWorkRuns;
use crate::measures::data_loading::{loading_spans, workers};
use crate::simulation::Removal;

use super::{Evidence, Found, TraceRule};
use crate::finding::{Cause, Effort};

pub const RULE: TraceRule = TraceRule {
    code: "TR104",
    name: "data-loading",
    cause: Cause::DataLoading,
    page: include_str!("data_loading.md"),
    effort: Effort::Low,
    check,
};

fn check(evidence: &Evidence) -> Vec<Found> {
    let loading = &evidence.measures.data_loading;
    let wall = evidence.measures.breakdown.wall_seconds.max(f64::MIN_POSITIVE);
    let exposed = loading.exposed_seconds / wall;
    if loading.share_of_steps < evidence.thresholds.of(&tr104::DATA_LOADING_SHARE)
        || exposed < evidence.thresholds.of(&tr104::EXPOSED_SHARE)
    {
        return Vec::new();
    }
    let does = if loading.by_hand { "preparing the next batch in the loop itself" } else { "fetching the next batch" };
    let message = format!("{does} takes {} of the step", percent(loading.share_of_steps));
    let advice = match loading.in_process {
        true if loading.by_hand => {
            "prepare batches outside the step: in the Dataset and collate_fn of a DataLoader with workers, once \
             before the loop, or on the device"
        }
        true => "prepare batches in worker processes: num_workers, pin_memory and persistent_workers of the DataLoader",
        false => {
            "more workers, a larger prefetch_factor, less work per sample; keep data decoded on fast local storage"
        }
    };
    let mut found = Found::new(Some(exposed), message, advice);
    let steps = evidence.view.steps.count();
    let meanwhile = match evidence.measures.breakdown.where_work_runs {
        WhereWorkRuns::Device => "the device idle",
        WhereWorkRuns::Host => "no operator running",
    };
    found.evidence = vec![
        format!(
            "{} per step, {} of it with {meanwhile}",
            shown_time(loading.seconds / steps),
            shown_time(loading.exposed_seconds / steps)
        ),
        format!(
            "{} calls, {}",
            loading.calls,
            if loading.in_process { "in the training process" } else { "from workers" }
        ),
    ];
    found.evidence.extend(loading.in_process.then(|| match workers(evidence.view) {
        (workers, Some(cores)) => format!("the expected saving is that of {workers} worker(s) on {cores} core(s)"),
        (workers, None) => {
            format!("the expected saving assumes {workers} workers: the trace does not state the machine's cores")
        }
    }));
    found.removal = Removal { host: loading_spans(evidence.view), ..Removal::default() };
    vec![found]
}
