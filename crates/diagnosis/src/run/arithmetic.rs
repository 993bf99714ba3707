//! FLOPs by phase, module and operator, and every kind of operator compared with the device's roofs.

use headroom_record::flops::{FlopsAnalysis, ModuleFlops, OperatorFlops};
use headroom_record::intensity::{Bound, OperatorIntensity, TimeByBound};
use headroom_record::operators::PlaceStats;
use headroom_trace::Phase;
use std::collections::BTreeMap;

use crate::measures::calls::{Calls, parts_of};
use crate::measures::view::View;

/// FLOPs of one optimizer step.
pub fn flops_analysis(view: &View, calls: &Calls) -> FlopsAnalysis {
    let (stated, run) = (&calls.header.flops, &calls.header.run);
    let products = |phase: Phase| calls.flops(|call| call.phase == phase && call.stated.is_product);
    let (forward_flops, backward_flops) = (products(Phase::Forward), products(Phase::Backward));
    let optimizer_flops = calls.flops(|call| call.phase == Phase::Optimizer);
    let avg_flops_per_step = forward_flops + backward_flops + optimizer_flops;
    let executed_flops_per_step = calls.flops(|_| true);
    FlopsAnalysis {
        total_flops: avg_flops_per_step * run.steps,
        avg_flops_per_step,
        flops_per_parameter: avg_flops_per_step as f64 / calls.header.parameters.max(1) as f64,
        forward_flops,
        backward_flops,
        optimizer_flops,
        recomputed_flops: stated.recomputed_per_step,
        needed_forward_flops: stated.needed_forward_per_step,
        needed_flops_per_step: stated.needed_per_step,
        elementwise_flops: calls.flops(|call| call.phase != Phase::Optimizer && !call.stated.is_product),
        executed_flops_per_step,
        by_module: module_tree(view, calls),
        by_op: by_operator(calls, executed_flops_per_step),
    }
}

/// Counts every call in its module and the enclosing ones; a fused call counts in each of its modules by share.
fn module_tree(view: &View, calls: &Calls) -> ModuleFlops {
    let mut root = ModuleFlops { name: "model".into(), ..ModuleFlops::default() };
    for call in &calls.list {
        let parts = parts_of(call.module, view.name(call.stated.shares));
        let mut left = (call.stated.flops, call.stated.bytes);
        for (index, (path, share)) in parts.iter().enumerate() {
            let is_last = index + 1 == parts.len();
            // The last part takes the remainder, so that the parts add up exactly.
            let part = |whole: u64, left: u64| match is_last {
                true => left,
                false => ((whole as f64 * share).round() as u64).min(left),
            };
            let (flops, bytes) = (part(call.stated.flops, left.0), part(call.stated.bytes, left.1));
            left = (left.0 - flops, left.1 - bytes);
            let seconds = call.seconds * share;
            let mut at = &mut root;
            count(at, call.phase, flops, bytes, seconds);
            for name in path {
                let place = match at.children.iter().position(|child| child.name == *name) {
                    Some(place) => place,
                    None => {
                        at.children.push(ModuleFlops { name: name.to_string(), ..ModuleFlops::default() });
                        at.children.len() - 1
                    }
                };
                at = &mut at.children[place];
                count(at, call.phase, flops, bytes, seconds);
            }
        }
    }
    over_steps(&mut root, calls);
    root
}

fn count(module: &mut ModuleFlops, phase: Phase, flops: u64, bytes: u64, seconds: f64) {
    module.flops += flops;
    module.bytes += bytes;
    module.seconds += seconds;
    match phase {
        Phase::Forward => module.forward_flops += flops,
        Phase::Backward => module.backward_flops += flops,
        Phase::Optimizer => module.optimizer_flops += flops,
    }
}

fn over_steps(module: &mut ModuleFlops, calls: &Calls) {
    let sums = [&mut module.flops, &mut module.bytes, &mut module.forward_flops, &mut module.backward_flops];
    sums.into_iter().chain([&mut module.optimizer_flops]).for_each(|sum| *sum = calls.per_step(*sum));
    module.seconds /= calls.steps;
    module.children.iter_mut().for_each(|child| over_steps(child, calls));
}

fn by_operator(calls: &Calls, executed: u64) -> Vec<OperatorFlops> {
    let mut rows: BTreeMap<&str, [u64; 3]> = BTreeMap::new();
    for call in &calls.list {
        let row = rows.entry(call.name).or_default();
        row.iter_mut().zip([call.stated.flops, call.stated.bytes, 1]).for_each(|(sum, one)| *sum += one);
    }
    let row = |(name, sums): (&str, [u64; 3])| {
        let [flops, bytes, count] = sums.map(|sum| calls.per_step(sum));
        let percent = 100.0 * flops as f64 / executed.max(1) as f64;
        OperatorFlops { name: name.into(), flops, percent, bytes, count }
    };
    let mut rows: Vec<OperatorFlops> = rows.into_iter().map(row).collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.flops));
    rows
}

/// One row per operator name, in a mean recorded step, by time.
pub fn intensity_by_operator(calls: &Calls) -> Vec<OperatorIntensity> {
    #[derive(Default)]
    struct Sum {
        flops: u64,
        bytes: u64,
        seconds: f64,
        floor: f64,
        count: u64,
    }
    let mut rows: BTreeMap<&str, Sum> = BTreeMap::new();
    for call in &calls.list {
        let sum = rows.entry(call.name).or_default();
        sum.flops += call.stated.flops;
        sum.bytes += call.stated.bytes;
        sum.seconds += call.seconds;
        sum.floor += call.floor;
        sum.count += 1;
    }
    let row = |(name, sum): (&str, Sum)| {
        let (flops, bytes) = (calls.per_step(sum.flops), calls.per_step(sum.bytes));
        let intensity = flops as f64 / bytes.max(1) as f64;
        OperatorIntensity {
            name: name.into(),
            flops,
            bytes,
            intensity,
            time: sum.seconds / calls.steps,
            bound: calls.bound(intensity, sum.floor / sum.count.max(1) as f64),
            percent_of_roof: if sum.seconds > 0.0 { 100.0 * sum.floor / sum.seconds } else { 0.0 },
        }
    };
    let mut rows: Vec<OperatorIntensity> = rows.into_iter().map(row).collect();
    rows.sort_by(|left, right| right.time.total_cmp(&left.time));
    rows
}

/// Shares of the step in operators bound by compute, memory or call overhead.
pub fn time_by_bound(places: &[PlaceStats], wall: f64) -> TimeByBound {
    let share = |wanted: Bound| {
        let seconds: f64 = places.iter().filter(|place| place.bound == wanted).map(|place| place.time).sum();
        100.0 * seconds / wall.max(f64::MIN_POSITIVE)
    };
    TimeByBound {
        compute_percent: share(Bound::ComputeBound),
        memory_percent: share(Bound::MemoryBound),
        overhead_percent: share(Bound::OverheadBound),
    }
}
