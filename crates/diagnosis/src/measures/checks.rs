//! Kernels launched only for a value that the host reads: tests for NaN and infinity before a read-back.

use super::intervals::Span;
use super::roles::Role;
use super::view::View;
use crate::constants::checks::MOST;

const MOST_SPANS: usize = 1_000;

/// The operators of a test, from the first to the one that reads its result; empty if there is no test.
pub fn tested_before(view: &View, reading: usize) -> Vec<Span> {
    let host = &view.trace.host;
    let is_operator = |&at: &usize| view.is_operator(at);
    let Some(outer) = view.ancestors(reading).filter(is_operator).last() else { return Vec::new() };
    let is_outermost = |at: &usize| is_operator(at) && !view.ancestors(*at).skip(1).any(|outer| is_operator(&outer));
    let before = (0..outer).rev().take(MOST_SPANS).take_while(|&at| host.track[at] == host.track[outer]);
    let of_it = before
        .filter(is_outermost)
        .take(MOST.get())
        .take_while(|&at| Role::Test.is_of(view.host_name(at)) || Role::AfterTest.is_of(view.host_name(at)));
    let chain: Vec<usize> = of_it.collect();
    let Some(first) = chain.iter().rposition(|&at| Role::Test.is_of(view.host_name(at))) else { return Vec::new() };
    chain[..=first].iter().map(|&at| view.host_span(at)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabricated::{Fabricated, MICRO};

    fn before_a_read(operators: &[&str]) -> Vec<Span> {
        let mut made = Fabricated::on("NVIDIA H200");
        made.step(1, 0, 10_000 * MICRO);
        for (place, name) in operators.iter().enumerate() {
            let start = (10 + 100 * place as i64) * MICRO;
            made.operator(name, start, start + 50 * MICRO);
            made.operator("aten::abs", start + 5 * MICRO, start + 20 * MICRO);
        }
        made.operator("aten::is_nonzero", 1_000 * MICRO, 1_100 * MICRO);
        made.operator("aten::item", 1_010 * MICRO, 1_090 * MICRO);
        let trace = made.trace();
        let view = View::new(&trace);
        tested_before(&view, view.host_spans_named(|name| name == "aten::item")[0])
    }

    #[test]
    fn a_test_for_infinity_goes_with_the_host_that_reads_its_answer() {
        let found = before_a_read(&["aten::mm", "aten::isfinite", "aten::all"]);
        assert_eq!(found.len(), 2);
        assert_eq!(found.last(), Some(&Span { start: 110 * MICRO, end: 160 * MICRO }));
    }

    #[test]
    fn a_loss_that_is_read_has_no_test_before_it() {
        assert!(before_a_read(&["aten::mm", "aten::sum"]).is_empty());
        assert!(before_a_read(&["aten::isnan", "aten::mm", "aten::any"]).is_empty(), "work in between");
    }
}
