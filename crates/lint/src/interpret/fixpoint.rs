//! Visits functions until nothing new is learned.
//!
//! A visit reads the facts of the round before and leaves an outcome: what the function returns, what it passes to
//! others, what it stores in attributes. The outcomes of a round become facts together, so that the order of functions
//! says nothing. The next round visits only functions that read a fact that changed.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::hash::{BuildHasher, Hash};

use rustc_hash::FxBuildHasher;

use super::statements::{add, add_all};
use super::*;
use crate::program::Notes;

/// From this visit on a function's outcome only grows. Facts that take turns (a guess where nothing is known, and what
/// the guess leads to) settle there.
const GROWS_FROM: usize = 6;

/// No function is visited more often, apart from the visit that takes its notes.
const MOST_VISITS: usize = 12;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Fact {
    Returned(FunctionId),
    /// A name at a function's end, by its hash.
    Local(FunctionId, u64),
    Attribute(ClassId, u64),
    /// Any attribute of a class.
    Attributes(ClassId),
    Loaders,
}

impl Fact {
    pub fn local(function: FunctionId, name: &str) -> Fact {
        Fact::Local(function, FxBuildHasher.hash_one(name))
    }

    pub fn attribute(class: ClassId, name: &str) -> Fact {
        Fact::Attribute(class, FxBuildHasher.hash_one(name))
    }
}

#[derive(Default)]
pub(super) struct Outcome<'a> {
    pub returns: Option<Value>,
    pub locals: Names<'a>,
    pub trained: FxHashSet<&'a str>,
    /// Arguments by function and parameter.
    pub passed: FxHashMap<FunctionId, Names<'a>>,
    pub stored: FxHashMap<ClassId, Names<'a>>,
    pub called: FxHashSet<FunctionId>,
    pub handed_over: FxHashSet<FunctionId>,
    pub read: RefCell<FxHashSet<Fact>>,
}

impl<'a> Outcome<'a> {
    pub fn pass(&mut self, function: FunctionId, name: &'a str, value: Value) {
        add(self.passed.entry(function).or_default(), name, value);
    }

    pub fn store(&mut self, class: ClassId, name: &'a str, value: Value) {
        add(self.stored.entry(class).or_default(), name, value.without_arguments());
    }

    fn grow(&mut self, before: &Outcome<'a>) {
        self.returns = match (self.returns.take(), &before.returns) {
            (Some(one), Some(other)) => Some(one.join(other)),
            (one, other) => one.or_else(|| other.clone()),
        };
        add_all(&mut self.locals, &before.locals);
        self.trained.extend(&before.trained);
        for (own, before) in [(&mut self.passed, &before.passed), (&mut self.stored, &before.stored)] {
            before.iter().for_each(|(key, names)| add_all(own.entry(*key).or_default(), names));
        }
    }
}

/// The outcome of every function's last visit, and who depends on it.
struct Table<'a> {
    outcomes: Vec<Outcome<'a>>,
    visits: Vec<usize>,
    readers: FxHashMap<Fact, BTreeSet<FunctionId>>,
    callers: Vec<BTreeSet<FunctionId>>,
    writers: Vec<BTreeSet<FunctionId>>,
    /// Functions whose names others see: modules, and functions with functions inside.
    is_around: Vec<bool>,
}

/// Visits all functions until their facts are settled, then once more for their notes. Returns the number of visits.
pub(super) fn settle(program: &mut Program) -> usize {
    let functions = program.functions.len();
    let mut table = Table {
        outcomes: (0..functions).map(|_| Outcome::default()).collect(),
        visits: vec![0; functions],
        readers: FxHashMap::default(),
        callers: vec![BTreeSet::new(); functions],
        writers: vec![BTreeSet::new(); program.sources.classes.len()],
        is_around: program.sources.symbols.functions.iter().map(|function| function.definition.is_none()).collect(),
    };
    for function in &program.sources.symbols.functions {
        function.parent.into_iter().for_each(|parent| table.is_around[parent] = true);
    }
    // Names of files and attributes of classes are known before the rest is visited for the first time. A function that is
    // called somewhere waits for its arguments, unless they never come.
    let called = called_names(program);
    let stages: Vec<usize> = (0..functions).map(|function| stage_of(program, function, &called)).collect();
    let mut queue = BTreeSet::new();
    for stage in 0..=LAST_STAGE {
        queue.extend((0..functions).filter(|function| table.visits[*function] == 0 && stages[*function] <= stage));
        queue = table.round(program, &queue);
        while stage >= LAST_STAGE - 1 && !queue.is_empty() {
            queue = table.round(program, &queue);
        }
    }
    program.notes = Notes::default();
    for function in 0..functions {
        let outcome = visit(program, function, true);
        outcome.called.iter().for_each(|called| program.functions[*called].is_called = true);
        outcome.handed_over.iter().for_each(|handed| program.functions[*handed].is_handed_over = true);
    }
    table.visits.iter().sum()
}

