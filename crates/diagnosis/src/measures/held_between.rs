//! Large intermediates that exist only between an operator that broadcasts small tensors and the reduction that
//! consumes them.

use headroom_trace::Category;

use super::intervals::Span;
use super::kinds::{Kind, kinds_of_names};
use super::view::View;
use crate::constants::breakdown::LONG_GAP_NANOS;
use crate::constants::held_between::LEAST_GROWTH;

/// Chains of kernels from such an operator to its reduction: fused, they read and write only the small tensors.
#[derive(Clone, Debug, Default)]
pub struct HeldBetween {
    pub kernels: Vec<usize>,
    pub nanos: i64,
    /// The operators of each chain except the reduction.
    pub launchers: Vec<Span>,
    /// Elements of the largest result.
    pub most_elements: u64,
}

/// Consecutive kernels of one operator.
struct Part {
    operator: usize,
    kind: Kind,
    kernels: Vec<usize>,
}

pub fn held_between(view: &View) -> HeldBetween {
    let parts = parts(view);
    let mut held = HeldBetween::default();
    let mut first = 0;
    while first < parts.len() {
        let Some((last, elements)) = chain(view, &parts, first) else {
            first += 1;
            continue;
        };
        for part in &parts[first..=last] {
            held.nanos += view.device_nanos(&part.kernels);
            held.kernels.extend(&part.kernels);
        }
        held.launchers.extend(parts[first..last].iter().map(|part| view.host_span(part.operator)));
        held.most_elements = held.most_elements.max(elements);
        first = last + 1;
    }
    held
}

fn parts(view: &View) -> Vec<Part> {
    let device = &view.trace.device;
    let kinds = kinds_of_names(view);
    let mut parts: Vec<Part> = Vec::new();
    for at in view.in_steps() {
        let is_kernel = device.category[at] == Category::Kernel;
        let (Some(operator), kind) = (view.operator_of_device(at), kinds[device.name[at].index()]) else { continue };
        match parts.last_mut() {
            Some(part) if part.operator == operator && part.kind == kind => part.kernels.push(at),
            _ => parts.push(Part { operator, kind: if is_kernel { kind } else { Kind::Other }, kernels: vec![at] }),
        }
    }
    parts
}

/// The reduction that ends the chain beginning with this part, and the elements of the intermediate.
fn chain(view: &View, parts: &[Part], first: usize) -> Option<(usize, u64)> {
    let device = &view.trace.device;
    let inputs = |part: &Part| view.shapes(part.operator);
    let count = |sizes: &Vec<u64>| sizes.iter().product::<u64>();
    if parts[first].kind != Kind::ElementWise {
        return None;
    }
    let spread = inputs(&parts[first]);
    let elements = together(&spread)?;
    let is_small = |sizes: &Vec<u64>| count(sizes).saturating_mul(LEAST_GROWTH.get()) <= elements;
    if !spread.iter().all(is_small) {
        return None;
    }
    for (place, part) in parts.iter().enumerate().skip(first + 1) {
        let (&last, &next) = (parts[place - 1].kernels.last()?, part.kernels.first()?);
        if device.track[last] != device.track[next] || device.start[next] - device.end(last) >= LONG_GAP_NANOS.get() {
            return None;
        }
        // Another input of that size would have to be read anyway.
        let all = inputs(part);
        let held = all.iter().filter(|sizes| count(sizes) == elements).count();
        if held != 1 || !all.iter().all(|sizes| count(sizes) == elements || is_small(sizes)) {
            return None;
        }
        match part.kind {
            Kind::Reduction => return Some((place, elements)),
            Kind::ElementWise => {}
            _ => return None,
        }
    }
    None
}

/// Elements of the broadcast of two or more tensors.
fn together(inputs: &[Vec<u64>]) -> Option<u64> {
    let tensors: Vec<&Vec<u64>> = inputs.iter().filter(|sizes| !sizes.is_empty()).collect();
    let rank = tensors.iter().map(|sizes| sizes.len()).max().filter(|_| tensors.len() >= 2)?;
    let size = |from_end: usize| {
        let all = tensors.iter().filter_map(|sizes| sizes.len().checked_sub(from_end).map(|place| sizes[place]));
        let (most, least) = all.fold((1, u64::MAX), |(most, least), size| {
            (size.max(most), if size == 1 { least } else { least.min(size) })
        });
        (least == u64::MAX || least == most).then_some(most)
    };
    (1..=rank).map(size).try_fold(1u64, |all, size| all.checked_mul(size?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabricated::{Fabricated, MICRO};

    /// Differences of points and codes, their squares and the sums of those; `squared` are the squares' inputs.
    fn distances(points: &str, squared: &str, last: &str) -> HeldBetween {
        let mut made = Fabricated::on("NVIDIA H200");
        made.step(1, 0, 5_000 * MICRO);
        let spread = format!("[{points},[1,512,64],[]]");
        let parts = [
            ("aten::sub", spread.as_str(), "vectorized_elementwise_kernel<4, sub>"),
            ("aten::pow", squared, "vectorized_elementwise_kernel<4, pow>"),
            ("aten::sum", "[[1024,512,64],[],[]]", last),
        ];
        for (nth, (operator, dims, kernel)) in parts.into_iter().enumerate() {
            let start = (10 + 100 * nth as i64) * MICRO;
            made.shaped(operator, start, start + 50 * MICRO, dims, "float");
            for half in 0..2 {
                let (call, work) = (start + (5 + 10 * half) * MICRO, (1_000 + 200 * nth as i64 + 100 * half) * MICRO);
                made.launch((call, call + 4 * MICRO), kernel, (work, work + 99 * MICRO));
            }
        }
        made.viewed(held_between)
    }

    const SUM: &str = "reduce_kernel<512, 1, ReduceOp<float>>";

    #[test]
    fn what_small_tensors_are_spread_over_ends_in_its_reduction() {
        let held = distances("[1024,1,64]", "[[1024,512,64],[]]", SUM);
        assert_eq!((held.kernels.len(), held.launchers.len()), (6, 2));
        assert_eq!((held.nanos, held.most_elements), (6 * 99 * MICRO, 1024 * 512 * 64));
    }

    #[test]
    fn large_inputs_and_results_that_stay_are_none() {
        assert!(distances("[1024,512,64]", "[[1024,512,64],[]]", SUM).kernels.is_empty(), "a large input");
        let two = "[[1024,512,64],[1024,512,64]]";
        assert!(distances("[1024,1,64]", two, SUM).kernels.is_empty(), "a second large input");
        let kept = "vectorized_elementwise_kernel<4, exp>";
        assert!(distances("[1024,1,64]", "[[1024,512,64],[]]", kept).kernels.is_empty(), "no reduction");
    }
}
