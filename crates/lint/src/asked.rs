//! Answers that rules ask for once per finding and that are the same for a whole function, kept: asked anew, they would take time with
//! the square of the function's length.

use std::cell::RefCell;
use std::rc::Rc;

use ruff_python_ast::{Expr, Stmt};
use ruff_text_size::TextRange;
use rustc_hash::FxHashMap;

use super::context::ContextId;
use super::symbols::FunctionId;

/// Uses of names in a function, inner functions included.
pub type Names<'a> = FxHashMap<&'a str, Vec<Found<'a>>>;

pub struct Found<'a> {
    pub expression: &'a Expr,
    pub is_store: bool,
    pub statement: &'a Stmt,
    /// Inside another function.
    pub is_inner: bool,
}

/// For what the host reads a value back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Purpose {
    /// Asked whether it is a number at all: a run goes on, or not.
    Finite,
    /// Goes to a log, a meter or a dictionary of results: nothing of the step waits for it.
    Log,
    /// Leaves out work that the device could do unasked.
    Skip,
    /// Stops, or passes over, what must not be trained on.
    Guard,
    /// Goes to something that is not followed.
    Other,
    /// A size, a place or a branch: the host goes on with the number.
    Needed,
    /// Looks something up that the host keeps.
    Key,
}

#[derive(Default)]
pub struct Asked<'a> {
    names: RefCell<FxHashMap<FunctionId, Rc<Names<'a>>>>,
    streams: RefCell<FxHashMap<FunctionId, Rc<Vec<TextRange>>>>,
    purposes: RefCell<FxHashMap<(FunctionId, TextRange, usize), Purpose>>,
    waits: RefCell<FxHashMap<(FunctionId, Option<ContextId>), bool>>,
}

impl<'a> Asked<'a> {
    /// Uses of every name in a function.
    pub fn names(&self, function: FunctionId, find: impl FnOnce() -> Names<'a>) -> Rc<Names<'a>> {
        kept(&self.names, function, || Rc::new(find()))
    }

    /// Blocks of a function that work on another stream.
    pub fn streams(&self, function: FunctionId, find: impl FnOnce() -> Vec<TextRange>) -> Rc<Vec<TextRange>> {
        kept(&self.streams, function, || Rc::new(find()))
    }

    /// The purpose of a name that is assigned at this place, followed so deep.
    pub fn purpose(&self, place: (FunctionId, TextRange, usize), find: impl FnOnce() -> Purpose) -> Purpose {
        kept(&self.purposes, place, find)
    }

    /// Whether the host waits in a function's step in any case.
    pub fn waits(&self, function: FunctionId, step: Option<ContextId>, find: impl FnOnce() -> bool) -> bool {
        kept(&self.waits, (function, step), find)
    }
}

/// Asking may ask for more: nothing is borrowed meanwhile.
fn kept<K: std::hash::Hash + Eq + Copy, V: Clone>(
    of: &RefCell<FxHashMap<K, V>>,
    key: K,
    find: impl FnOnce() -> V,
) -> V {
    let known = of.borrow().get(&key).cloned();
    known.unwrap_or_else(|| {
        let found = find();
        of.borrow_mut().insert(key, found.clone());
        found
    })
}
