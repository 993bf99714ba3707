//! Facts about all given files: who calls whom, with what, under which loops and guards.

use rustc_hash::{FxHashMap, FxHashSet};

use ruff_python_ast::{Expr, ExprCall, ExprSubscript, Stmt};
use ruff_text_size::{Ranged, TextRange, TextSize};

use super::asked::Asked;
use super::classes::{ClassFacts, OnlyMethods, is_left_open};
use super::context::{self, Context, ContextId, Frame, LoopKind, Nested, StepFrequency};
use super::effects::{Effect, Owner};
use super::file::SourceFile;
use super::resolve::ModuleIndex;
use super::settings::Settings;
use super::symbols::{ClassId, FileId, Function, FunctionId, Symbols};
use super::syntax::{called_name, keyword_of};
use super::topics::Groups;
use super::value::{LoaderId, SiteId, Value};
use super::vocabulary::Role;

#[derive(Default)]
pub struct Program<'a> {
    pub sources: Sources<'a>,
    pub functions: Vec<FunctionFacts<'a>>,
    pub notes: Notes<'a>,
    pub constructed: Constructed<'a>,
    pub frequency: StepFrequency,
    pub groups: Groups,
    pub places: Places,
    pub asked: Asked<'a>,
}

/// The files as written: trees, symbols, classes, defaults of settings.
#[derive(Default)]
pub struct Sources<'a> {
    pub files: &'a [SourceFile],
    pub symbols: Symbols<'a>,
    pub index: ModuleIndex,
    pub classes: Vec<ClassFacts<'a>>,
    /// Methods that their name alone identifies.
    pub only_methods: FxHashMap<&'a str, OnlyMethods>,
    pub settings: Settings,
}

/// Notes of the last visit of every function: taken function by function and file by file, so that those of one are
/// neighbours.
#[derive(Default)]
pub struct Notes<'a> {
    /// Later contexts get larger ids.
    pub contexts: Vec<Context>,
    pub calls: Vec<Call<'a>>,
    /// Reads of a property of one of the given classes: where, and the property's function.
    pub property_reads: Vec<(ContextId, FunctionId)>,
    /// Values whose truth is tested: `if`, `while`, `assert`, `bool()`, `and`, `or`, `not`.
    pub tests: Vec<Look<'a>>,
    /// Values put into a text.
    pub shown: Vec<Look<'a>>,
    pub accumulations: Vec<Accumulation<'a>>,
    pub subscripts: Vec<Subscript<'a>>,
    pub loops: Vec<Loop<'a>>,
    pub speeds: Vec<Speed<'a>>,
    pub products: Vec<Product<'a>>,
}

/// Loaders, optimizers and scalers. Their ids stay the same from visit to visit.
#[derive(Default)]
pub struct Constructed<'a> {
    pub loaders: Vec<Loader<'a>>,
    /// Whether a loader was found, or its options changed, since this was last asked.
    pub has_news: bool,
    pub loader_ids: FxHashMap<(FileId, TextSize), LoaderId>,
    /// Loaders that several callers assign to the same attribute, by the one that stands for them.
    pub alike: FxHashMap<LoaderId, Vec<LoaderId>>,
    /// Calls that make an optimizer or a scaler.
    pub sites: Vec<(FileId, &'a ExprCall)>,
    pub site_ids: FxHashMap<(FileId, TextSize), SiteId>,
}

/// Indices, so that a rule never has to search everything.
#[derive(Default)]
pub struct Places {
    /// Calls by place, and the places that `.item()` is called on.
    pub call_by_range: FxHashMap<(FileId, TextRange), usize>,
    pub item_receivers: FxHashSet<(FileId, TextRange)>,
    callers: Vec<Vec<usize>>,
    nested: Vec<Nested>,
}

#[derive(Default)]
pub struct FunctionFacts<'a> {
    /// The returned value, in terms of the arguments.
    pub returns: Option<Value>,
    /// Values that known callers pass, by parameter.
    pub passed: FxHashMap<&'a str, Value>,
    /// Names at the function's end, for functions defined inside it.
    pub locals: FxHashMap<&'a str, Value>,
    /// Whether any call of it was seen.
    pub is_called: bool,
    /// Whether it was an argument of a call: something calls it, perhaps in unseen code.
    pub is_handed_over: bool,
    pub kind: FunctionKind,
    /// Names a backward pass starts from: they hold a loss, wherever it comes from.
    pub trained: FxHashSet<&'a str>,
    /// All loaders that known callers pass, by parameter.
    pub loaders: FxHashMap<&'a str, Vec<LoaderId>>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum FunctionKind {
    #[default]
    Plain,
    /// Runs at every step because of its role: `forward`, `training_step`.
    Step,
    /// A loss by name: runs at every step unless known callers say otherwise.
    Loss,
    /// Decorated with no_grad, or an evaluation by name.
    Evaluation,
    /// Decorated to cache its results: runs once per set of arguments.
    Kept,
}