const LAST_STAGE: usize = 3;

/// Modules come first, then constructors, then functions that nothing calls by name, then all else.
fn stage_of(program: &Program, function: FunctionId, called: &FxHashSet<&str>) -> usize {
    let symbol = program.symbol(function);
    match (symbol.definition, symbol.name) {
        (None, _) => 0,
        (_, name) if Role::Constructor.fits(name) => 1,
        (_, name) if !called.contains(name) => 2,
        _ => LAST_STAGE,
    }
}

/// The last parts of all names that are called.
fn called_names<'a>(program: &Program<'a>) -> FxHashSet<&'a str> {
    let mut called = FxHashSet::default();
    for file in program.sources.files {
        each_expression(&file.syntax.body, |expression| {
            if let Expr::Call(call) = expression {
                called.extend(last_name(&call.func));
            }
        });
    }
    called
}

impl<'a> Table<'a> {
    /// Visits functions once. Returns those to visit next.
    fn round(&mut self, program: &mut Program<'a>, queue: &BTreeSet<FunctionId>) -> BTreeSet<FunctionId> {
        let outcomes = queue.iter().map(|function| (*function, visit(program, *function, false))).collect();
        self.take(program, outcomes)
    }

    /// Turns the outcomes of a round into facts. Returns the functions that read one of those that changed.
    fn take(&mut self, program: &mut Program<'a>, outcomes: Vec<(FunctionId, Outcome<'a>)>) -> BTreeSet<FunctionId> {
        let (mut changed, mut called, mut stored) = (Vec::new(), BTreeSet::new(), BTreeSet::new());
        let mut next = BTreeSet::new();
        for (function, mut outcome) in outcomes {
            self.visits[function] += 1;
            for fact in outcome.read.take() {
                self.readers.entry(fact).or_default().insert(function);
            }
            outcome.locals.retain(|_, _| self.is_around[function]);
            for value in outcome.locals.values_mut() {
                *value = std::mem::replace(value, Value::Unknown).without_arguments();
            }
            if self.visits[function] >= GROWS_FROM {
                outcome.grow(&self.outcomes[function]);
            }
            let before = std::mem::replace(&mut self.outcomes[function], outcome);
            let (after, facts) = (&self.outcomes[function], &mut program.functions[function]);
            for callee in after.passed.keys() {
                self.callers[*callee].insert(function);
            }
            for class in after.stored.keys() {
                self.writers[*class].insert(function);
            }
            called.extend(differing(&before.passed, &after.passed));
            stored.extend(differing(&before.stored, &after.stored));
            if before.returns != after.returns {
                facts.returns.clone_from(&after.returns);
                changed.push(Fact::Returned(function));
            }
            if before.locals != after.locals {
                changed.extend(differing(&before.locals, &after.locals).map(|name| Fact::local(function, name)));
                facts.locals.clone_from(&after.locals);
            }
            if before.trained != after.trained {
                facts.trained.clone_from(&after.trained);
                next.insert(function);
            }
        }
        next.extend(called.into_iter().filter(|callee| self.pass_on(program, *callee)));
        stored.into_iter().for_each(|class| self.store(program, class, &mut changed));
        if std::mem::take(&mut program.constructed.has_news) {
            changed.push(Fact::Loaders);
        }
        for fact in changed {
            next.extend(self.readers.get(&fact).into_iter().flatten());
        }
        next.retain(|function| self.visits[*function] < MOST_VISITS);
        next
    }

    /// Joins what all callers pass to a function. Returns whether that changed.
    fn pass_on(&self, program: &mut Program<'a>, callee: FunctionId) -> bool {
        let mut all = Names::default();
        let passed = self.callers[callee].iter().filter_map(|caller| self.outcomes[*caller].passed.get(&callee));
        passed.for_each(|names| add_all(&mut all, names));
        let loaders = all.iter().map(|(name, value)| (*name, value.loader_members()));
        let loaders = loaders.filter(|(_, all)| !all.is_empty()).collect();
        let passed: Names = all.iter().map(|(name, value)| (*name, value.clone().reading_of_callers())).collect();
        let facts = &mut program.functions[callee];
        let is_new = facts.passed != passed || facts.loaders != loaders;
        (facts.passed, facts.loaders) = (passed, loaders);
        is_new
    }

    /// Joins what all functions store in a class's attributes, and adds those that changed.
    fn store(&self, program: &mut Program<'a>, class: ClassId, changed: &mut Vec<Fact>) {
        let mut all = Names::default();
        let stored = self.writers[class].iter().filter_map(|writer| self.outcomes[*writer].stored.get(&class));
        stored.for_each(|names| add_all(&mut all, names));
        let attributes: Names = all.into_iter().map(|(name, value)| (name, value.reading())).collect();
        let known = &mut program.sources.classes[class].attributes;
        if *known != attributes {
            changed.push(Fact::Attributes(class));
            changed.extend(differing(known, &attributes).map(|name| Fact::attribute(class, name)));
            *known = attributes;
        }
    }
}

