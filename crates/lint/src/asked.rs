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
pub type Names<'a> = FxHashMap<&'a str, Vec<Use<'a>>>;

#[derive(Clone, Copy)]
pub struct Use<'a> {
    pub expression: &'a Expr,
    /// Assigned, not read.
    pub is_store: bool,
    /// The innermost loop, guard or block around it; `None` inside another function.
    pub context: Option<ContextId>,
    pub statement: &'a Stmt,
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
    /// Uses of every name in a function.
    pub names: Memo<FunctionId, Rc<Names<'a>>>,
    /// Names whose values a function changes in place.
    pub changed: Memo<FunctionId, Rc<FxHashSet<&'a str>>>,
    /// Names of other functions that a function assigns.
    pub borrowed: Memo<FunctionId, Rc<FxHashSet<&'a str>>>,
    /// Blocks of a function that work on another stream.
    pub streams: Memo<FunctionId, Rc<Vec<TextRange>>>,
    /// The use of a name that is assigned at this place, for a given depth of following.
    pub readback_uses: Memo<(FunctionId, TextRange, usize), ReadbackUse>,
    /// Whether the host waits in a function's step anyway.
    pub waits: Memo<(FunctionId, Option<ContextId>), bool>,
    /// How a function copies its argument back, if it does only that.
    pub copies: Memo<FunctionId, Option<Read>>,
}

/// Answers by question.
pub struct Memo<K, V>(RefCell<FxHashMap<K, V>>);

impl<K, V> Default for Memo<K, V> {
    fn default() -> Memo<K, V> {
        Memo(RefCell::default())
    }
}

impl<K: std::hash::Hash + Eq, V: Clone> Memo<K, V> {
    /// Returns the cached value or computes it. `find` may ask again, so nothing is borrowed while it runs.
    pub fn of(&self, key: K, find: impl FnOnce() -> V) -> V {
        let known = self.0.borrow().get(&key).cloned();
        known.unwrap_or_else(|| {
            let found = find();
            self.0.borrow_mut().insert(key, found.clone());
            found
        })
    }
}