#[derive(Clone)]
pub struct Call<'a> {
    pub node: &'a ExprCall,
    pub statement: &'a Stmt,
    pub context: ContextId,
    pub callee: Callee,
    /// The last part of the called name: `item` in `loss.item()`.
    pub name: &'a str,
    /// For a method: the value it is called on.
    pub receiver: Value,
    pub arguments: Vec<Value>,
    pub keywords: Vec<(Option<&'a str>, Value)>,
    pub result: Value,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Callee {
    External(String),
    Function(FunctionId),
    Class(ClassId),
    /// A method of a value that is not an instance of a given class.
    Method,
    /// A module or another value that is called.
    Value,
}

/// A value that the host looks at.
pub struct Look<'a> {
    pub expression: &'a Expr,
    pub statement: &'a Stmt,
    pub context: ContextId,
    pub value: Value,
}

/// `total += value`.
pub struct Accumulation<'a> {
    pub target: &'a Expr,
    pub expression: &'a Expr,
    pub statement: &'a Stmt,
    pub context: ContextId,
    pub value: Value,
}

pub struct Subscript<'a> {
    pub node: &'a ExprSubscript,
    pub statement: &'a Stmt,
    pub context: ContextId,
    pub base: Value,
    pub index: Value,
    /// For an assignment to it: the stored value.
    pub stored: Option<Value>,
}

pub struct Loop<'a> {
    pub statement: &'a Stmt,
    pub target: Option<&'a Expr>,
    /// `None` for a `while`.
    pub iterated: Option<&'a Expr>,
    pub value: Value,
    /// All loaders that the loop iterates over: `zip(labelled, unlabelled)`, `loaders[phase]`.
    pub loaders: Vec<LoaderId>,
    pub body: &'a [Stmt],
    /// Context inside the loop.
    pub context: ContextId,
}

/// `count / (now - start)`.
pub struct Speed<'a> {
    pub expression: &'a Expr,
    pub context: ContextId,
    pub start: &'a str,
}

/// The last product of hand-written attention.
pub struct Product<'a> {
    pub expression: &'a Expr,
    pub statement: &'a Stmt,
    pub context: ContextId,
    pub weights: TextRange,
}

pub struct Loader<'a> {
    pub id: LoaderId,
    pub node: &'a ExprCall,
    pub statement: &'a Stmt,
    pub context: ContextId,
    pub options: Options,
}

/// Options of a loader that rules look at.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    pub workers: Option<Value>,
    pub pin_memory: Option<Value>,
    pub persistent: Option<Value>,
    pub batch_size: Option<Value>,
    pub dataset: Value,
    pub collate: Value,
    /// Whether keywords came from a dictionary that could not be followed.
    pub has_unknown: bool,
}

impl Loader<'_> {
    /// Whether batches are pinned when there is a device to copy them to: `pin_memory=torch.cuda.is_available()`.
    pub fn pins(&self) -> bool {
        match &self.options.pin_memory {
            Some(value) if value.known_bool().is_some() => value.known_bool() == Some(true),
            Some(Value::Bool(None)) => true,
            Some(_) => {
                let written = keyword_of(self.node, Role::PinOption.word());
                let speaks = |name: &&str| Role::PlaceName.fits_any_case(name);
                written.is_some_and(|written| crate::names_in(written).iter().any(speaks))
            }
            None => false,
        }
    }
}

