//! Time the training thread spends fetching its next batch.

use headroom_trace::Category;
use serde::Serialize;

use super::by_hand::prepared_by_hand;
use super::intervals::{Span, covered, merged, seconds, total};
use super::steps::is_fetch;
use super::view::View;
use crate::constants::cost::WORKERS;

#[derive(Clone, Debug, Default, Serialize)]
pub struct DataLoading {
    pub calls: usize,
    pub seconds: f64,
    pub share_of_steps: f64,
    /// The part in which no device worked.
    pub exposed_seconds: f64,
    /// Whether batches are prepared in the training process itself.
    pub in_process: bool,
    /// Whether most of it is the loop's own code before it copies a batch to the device.
    #[serde(skip)]
    pub by_hand: bool,
}

pub fn data_loading(view: &View) -> DataLoading {
    let spans = loading_indices(view);
    let fetched = merged(spans.iter().map(|&at| view.host_span(at)).collect());
    let by_hand = prepared_by_hand(view, &fetched);
    let set = merged([fetched.as_slice(), &by_hand].concat());
    let is_by_hand = total(&by_hand) > total(&fetched);
    let mut sum = DataLoading {
        calls: spans.len() + by_hand.len(),
        in_process: is_by_hand || spans.iter().any(|&at| view.host_name(at).contains("SingleProcess")),
        by_hand: is_by_hand,
        ..DataLoading::default()
    };
    let mut nanos = 0;
    for span in &view.steps.ordered {
        nanos += covered(&set, *span);
    }
    sum.seconds = seconds(nanos);
    sum.share_of_steps = view.steps.share(nanos);
    let exposed: i64 = set.iter().map(|span| span.nanos() - covered(&view.busy, *span)).sum::<i64>().min(nanos);
    sum.exposed_seconds = if view.has_device_work() { seconds(exposed) } else { sum.seconds };
    sum
}

/// When the training thread waited for a batch.
pub fn loading_spans(view: &View) -> Vec<Span> {
    let fetched = merged(loading_indices(view).into_iter().map(|at| view.host_span(at)).collect());
    let by_hand = prepared_by_hand(view, &fetched);
    merged([fetched, by_hand].concat())
}

/// Worker processes that may prepare batches beside the training process, and the machine's cores if the trace states
/// them: one per core, as the remedy starts them, because much of loading is waiting.
pub fn workers(view: &View) -> (usize, Option<usize>) {
    let cores = view.trace.header.recording.as_ref().and_then(|recording| recording.cores);
    (cores.map_or(WORKERS.get(), |cores| cores.clamp(1, WORKERS.get())), cores)
}

/// Found by torch's annotation, otherwise by the iterator's own function.
fn loading_indices(view: &View) -> Vec<usize> {
    let annotated = view.host_spans_named(is_fetch);
    if !annotated.is_empty() {
        return annotated;
    }
    let host = &view.trace.host;
    let mut python =
        view.host_spans_named(|name| name.contains("utils/data/dataloader.py") && name.ends_with(": __next__"));
    python.retain(|&at| host.category[at] == Category::PythonFunction);
    python
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabricated::{Fabricated, MICRO};

    /// Three steps of 10 ms: 3 ms in a fetch, `by_hand` µs in the loop's own code, then a batch is copied.
    fn loading_of(fetch: &str, by_hand: i64) -> DataLoading {
        let mut made = Fabricated::on("NVIDIA H200");
        for step in 0..3i64 {
            let start = step * 10_000 * MICRO;
            made.step(step as u32 + 1, start, start + 10_000 * MICRO);
            let name = format!("enumerate(DataLoader)#_{fetch}DataLoaderIter.__next__");
            made.span("user_annotation", &name, 1, start + 10 * MICRO, start + 3_010 * MICRO, "");
            let copy = start + (3_010 + by_hand) * MICRO;
            made.operator("aten::to", copy, copy + 50 * MICRO);
            let id = format!(r#""correlation":{},"bytes":1048576"#, 900 + step);
            made.span("cuda_runtime", "cudaMemcpyAsync", 1, copy + MICRO, copy + 40 * MICRO, &id);
            made.span("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 7, copy + 50 * MICRO, copy + 90 * MICRO, &id);
        }
        made.viewed(data_loading)
    }

    #[test]
    fn a_fetch_by_workers_is_not_in_the_training_process() {
        let (workers, own) = (loading_of("MultiProcessing", 1_500), loading_of("SingleProcess", 1_500));
        assert!(workers.calls == 6 && !workers.in_process && !workers.by_hand, "{workers:?}");
        assert!(own.in_process && !own.by_hand, "{own:?}");
        assert!(loading_of("MultiProcessing", 4_000).in_process, "most of it is the loop's own code");
    }
}
