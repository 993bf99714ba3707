//! Under what a piece of code runs: the loops, guards and blocks around it, from the inside out.

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
    /// Code after `model.eval()`, or `no_grad` around a loop of its own: batches are evaluated.
    Evaluation,
    /// `no_grad` around a part of a step: an average of weights, a norm, a teacher's answer.
    WithoutGraph,
    Handler,
    /// `with …:` blocks that matter to a rule by name.
    With,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoopKind {
    Plain,
    /// Over parameters, optimizers or a handful of modules: a part of the step, not steps.
    WithinStep,
    Parameters,
}

/// Evidence in an `if` of how often its branch runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guard {
    /// Nothing is known: taken to run every time.
    Open,
    /// Holds wherever a script trains: the other side of a branch that is known to be cold, a test for a tensor, the rank
    /// that logs.
    Taken,
    Cadence,
    /// At most once: filling a cache, or a branch that ends the run.
    Once,
    OptIn,
    Evaluation,
    /// The branch for libraries that lack something.
    Fallback,
}

/// The half of a step that a training call runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    Backward,
    /// An optimizer's step, or both halves.
    Update,
}

#[derive(Clone, Copy, Debug)]
pub struct Context {
    pub parent: Option<ContextId>,
    pub frame: Frame,
    pub function: FunctionId,
    /// The loop or branch that makes it.
    pub range: TextRange,
    /// Whether a backward pass or an optimizer's step is reached inside, not through an inner loop.
    pub trains: bool,
    /// Whether what is reached updates parameters, and not only asks for gradients.
    pub updates: bool,
}

#[derive(Default)]
pub struct Contexts {
    all: Vec<Context>,
}

impl Contexts {
    pub fn clear(&mut self) {
        self.all.clear();
    }

    pub fn add(&mut self, context: Context) -> ContextId {
        self.all.push(context);
        self.all.len() - 1
    }

    /// How many there are: those added later have larger numbers.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    pub fn reframe(&mut self, id: ContextId, frame: Frame) {
        self.all[id].frame = frame;
    }

    /// Runs every few steps, though it trains.
    pub fn cool(&mut self, id: ContextId) {
        self.all[id].trains = false;
    }

    pub fn get(&self, id: ContextId) -> &Context {
        &self.all[id]
    }

    /// From the innermost frame out to the function's body.
    pub fn outwards(&self, id: ContextId) -> impl Iterator<Item = (ContextId, &Context)> {
        std::iter::successors(Some(id), |id| self.all[*id].parent).map(|id| (id, &self.all[id]))
    }

    pub fn iter(&self) -> impl Iterator<Item = (ContextId, &Context)> {
        self.all.iter().enumerate()
    }

    /// Marks what lies around a training call, up to the loop whose turn is the step. Returns whether the function's
    /// own body was reached, so that calling the function is itself a step.
    pub fn mark_training(&mut self, from: ContextId, part: Part) -> bool {
        let mut at = Some(from);
        while let Some(id) = at {
            self.all[id].trains = true;
            self.all[id].updates |= part == Part::Update;
            if self.all[id].frame == Frame::Loop(LoopKind::Plain) {
                return false;
            }
            at = self.all[id].parent;
        }
        true
    }
}

/// The contexts of one function by where they stand in the text: each lies within another one or beside it.
#[derive(Clone, Default)]
pub struct Nested {
    /// Outer ones first; where two have the same range, the one that was found later is the inner one.
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

    /// The innermost one that covers `range`.
    pub fn innermost(&self, range: TextRange) -> Option<ContextId> {
        let before = self.rows.partition_point(|row| row.range.start() <= range.start());
        std::iter::successors(before.checked_sub(1), |at| self.rows[*at].around)
            .find(|at| self.rows[*at].range.contains_range(range))
            .map(|at| self.rows[at].id)
            .or(self.body.map(|(id, _)| id))
    }
}

impl Guard {
    /// Whether what is under it runs seldom or never while training.
    pub fn cools(self) -> bool {
        !matches!(self, Guard::Open | Guard::Taken)
    }
}

/// Contexts that run once per step, and those that evaluate.
#[derive(Default)]
pub struct Heat {
    pub(super) hot: Vec<bool>,
    /// Functions that are a step by themselves, whoever calls them: hooks of trainers.
    pub steps: Vec<FunctionId>,
    /// Functions that a loop of steps or a trainer's hook among the files reaches through calls that run at every step.
    pub driven: Vec<bool>,
    pub(super) evaluation: Vec<bool>,
    /// Indices into the program's calls.
    pub training_calls: Vec<usize>,
}

impl Heat {
    pub fn is_hot(&self, context: ContextId) -> bool {
        self.hot.get(context).copied().unwrap_or(false)
    }

    pub fn is_evaluation(&self, context: ContextId) -> bool {
        self.evaluation.get(context).copied().unwrap_or(false)
    }
}