impl<'a> Program<'a> {
    pub fn function_of(&self, context: ContextId) -> &Function<'a> {
        self.symbol(self.function_at(context))
    }

    pub fn function_at(&self, context: ContextId) -> FunctionId {
        self.notes.contexts[context].function
    }

    /// From the innermost frame out to the function's body.
    pub fn outwards(&self, context: ContextId) -> impl Iterator<Item = (ContextId, &Context)> {
        context::outwards(&self.notes.contexts, context)
    }

    /// Whether one of the frames around the context is such a frame.
    pub fn is_within(&self, context: ContextId, is_meant: impl Fn(Frame) -> bool) -> bool {
        self.outwards(context).any(|(_, around)| is_meant(around.frame))
    }

    pub fn is_in_loop(&self, context: ContextId) -> bool {
        self.is_within(context, |frame| frame == Frame::Loop(LoopKind::Plain))
    }

    pub fn is_module(&self, class: ClassId) -> bool {
        self.sources.classes[class].kind.is_module()
    }

    /// The method that the class itself defines.
    pub fn method(&self, class: ClassId, name: &str) -> Option<FunctionId> {
        self.sources.symbols.classes[class].methods.get(name).copied()
    }

    /// The function as it is written.
    pub fn symbol(&self, function: FunctionId) -> &Function<'a> {
        &self.sources.symbols.functions[function]
    }

    /// Whether one of the function's decorators has such a name.
    pub fn is_decorated(&self, function: FunctionId, by: Role) -> bool {
        let decorators = self.symbol(function).definition.map_or(&[][..], |definition| &definition.decorator_list);
        decorators.iter().filter_map(|decorator| called_name(&decorator.expression)).any(|name| by.fits(name))
    }

    pub fn file_of(&self, context: ContextId) -> FileId {
        self.function_of(context).file
    }

    pub fn source(&self, context: ContextId) -> &'a SourceFile {
        &self.sources.files[self.file_of(context)]
    }

    pub fn text(&self, context: ContextId, node: impl Ranged) -> &'a str {
        self.source(context).slice(node.range())
    }

    /// The file and the call that constructs an optimizer or a scaler.
    pub fn site(&self, id: SiteId) -> (FileId, &'a ExprCall) {
        self.constructed.sites[id]
    }

    /// The overrides that run instead of a method that only declares itself: `raise NotImplementedError`, `pass`.
    pub fn written_below(&self, function: FunctionId) -> &[FunctionId] {
        let symbol = self.symbol(function);
        match symbol.class {
            Some(class) if is_left_open(symbol) => {
                self.sources.classes[class].below.get(symbol.name).map_or(&[], Vec::as_slice)
            }
            _ => &[],
        }
    }

    /// Whether the context runs once per optimizer step.
    pub fn is_hot(&self, context: ContextId) -> bool {
        self.frequency.hot.get(context) == Some(&true) && self.groups.touches_device(self.file_of(context))
    }

    /// Whether the context runs once per step of a training loop in the given files: in the loop itself, or in the
    /// program around that loop. Other hot code belongs to a library, whose steps run elsewhere.
    pub fn is_in_sight(&self, context: ContextId) -> bool {
        let is_here = || self.groups.is_of_program(self.file_of(context)) || self.step_loop(context).is_some();
        self.is_hot(context) && is_here()
    }

    /// Calls that run once per step.
    pub fn hot_calls(&self) -> impl Iterator<Item = &Call<'a>> {
        self.notes.calls.iter().filter(|call| self.is_hot(call.context))
    }

    pub fn is_in_parameter_loop(&self, context: ContextId) -> bool {
        self.is_within(context, |frame| frame == Frame::Loop(LoopKind::Parameters))
    }

    /// Whether the context is in a `no_grad` block, after `model.eval()`, in an evaluation function, or called only
    /// from such code.
    pub fn is_evaluation(&self, context: ContextId) -> bool {
        self.frequency.evaluation.get(context) == Some(&true)
    }

    /// The innermost enclosing loop whose iterations are steps.
    pub fn step_loop(&self, context: ContextId) -> Option<ContextId> {
        self.outwards(context).find(|(_, around)| around.is_step_loop()).map(|(id, _)| id)
    }

    /// Indexes all notes.
    pub fn index(&mut self) {
        let calls = &self.notes.calls;
        let mut callers = vec![Vec::new(); self.functions.len()];
        for (index, call) in calls.iter().enumerate() {
            let callee = match call.callee {
                Callee::Function(callee) => Some(callee),
                // Instantiating a class runs its `__init__`.
                Callee::Class(class) => self.method(class, Role::Constructor.word()),
                _ => None,
            };
            callee.into_iter().for_each(|callee| callers[callee].push(index));
        }
        let place = |call: &Call, node: TextRange| (self.file_of(call.context), node);
        let items = calls.iter().filter(|call| Owner::Tensor.effect(call.name) == Effect::Number);
        let receiver = |call: &Call| Some(place(call, call.receiver_expression()?.range()));
        self.places = Places {
            call_by_range: calls.iter().enumerate().map(|(at, call)| (place(call, call.node.range()), at)).collect(),
            item_receivers: items.filter_map(receiver).collect(),
            callers,
            nested: (0..self.functions.len()).map(|function| Nested::of(self.contexts_of(function))).collect(),
        };
        self.asked = Asked::default();
    }

    /// The call at `range` in a file.
    pub fn call_at(&self, file: FileId, range: TextRange) -> Option<&Call<'a>> {
        self.places.call_by_range.get(&(file, range)).map(|index| &self.notes.calls[*index])
    }

    pub fn tests_of(&self, function: FunctionId) -> impl Iterator<Item = &Look<'a>> {
        neighbours(&self.notes.tests, |test| self.function_at(test.context), function).1.iter()
    }

    pub fn calls_in(&self, file: FileId) -> impl Iterator<Item = &Call<'a>> {
        neighbours(&self.notes.calls, |call| self.file_of(call.context), file).1.iter()
    }

    pub fn calls_of(&self, function: FunctionId) -> impl Iterator<Item = &Call<'a>> {
        neighbours(&self.notes.calls, |call| self.function_at(call.context), function).1.iter()
    }

    /// Where a function reads properties, and the functions that this runs.
    pub fn properties_of(&self, function: FunctionId) -> impl Iterator<Item = (ContextId, FunctionId)> {
        neighbours(&self.notes.property_reads, |read| self.function_at(read.0), function).1.iter().copied()
    }

    pub fn callers_of(&self, function: FunctionId) -> impl Iterator<Item = &Call<'a>> {
        self.places.callers[function].iter().map(|index| &self.notes.calls[*index])
    }

    pub fn contexts_of(&self, function: FunctionId) -> impl Iterator<Item = (ContextId, &Context)> {
        let (first, contexts) = neighbours(&self.notes.contexts, |context| context.function, function);
        (first..).zip(contexts)
    }

    pub fn nested_in(&self, function: FunctionId) -> &Nested {
        &self.places.nested[function]
    }

    /// The loop whose body the context is.
    pub fn loop_at(&self, context: ContextId) -> Option<&Loop<'a>> {
        neighbours(&self.notes.loops, |around| around.context, context).1.first()
    }

    /// The innermost loop around the context, as far as its notes were taken.
    pub fn loop_around(&self, context: ContextId) -> Option<&Loop<'a>> {
        self.outwards(context).find_map(|(id, _)| self.loop_at(id))
    }

    /// Whether steps run in the loop, or it in a step.
    pub fn trains_in(&self, around: &Loop) -> bool {
        self.notes.contexts[around.context].trains || self.is_hot(around.context)
    }

    pub fn loops_in(&self, file: FileId) -> impl DoubleEndedIterator<Item = &Loop<'a>> {
        neighbours(&self.notes.loops, |around| self.file_of(around.context), file).1.iter()
    }

    pub fn subscripts_in(&self, file: FileId) -> impl Iterator<Item = &Subscript<'a>> {
        neighbours(&self.notes.subscripts, |subscript| self.file_of(subscript.context), file).1.iter()
    }
}

