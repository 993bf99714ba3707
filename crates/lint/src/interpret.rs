//! Follows values through every function, in order, and records what rules look at.
//!
//! A function is visited with what is known about parameters, returns and attributes, until that is settled
//! ([`fixpoint`]); the notes of its last visit are kept. Loop bodies run twice in a visit, so that the second pass sees
//! what the first left behind.

mod annotations;
mod arguments;
mod bindings;
mod caches;
mod cadence;
mod calls;
mod conditions;
mod expressions;
mod factories;
mod fixpoint;
mod guards;
mod libraries;
mod loaders;
mod lookups;
mod methods;
mod modes;
mod names;
mod placement;
mod statements;
mod trained;
mod unpacking;

use ruff_python_ast::{BoolOp, CmpOp, Expr, ExprAttribute, ExprCall, ExprCompare};
use ruff_python_ast::{Operator, Stmt, StmtFor, StmtFunctionDef, StmtIf, UnaryOp};
use ruff_text_size::{Ranged, TextRange};
use rustc_hash::{FxHashMap, FxHashSet};

use super::classes::{ClassKind, attribute_of_self, lineage};
use super::context::{Context, ContextId, Frame, Guard, LoopKind};
use super::effects::{Effect, Owner};
use super::program::{Call, Callee, FunctionFacts, FunctionKind, Loader, Look, Loop, Program};
use super::settings::{literal, plain_name};
use super::symbols::{ClassId, FunctionId};
use super::syntax::{
    boolean, called_by, called_name, dotted_name, each_expression, function_name, keyword_of, last_name, method_of,
    name_of, range_of, text_of,
};
use super::value::{Entries, Evidence, LoaderId, Origin, Placement, Stage, Tensor, Value};
use super::vocabulary::{Role, lowered};
use super::{api, find_expression, names_in};
use arguments::Arguments;
use bindings::Bindings;
use conditions::asked_for_tensor;
use fixpoint::{Fact, Outcome};
use names::{is_boolean_operation, is_data_name, is_loss_function_name};
use placement::{device_argument, placement_named};
use statements::Names;

pub use names::{by_name, is_drawing_name, is_evaluation_name, is_model_name, is_optimizer_name};

/// Follows values through every function. Returns the number of visits, apart from the last ones.
pub fn interpret(program: &mut Program) -> usize {
    program.functions = (0..program.sources.symbols.functions.len())
        .map(|function| FunctionFacts { kind: kind_of(program, function), ..FunctionFacts::default() })
        .collect();
    fixpoint::settle(program)
}

pub(super) struct Interpreter<'p, 'a> {
    program: &'p mut Program<'a>,
    function: FunctionId,
    names: Bindings<'a>,
    context: ContextId,
    statement: Option<&'a Stmt>,
    /// False during the first pass over a loop, which the second repeats, and where a value is only looked at.
    is_recording: bool,
    /// Whether this is the visit whose notes are kept.
    keeps_notes: bool,
    loop_depth: usize,
    /// The number of enclosing `no_grad` blocks.
    without_graph: usize,
    outcome: Outcome<'a>,
    /// Names of elapsed times, and the clock reading that each started from.
    elapsed_since: FxHashMap<&'a str, &'a str>,
    /// Names bound to a pass over a loader before the loop: `bar = tqdm(enumerate(loader))`.
    passes_over: FxHashMap<&'a str, Vec<LoaderId>>,
}

/// Runs one function with the facts known so far.
fn visit<'a>(program: &mut Program<'a>, function: FunctionId, keeps_notes: bool) -> Outcome<'a> {
    if !keeps_notes {
        program.notes.contexts.clear();
    }
    let range = match program.symbol(function).definition {
        Some(definition) => definition.range(),
        None => TextRange::default(),
    };
    let context = add_context(program, None, Frame::Body, function, range);
    let kind = program.functions[function].kind;
    let without_graph = usize::from(kind == FunctionKind::Evaluation || program.is_decorated(function, Role::GraphOff));
    let mut interpreter = Interpreter {
        program,
        function,
        names: Bindings::default(),
        context,
        statement: None,
        is_recording: true,
        keeps_notes,
        loop_depth: 0,
        without_graph,
        outcome: Outcome::default(),
        elapsed_since: FxHashMap::default(),
        passes_over: FxHashMap::default(),
    };
    interpreter.bind_parameters();
    let statements: &'a [Stmt] = interpreter.program.symbol(function).body;
    interpreter.run_block(statements);
    Outcome { locals: interpreter.names.into_names(), ..interpreter.outcome }
}

