//! Under what a piece of code runs: the loops, guards and blocks around it, from the inside out.

use ruff_text_size::TextRange;

use super::symbols::FunctionId;

pub type ContextId = usize;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame {
    /// The function's own body.
    Body,
    Loop(LoopKind),
    Guard(Guard),
    /// `no_grad`, `inference_mode`, or code after `model.eval()`.
    Evaluation,
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

/// What an `if` says about how often its branch runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guard {
    /// Nothing is known: taken to run every time.
    Open,
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

impl Guard {
    /// Whether what is under it runs seldom or never while training.
    pub fn cools(self) -> bool {
        self != Guard::Open
    }
}