/// The notes of one owner, and the index of the first of them.
fn neighbours<N>(notes: &[N], owner: impl Fn(&N) -> usize, wanted: usize) -> (usize, &[N]) {
    let first = notes.partition_point(|note| owner(note) < wanted);
    let count = notes[first..].partition_point(|note| owner(note) == wanted);
    (first, &notes[first..first + count])
}

/// Anything noted at a place of the program.
pub trait Noted {
    /// Where it runs, and where it stands in the file.
    fn place(&self) -> (ContextId, TextRange);
}

impl<N: Noted> Noted for &N {
    fn place(&self) -> (ContextId, TextRange) {
        (*self).place()
    }
}

impl<R: Ranged> Noted for (ContextId, R) {
    fn place(&self) -> (ContextId, TextRange) {
        (self.0, self.1.range())
    }
}

macro_rules! noted {
    ($($kind:ident by $node:ident),*) => {
        $(impl Noted for $kind<'_> {
            fn place(&self) -> (ContextId, TextRange) {
                (self.context, self.$node.range())
            }
        })*
    };
}

noted!(Call by node, Look by expression, Loader by node, Speed by expression, Subscript by node);

impl<'a> Call<'a> {
    /// The dotted name of a library's function.
    pub fn external(&self) -> Option<&str> {
        match &self.callee {
            Callee::External(dotted) => Some(dotted),
            _ => None,
        }
    }

    pub fn is_method(&self) -> bool {
        self.callee == Callee::Method
    }

    pub fn receiver_expression(&self) -> Option<&'a Expr> {
        match &*self.node.func {
            Expr::Attribute(attribute) => Some(&attribute.value),
            _ => None,
        }
    }

    pub fn keyword(&self, name: &str) -> Option<&Value> {
        self.keywords.iter().find(|(keyword, _)| *keyword == Some(name)).map(|(_, value)| value)
    }

    pub fn argument_values(&self) -> impl Iterator<Item = &Value> {
        self.arguments.iter().chain(self.keywords.iter().map(|(_, value)| value))
    }
}