fn add_context(
    program: &mut Program,
    parent: Option<ContextId>,
    frame: Frame,
    function: FunctionId,
    range: TextRange,
) -> ContextId {
    program.notes.contexts.push(Context { parent, frame, function, range, trains: false, updates: false });
    program.notes.contexts.len() - 1
}

fn kind_of(program: &Program, id: FunctionId) -> FunctionKind {
    let function = program.symbol(id);
    if function.definition.is_none() {
        return FunctionKind::Plain;
    }
    if program.is_decorated(id, Role::GraphOff) && (is_evaluation_name(function.name) || goes_over_data(function.body))
    {
        return FunctionKind::Evaluation;
    }
    let class = function.class.map_or(ClassKind::Other, |class| program.sources.classes[class].kind);
    if program.is_decorated(id, Role::Caches) || names::is_seldom_name(function.name) || fills_global(function.body) {
        return FunctionKind::Kept;
    }
    let by_class = |role: Role| function.class.is_some_and(|id| role.fits(program.sources.symbols.classes[id].name));
    // `class PostProcess`, `class BeamSearcher`: modules that decode outputs, which training never calls.
    if by_class(Role::DecodingClass) {
        return FunctionKind::Evaluation;
    }
    let name = function.name;
    let is = |role: Role| role.fits(name);
    let (of_class, of_torch) = (function.class.is_some(), || imports_torch(program, function.file));
    // `class InfoNCELoss:` that is not a module but is called like one.
    let is_called_loss = || is(Role::CallMethod) && by_class(Role::LossClass) && of_torch();
    let is_step = match class {
        ClassKind::Trainer => is(Role::TrainerStep),
        ClassKind::Callback => is(Role::StepHook),
        ClassKind::Gradient => is(Role::Forward) || is(Role::Backward),
        ClassKind::Optimizer => is(Role::StepMethod),
        kind if kind.is_module() => is(Role::Forward) || is(Role::ForwardInTraining),
        _ => false,
    };
    if is_step || of_class && (is(Role::StepOfClass) || is(Role::Forward) && of_torch()) {
        FunctionKind::Step
    } else if of_class && is(Role::ComputesLoss) || is_called_loss() {
        FunctionKind::Loss
    // `class ValidEpoch`, `class Evaluator`: their work is not done at every step.
    } else if is_evaluation_name(name) || by_class(Role::EvaluationClass) {
        FunctionKind::Evaluation
    } else if is_loss_function_name(name) && of_torch() {
        FunctionKind::Loss
    } else {
        FunctionKind::Plain
    }
}

/// `global grid`, then `grid = …` without a return: the global is filled when it is missing.
fn fills_global(body: &[Stmt]) -> bool {
    let repeats = |one: &Stmt| matches!(one, Stmt::For(_) | Stmt::While(_) | Stmt::Return(_) | Stmt::AugAssign(_));
    body.iter().any(|one| matches!(one, Stmt::Global(_))) && !body.iter().any(repeats)
}

/// Whether the body loops over something that yields data, by its name: an evaluation batch by batch.
fn goes_over_data(body: &[Stmt]) -> bool {
    body.iter().any(|statement| match statement {
        Stmt::For(repeat) => {
            names_in(&repeat.iter).iter().any(|name| is_data_name(name)) || goes_over_data(&repeat.body)
        }
        Stmt::With(with) => goes_over_data(&with.body),
        _ => false,
    })
}

/// Whether the annotation is `float`, which is also written for scalar tensors.
fn is_float(annotation: Option<&Expr>) -> bool {
    matches!(annotation, Some(Expr::Name(name)) if Role::FloatType.fits(name.id.as_str()))
}

fn imports_torch(program: &Program, file: usize) -> bool {
    let symbols = &program.sources.symbols.files[file];
    symbols.imports.values().chain(&symbols.star_imports).any(|dotted| api::is_of_torch(dotted))
}

impl<'p, 'a> Interpreter<'p, 'a> {
    fn file(&self) -> usize {
        self.program.symbol(self.function).file
    }

    fn kind(&self) -> FunctionKind {
        self.program.functions[self.function].kind
    }

