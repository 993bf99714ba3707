//! The loops, guards and blocks around a piece of code, from the inside out.

use std::cmp::Reverse;

use ruff_text_size::{TextRange, TextSize};

use super::ids::FunctionId;

pub type ContextId = usize;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame {
    /// The function's own body.
    Body,
    Loop(LoopKind),
    Guard(Guard),
    /// Code after `model.eval()`, or `no_grad` around a loop of its own: an evaluation over batches.
    Evaluation,
    /// `no_grad` around part of a step: a weight average, a norm, a teacher's output.
    WithoutGraph,
    Handler,
    /// `with …:` blocks that some rule recognizes by name.
    With,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoopKind {
    Plain,
    /// A loop over parameters, optimizers or a handful of modules: part of one step, not a loop of steps.
    WithinStep,
    Parameters,
}

/// How often an `if` suggests that its branch runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guard {
    /// Nothing is known: assumed to run every time.
    Open,
    /// True whenever a script trains: the other side of a branch known to be cold, a test for a tensor, the rank that
    /// logs.
    Taken,
    Cadence,
    /// At most once: filling a cache, or a branch that ends the run.
    Once,
    OptIn,
    Evaluation,
    /// The fallback for libraries that lack a feature.
    Fallback,
}

#[derive(Clone, Copy, Debug)]
pub struct Context {
    pub parent: Option<ContextId>,
    pub frame: Frame,
    pub function: FunctionId,
    /// The loop or branch that creates the context.
    pub range: TextRange,
    /// Whether a backward pass or an optimizer step is reached inside, not counting inner loops.
    pub trains: bool,
    /// Whether the code reached updates parameters instead of only computing gradients.
    pub updates: bool,
}

impl Context {
    /// Whether it is a loop whose iterations are steps.
    pub fn is_step_loop(&self) -> bool {
        self.frame == Frame::Loop(LoopKind::Plain) && self.trains
    }
}

/// From the innermost frame out to the function's body.
pub fn outwards(contexts: &[Context], id: ContextId) -> impl Iterator<Item = (ContextId, &Context)> {
    std::iter::successors(Some(id), |id| contexts[*id].parent).map(|id| (id, &contexts[id]))
}

/// The contexts of one function by their place in the text: each is nested in another or beside it.
#[derive(Clone, Default)]
pub struct Nested {
    /// Outer contexts first; where two have the same range, the later one is the inner one.
    rows: Vec<Row>,
    /// The function's own body, which covers everything.
    body: Option<(ContextId, TextSize)>,
}

#[derive(Clone, Copy)]
struct Row {
    range: TextRange,
    id: ContextId,
    around: Option<usize>,
}

impl Nested {
    pub fn of<'c>(contexts: impl Iterator<Item = (ContextId, &'c Context)>) -> Nested {
        let mut nested = Nested::default();
        for (id, context) in contexts {
            let length = context.range.len();
            match context.parent {
                Some(_) => nested.rows.push(Row { range: context.range, id, around: None }),
                None if nested.body.is_none_or(|(_, shortest)| length <= shortest) => nested.body = Some((id, length)),
                None => {}
            }
        }
        nested.rows.sort_by_key(|row| (row.range.start(), Reverse(row.range.end()), row.id));
        let mut open: Vec<usize> = Vec::new();
        for at in 0..nested.rows.len() {
            let range = nested.rows[at].range;
            while open.last().is_some_and(|around| !nested.rows[*around].range.contains_range(range)) {
                open.pop();
            }
            nested.rows[at].around = open.last().copied();
            open.push(at);
        }
        nested
    }

    /// The innermost context that covers `range`.
    pub fn innermost(&self, range: TextRange) -> Option<ContextId> {
        let before = self.rows.partition_point(|row| row.range.start() <= range.start());
        std::iter::successors(before.checked_sub(1), |at| self.rows[*at].around)
            .find(|at| self.rows[*at].range.contains_range(range))
            .map(|at| self.rows[at].id)
            .or(self.body.map(|(id, _)| id))
    }
}

impl Guard {
    /// Whether the code under it runs rarely or never during training.
    pub fn cools(self) -> bool {
        !matches!(self, Guard::Open | Guard::Taken)
    }
}

/// Contexts that run once per step, and those that evaluate.
#[derive(Default)]
pub struct StepFrequency {
    pub(super) hot: Vec<bool>,
    /// Functions that are a step by themselves, whoever calls them: trainer hooks.
    pub steps: Vec<FunctionId>,
    /// Functions that a loop of steps or a trainer's hook in the given files reaches through calls made at every step.
    pub driven: Vec<bool>,
    pub(super) evaluation: Vec<bool>,
    /// Indices into the program's calls.
    pub training_calls: Vec<usize>,
}
