//! Memory layout of the kept list. The plan fixes it, so there is no rung to climb; the facts say why.

use headroom_engine::{Program, Target};
use headroom_graph::Op;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayoutFacts {
    pub target: Target,
    /// Calls of a step.
    pub calls: usize,
    /// Those that only copy a tensor into another layout.
    pub rearranging: usize,
}

pub(super) fn layout_of(program: &Program) -> LayoutFacts {
    let rearranges = |op: &Op| matches!(op, Op::Split(_) | Op::Join(_));
    let calls = &program.plan.calls;
    LayoutFacts {
        target: program.target,
        calls: calls.len(),
        rearranging: calls.iter().filter(|call| rearranges(&program.graph.node(call.node).op)).count(),
    }
}