    /// The current statement, where notes of it are taken.
    fn noted(&self) -> Option<&'a Stmt> {
        self.statement.filter(|_| self.is_recording && self.keeps_notes)
    }

    /// Whatever a fact of other functions says, this function depends on it.
    fn depends_on(&self, fact: Fact) {
        self.outcome.read.borrow_mut().insert(fact);
    }

    /// The value of a local name.
    fn named(&self, name: &str) -> Option<Value> {
        self.names.get(name).cloned().map(Value::reading)
    }

    /// Runs `inside` under one more frame.
    fn within<T>(&mut self, frame: Frame, range: TextRange, inside: impl FnOnce(&mut Self) -> T) -> T {
        let outer = self.context;
        self.context = add_context(self.program, Some(outer), frame, self.function, range);
        let result = inside(self);
        self.context = outer;
        result
    }

    /// An object of a class: a module, or another.
    fn instance(&self, class: ClassId) -> Value {
        if self.program.is_module(class) { Value::Model(Some(class)) } else { Value::Instance(class) }
    }

    /// A tensor as an operation returns it here: without a graph where none is recorded.
    fn tensor(&self, tensor: Tensor) -> Value {
        Value::Tensor(Tensor { graph: tensor.graph && self.without_graph == 0, ..tensor })
    }

    fn bind_parameters(&mut self) {
        let id = self.function;
        let function = self.program.symbol(id);
        let Some(definition) = function.definition else { return };
        let (class, parameters) = (function.class, &definition.parameters);
        let is_static = self.program.is_decorated(id, Role::StaticMethod);
        for (position, parameter) in parameters.iter_non_variadic_params().enumerate() {
            let name = parameter.parameter.name.as_str();
            let value = if let (Some(class), 0, false) = (class, position, is_static) {
                self.instance(class)
            } else {
                let known = self.parameter_value(name, parameter.default(), parameter.parameter.annotation.as_deref());
                match self.is_tensor_code() {
                    // On the device, whatever a caller passes.
                    true => known,
                    false => Value::Argument { index: position, placed: None, known: Box::new(known) },
                }
            };
            self.names.insert(name, value);
        }
        if let Some(rest) = &parameters.vararg {
            self.names.insert(rest.name.as_str(), Value::list(Value::Unknown));
        }
        if let Some(rest) = &parameters.kwarg {
            let passed = self.program.functions[id].passed.get(rest.name.as_str()).cloned();
            self.names.insert(rest.name.as_str(), passed.unwrap_or(Value::Unknown));
        }
    }

    /// The default that `@click.option("--name", default=…)` gives a parameter.
    fn option_of(&self, name: &str) -> Option<Value> {
        let definition = self.program.symbol(self.function).definition?;
        let is_it = |argument: &Expr| text_of(argument).is_some_and(|text| plain_name(text) == name);
        let calls = definition.decorator_list.iter().filter_map(|decorator| decorator.expression.as_call_expr());
        let mut options = calls.filter(|call| call.arguments.args.iter().any(is_it));
        options.find_map(|call| keyword_of(call, Role::DefaultOption.word())).map(literal)
    }

    /// `forward`, a loss, a training step: their arguments are on the device.
    fn is_tensor_code(&self) -> bool {
        matches!(self.kind(), FunctionKind::Step | FunctionKind::Loss)
    }

    fn parameter_value(&self, name: &str, default: Option<&Expr>, annotation: Option<&Expr>) -> Value {
        let facts = &self.program.functions[self.function];
        let default = default.map(literal);
        let annotated = self.annotated(annotation);
        match facts.passed.get(name).cloned().unwrap_or(Value::Unknown) {
            Value::Unknown | Value::Nothing => {}
            // Declared as a number, but passed by a caller whose own arguments are guesses.
            Value::Tensor(_) if annotated.as_ref().is_some_and(Value::is_sized) && !is_float(annotation) => {}
            Value::Tensor(tensor) if self.is_tensor_code() => {
                return Value::Tensor(Tensor { placement: Placement::Device, ..tensor });
            }
            known => return known,
        }
        // No visible caller says otherwise.
        if !facts.passed.contains_key(name)
            && Role::LoaderOption.fits_any_case(name)
            && let Some(value) = default.clone().or_else(|| self.option_of(name))
            && (value.known_integer().is_some() || value.known_bool().is_some())
        {
            return value;
        }
        if let Some(guess) = annotated {
            return guess;
        }
        match (by_name(name), default) {
            (_, Some(Value::Bool(_))) => Value::Bool(None),
            (_, Some(Value::Text(_))) => Value::Text(None),
            (Value::Unknown, _) if facts.trained.contains(name) => Value::DEVICE_WITH_GRAPH,
            (Value::Unknown, Some(Value::Number { .. })) => Value::SIZE,
            (Value::Unknown, _) if self.is_tensor_code() && Role::BatchIndex.fits(name) => Value::NUMBER,
            (Value::Unknown, _) if self.is_tensor_code() && !Role::Settings.fits(name) && !Role::Option.fits(name) => {
                Value::Tensor(Tensor::GUESS)
            }
            (guess, _) => guess,
        }
    }
}