/// The keys under which two maps differ.
fn differing<'m, K: Copy + Eq + Hash, V: PartialEq>(
    one: &'m FxHashMap<K, V>,
    other: &'m FxHashMap<K, V>,
) -> impl Iterator<Item = K> + 'm {
    let keys = one.keys().chain(other.keys().filter(|key| !one.contains_key(key)));
    keys.filter(|key| one.get(key) != other.get(key)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::SourceFile;
    use crate::{Input, Projects};

    /// The number of visits that a script takes, its number of functions, and what callers pass as `x` to `last`.
    fn settled(text: &str) -> (usize, usize, Option<Value>) {
        let inputs = [Input { path: "train.py".to_string(), bytes: text.as_bytes().to_vec() }];
        let files =
            [SourceFile::read(&inputs[0], &Projects::of_all(&inputs).belongings[0], headroom_rewrite::Depth::Unknown)];
        let mut program = crate::collect(&files);
        let visits = crate::interpret::interpret(&mut program);
        let last = program.sources.symbols.functions.iter().position(|function| function.name == "last");
        let passed = last.and_then(|last| program.functions[last].passed.get("x").cloned());
        (visits, program.functions.len(), passed)
    }

    /// `f0` calls `f1`, …, which calls `last`; the definitions stand in the given order.
    fn chain(order: impl Iterator<Item = usize>, length: usize) -> String {
        let name = |at: usize| if at == length { "last".to_string() } else { format!("f{at}") };
        let link = |at: usize| match at == length {
            true => "def last(x):\n    return x\n".to_string(),
            false => format!("def {}(x):\n    return {}(x)\n", name(at), name(at + 1)),
        };
        let all: String = order.map(link).collect();
        format!("import torch\n{all}f0(torch.ones(3, device='cuda'))\n")
    }

    #[test]
    fn a_value_arrives_however_long_the_chain_and_in_any_order() {
        for length in [3, 40, 120] {
            for text in [chain(0..=length, length), chain((0..=length).rev(), length)] {
                let (visits, functions, passed) = settled(&text);
                assert!(passed.is_some_and(|passed| passed.is_surely_on_device()), "{length}");
                // Each link is visited first, when its argument arrives and when its result does.
                assert!(visits <= 5 * functions, "{visits} visits of {functions}");
            }
        }
    }

    #[test]
    fn functions_that_feed_each_other_are_visited_a_bounded_number_of_times() {
        let texts = [
            // Each result is one level deeper than the last.
            "def f(x):\n    return [g(x)]\ndef g(x):\n    return (f(x), x)\nf(1)\n",
            // A name that is guessed where nothing is known of it, and something else where its guess is used.
            "class A:\n    def one(self, model):\n        self.model = self.two(model)\n        return self.model\n\
             \n    def two(self, x):\n        return [self.one(x)] if self.model else {'a': self.one(self.model)}\n",
            "def f(*xs, **ks):\n    return f(*f(xs), **dict(a=f(ks)))\n",
        ];
        for text in texts {
            let (visits, functions, _) = settled(text);
            assert!(visits <= MOST_VISITS * functions, "{visits} visits of {functions} in\n{text}");
        }
    }
}
