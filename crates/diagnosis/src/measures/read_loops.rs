//! Loops of plain operators that read values back in every iteration: targets drawn box by box, matches found one by
//! one. The cost is neither the waits nor the launches alone: without the read-backs the loop goes away.

use std::collections::BTreeMap;

use headroom_trace::{CallKind, Category, NONE};

use super::intervals::{Span, covered, merged, seconds, total};
use super::python::is_users;
use super::view::View;
use crate::constants::read_loops::{FEWEST_KERNELS, FEWEST_READS, MOST_BUSY};

#[derive(Clone, Debug, Default)]
pub struct ReadLoops {
    /// From the first to the last read-back of each loop.
    pub spans: Vec<Span>,
    /// The function of the loop that takes longest.
    pub function: Option<String>,
    pub reads_per_step: f64,
    pub kernels_per_read: f64,
    /// The part in which the device was idle.
    pub idle_seconds: f64,
    /// Work launched in the loops, each with the time that remains in one call for all iterations.
    pub kernels: Vec<(usize, i64)>,
}

pub fn read_loops(view: &View) -> ReadLoops {
    let host = &view.trace.host;
    // For each call of a user function: the span from the first to the last read-back inside it, and their number.
    let mut by_call: BTreeMap<usize, (Span, usize)> = BTreeMap::new();
    for at in view.operators_named(|name| name == "aten::item") {
        let waits = view.within(at).any(|inner| view.call_kind(inner) == Some(CallKind::Synchronise));
        let Some(function) = view.ancestors(at).find(|&outer| is_python(view, outer)).filter(|_| waits) else {
            continue;
        };
        let span = view.host_span(at);
        let (whole, reads) = by_call.entry(function).or_insert((span, 0));
        (whole.end, *reads) = (whole.end.max(span.end), *reads + 1);
    }
    by_call.retain(|_, (_, reads)| *reads >= FEWEST_READS.get());
    if by_call.is_empty() {
        return ReadLoops::default();
    }
    // A loop that runs a model in every iteration is bound by launches: the model has to run.
    let modules: Vec<i64> =
        view.host_spans_named(|name| name.starts_with("nn.Module: ")).into_iter().map(|at| host.start[at]).collect();
    let runs_a_model = |span: Span| modules.iter().any(|start| (span.start..span.end).contains(start));
    let device = &view.trace.device;
    let mut orders: Vec<i64> =
        device.busy().filter(|&at| view.call_of[at] != NONE).map(|at| ordered(view, at)).collect();
    orders.sort_unstable();
    let ordered_in = |span: Span| {
        orders.partition_point(|time| *time < span.end) - orders.partition_point(|time| *time < span.start)
    };
    by_call.retain(|_, (span, reads)| {
        // Each read-back launches one copy.
        let kernels = ordered_in(*span).saturating_sub(*reads) as f64;
        kernels >= FEWEST_KERNELS.get() * *reads as f64
            && covered(&view.busy, *span) as f64 <= MOST_BUSY.get() * span.nanos() as f64
            && !runs_a_model(*span)
    });
    let Some((&longest, _)) = by_call.iter().max_by_key(|(_, (span, _))| span.nanos()) else {
        return ReadLoops::default();
    };
    let reads: usize = by_call.values().map(|(_, reads)| reads).sum();
    let spans = merged(by_call.values().map(|(span, _)| *span).collect());
    let kernels = view.ordered_in(&spans);
    let left = |at: usize| (at, (view.filled_share(at) * device.duration[at] as f64) as i64);
    ReadLoops {
        function: Some(view.host_name(longest).to_string()),
        reads_per_step: reads as f64 / view.steps.count(),
        kernels_per_read: kernels.len().saturating_sub(reads) as f64 / reads as f64,
        idle_seconds: seconds(total(&spans) - spans.iter().map(|span| covered(&view.busy, *span)).sum::<i64>()),
        kernels: kernels.into_iter().map(left).collect(),
        spans,
    }
}

fn is_python(view: &View, at: usize) -> bool {
    view.trace.host.category[at] == Category::PythonFunction && is_users(view.host_name(at))
}

fn ordered(view: &View, at: usize) -> i64 {
    view.trace.host.start[view.call_of[at] as usize]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabricated::{Fabricated, MICRO};

    /// A function with `rounds` iterations of 100 µs, each with short kernels and a value that is read back.
    fn rounds(rounds: i64, kernels: i64, of_a_model: bool) -> ReadLoops {
        let mut made = Fabricated::on("NVIDIA H200");
        made.step(1, 0, (100 * rounds + 100) * MICRO);
        made.span("python_function", "train.py(47): targets", 1, 10 * MICRO, (100 * rounds + 50) * MICRO, "");
        for round in 0..rounds {
            let start = (20 + 100 * round) * MICRO;
            if of_a_model {
                made.span("python_function", "nn.Module: Linear_0", 1, start, start + 50 * MICRO, "");
            }
            for nth in 0..kernels {
                let call = start + 10 * nth * MICRO;
                made.operator("aten::mul", call, call + 8 * MICRO);
                made.launch((call + MICRO, call + 4 * MICRO), "k", (call + 5 * MICRO, call + 7 * MICRO));
            }
            let read = start + 60 * MICRO;
            made.operator("aten::item", read, read + 20 * MICRO);
            let id = format!(r#""correlation":{}"#, 10_000 + round);
            made.span("cuda_runtime", "cudaMemcpyAsync", 1, read + MICRO, read + 4 * MICRO, &id);
            made.span("gpu_memcpy", "Memcpy DtoH (Device -> Pageable)", 7, read + 5 * MICRO, read + 7 * MICRO, &id);
            made.span("cuda_runtime", "cudaStreamSynchronize", 1, read + 10 * MICRO, read + 15 * MICRO, "");
        }
        made.viewed(read_loops)
    }

    #[test]
    fn a_function_that_reads_back_in_every_round_between_its_kernels_is_a_loop() {
        let found = rounds(20, 5, false);
        assert_eq!((found.reads_per_step, found.spans.len()), (20.0, 1));
        assert_eq!(found.function.as_deref(), Some("train.py(47): targets"));
        // From the first read-back at 80 µs to the end of the last at 2,000; the five kernels before the first are
        // outside.
        assert_eq!(found.spans[0], Span { start: 80 * MICRO, end: 2_000 * MICRO });
        assert_eq!(found.kernels.len(), 19 * 5 + 20, "with the copies of the values");
    }

    #[test]
    fn few_rounds_rounds_of_little_work_and_rounds_of_a_model_are_none() {
        assert!(rounds(12, 5, false).spans.is_empty(), "few");
        assert!(rounds(20, 1, false).spans.is_empty(), "norms, read one by one");
        assert!(rounds(20, 5, true).spans.is_empty(), "a model runs in every round");
    }
}
