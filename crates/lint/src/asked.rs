//! Caches answers that rules ask for once per finding but that hold for a whole function. Recomputed each time, they
//! would take time quadratic in the function's length.

use std::cell::RefCell;
use std::rc::Rc;

use ruff_python_ast::{Expr, Stmt};
use ruff_text_size::TextRange;
use rustc_hash::{FxHashMap, FxHashSet};

use super::context::ContextId;
use super::symbols::FunctionId;

/// Uses of names in a function, inner functions included.
pub type Names<'a> = FxHashMap<&'a str, Vec<Found<'a>>>;

pub struct Found<'a> {
    pub expression: &'a Expr,
    pub is_store: bool,
    pub statement: &'a Stmt,
    /// Whether the use is inside an inner function.
    pub is_inner: bool,
}

/// The operation that makes the host wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read {
    /// `.item()`, `float()`, `int()`.
    Scalar,
    /// `.cpu()`, `.numpy()`, `.tolist()`, `.to("cpu")`.
    Copy,
    /// Tests the value's truth.
    Truth,
}

/// Why the host reads a value back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ReadbackUse {
    /// Checks that the value is finite: the run continues or stops.
    Finite,
    /// Goes to a log, a meter or a dictionary of results: nothing in the step depends on it.
    Log,
    /// Skips work that the device could do without asking.
    Skip,
    /// Stops on, or skips, data that must not be trained on.
    Guard,
    /// Goes somewhere the analysis does not follow.
    Other,
    /// A size, an index or a branch condition: the host needs the number to continue.
    Needed,
    /// Looks up something that the host stores.
    Key,
}

#[derive(Default)]
pub struct Asked<'a> {
    names: RefCell<FxHashMap<FunctionId, Rc<Names<'a>>>>,
    changed: RefCell<FxHashMap<FunctionId, Rc<FxHashSet<&'a str>>>>,
    borrowed: RefCell<FxHashMap<FunctionId, Rc<FxHashSet<&'a str>>>>,
    streams: RefCell<FxHashMap<FunctionId, Rc<Vec<TextRange>>>>,
    readback_uses: RefCell<FxHashMap<(FunctionId, TextRange, usize), ReadbackUse>>,
    waits: RefCell<FxHashMap<(FunctionId, Option<ContextId>), bool>>,
    copies: RefCell<FxHashMap<FunctionId, Option<Read>>>,
}

impl<'a> Asked<'a> {
    /// Uses of every name in a function.
    pub fn names(&self, function: FunctionId, find: impl FnOnce() -> Names<'a>) -> Rc<Names<'a>> {
        kept(&self.names, function, || Rc::new(find()))
    }

    /// Names whose values a function changes in place.
    pub fn changed(&self, function: FunctionId, find: impl FnOnce() -> FxHashSet<&'a str>) -> Rc<FxHashSet<&'a str>> {
        kept(&self.changed, function, || Rc::new(find()))
    }

    /// Names of other functions that a function assigns.
    pub fn borrowed(&self, function: FunctionId, find: impl FnOnce() -> FxHashSet<&'a str>) -> Rc<FxHashSet<&'a str>> {
        kept(&self.borrowed, function, || Rc::new(find()))
    }

    /// Blocks of a function that work on another stream.
    pub fn streams(&self, function: FunctionId, find: impl FnOnce() -> Vec<TextRange>) -> Rc<Vec<TextRange>> {
        kept(&self.streams, function, || Rc::new(find()))
    }

    /// The use of a name that is assigned at this place, for a given depth of following.
    pub fn readback_use(
        &self,
        place: (FunctionId, TextRange, usize),
        find: impl FnOnce() -> ReadbackUse,
    ) -> ReadbackUse {
        kept(&self.readback_uses, place, find)
    }

    /// How a function copies its argument back, if it does only that.
    pub fn copies(&self, function: FunctionId, find: impl FnOnce() -> Option<Read>) -> Option<Read> {
        kept(&self.copies, function, find)
    }

    /// Whether the host waits in a function's step anyway.
    pub fn waits(&self, function: FunctionId, step: Option<ContextId>, find: impl FnOnce() -> bool) -> bool {
        kept(&self.waits, (function, step), find)
    }
}

/// Returns the cached value or computes it. `find` may ask again, so nothing is borrowed while it runs.
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
