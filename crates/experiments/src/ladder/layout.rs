//! Memory layout of the kept list. The plan fixes it, so there is no rung to climb; these facts show why.

use headroom_engine::{Program, Target};
use headroom_graph::Op;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayoutFacts {
    pub target: Target,
    /// Calls per step.
    pub calls: usize,
    /// Calls that only copy a tensor into another layout.
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
