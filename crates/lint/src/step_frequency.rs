//! Finds the code that runs once per optimizer step.
//!
//! A loop is a loop of steps when a backward pass or an optimizer step is reached inside it and not through an inner
//! loop. Code that such a loop, a `forward` or a loss calls is hot too, and so is what that code calls. A guard around
//! the training call itself does not make its branch cold.

use ruff_python_ast::Expr;

use super::classes::{ClassKind, is_left_open};
use super::context::{Context, ContextId, Frame, Guard, LoopKind, StepFrequency};
use super::interpret::{is_drawing_name, is_model_name, is_optimizer_name};
use super::program::{Call, Callee, FunctionFacts, FunctionKind, Program};
use super::symbols::{ClassId, Function, FunctionId};
use super::syntax;
use super::value::Value;
use super::vocabulary::Role;

pub fn measure(program: &mut Program) {
    let passes = passes(program);
    let (training_calls, steps) = mark_training(program, &passes);
    cool_every_few_steps(program, &steps);
    let trains = functions_with(program, |context| context.trains);
    for (function, facts) in program.functions.iter_mut().enumerate() {
        // An evaluation that only computes gradients (attributions, attacks) stays an evaluation.
        let is_training = match facts.kind {
            FunctionKind::Evaluation => trains[function] && passes[function].update,
            FunctionKind::Kept => trains[function],
            _ => false,
        };
        if is_training {
            facts.kind = FunctionKind::Plain;
        }
    }
    let mut entries = step_entries(program, &steps, &passes);
    let mut entered = reached(program, &entries);
    while take_for_parts_of_steps(program, &entered) {
        entries = step_entries(program, &steps, &passes);
        entered = reached(program, &entries);
    }
    let evaluated = evaluated_functions(program);
    let contexts = 0..program.notes.contexts.len();
    let steps: Vec<bool> = (0..entries.len()).map(|function| entries[function] && is_step(program, function)).collect();
    program.frequency = StepFrequency {
        hot: contexts.clone().map(|id| is_hot(program, id, entered[program.function_at(id)])).collect(),
        driven: reached(program, &steps),
        steps: (0..steps.len()).filter(|function| steps[*function]).collect(),
        evaluation: contexts.map(|id| evaluated[program.function_at(id)] || holds_evaluation(program, id)).collect(),
        training_calls,
    };
}

/// `sample_noise`, `eval_metrics`: their names suggest sampling and measuring, but they are part of a step where a step
/// calls them. Returns whether any were new.
fn take_for_parts_of_steps(program: &mut Program, entered: &[bool]) -> bool {
    let mut found = false;
    // `self.model(x)`, `model.eval()`
    let mut runs_models = vec![false; program.functions.len()];
    for call in &program.notes.calls {
        let runs =
            Role::EvalMethod.fits(call.name) || matches!(call.receiver, Value::Model(_)) || is_model_name(call.name);
        runs_models[program.function_at(call.context)] |= runs;
    }
    for (function, facts) in program.functions.iter_mut().enumerate() {
        let symbol = &program.sources.symbols.functions[function];
        let is_of_plain = |class: ClassId| program.sources.classes[class].kind == ClassKind::Other;
        let is_free = symbol.class.is_none_or(is_of_plain) && !runs_models[function];
        let name = symbol.name;
        // `eval_metrics(output, target)`: measures values the step already has, and runs no model.
        let runs_model = |(name, value): (&&str, &Value)| {
            matches!(value, Value::Model(_) | Value::Loader(_))
                || is_model_name(name)
                || Role::Loader.fits_any_case(name)
        };
        let is_handed_tensors = || facts.passed.values().any(Value::is_on_device);
        let measures = is_free && is_handed_tensors() && !facts.passed.iter().any(runs_model);
        // `self._validate(emissions, mask)` in a `forward`: checks the step's inputs.
        let is_of_module = symbol.class.is_some_and(|class| program.sources.classes[class].kind.is_module());
        let checks = is_of_module && !runs_models[function] && Role::Validates.fits(name.trim_start_matches('_'));
        let is_part = is_drawing_name(name) || measures || checks;
        if facts.kind == FunctionKind::Evaluation && entered[function] && is_part {
            facts.kind = FunctionKind::Plain;
            found = true;
        }
    }
    found
}

/// `if i % n_critic == 0:` around its own backward pass, beside a whole step that always runs in the same loop: it runs
/// every few steps, or only on request. A branch that only applies gradients accumulated outside it, or that replaces
/// another branch, is the step itself.
fn cool_every_few_steps(program: &mut Program, steps: &[bool]) {
    let trains =
        |call: &&Call| is_training_call(call) || matches!(call.callee, Callee::Function(function) if steps[function]);
    let calls: Vec<(ContextId, &str)> =
        program.notes.calls.iter().filter(trains).map(|call| (call.context, call.name)).collect();
    let is_within = |inner: ContextId, outer: ContextId| program.outwards(inner).any(|(id, _)| id == outer);
    let seldom = |(id, guard): (ContextId, &Context)| {
        if !matches!(guard.frame, Frame::Guard(Guard::Cadence | Guard::OptIn)) || !guard.trains {
            return None;
        }
        let is_around = |frame: Frame| matches!(frame, Frame::Loop(LoopKind::Plain) | Frame::Body);
        let around = program.outwards(id).find(|(_, around)| is_around(around.frame))?.0;
        let is_backward = |name: &str| Role::BackwardName.fits(name);
        let goes_back = calls.iter().any(|(call, name)| is_backward(name) && is_within(*call, id));
        let always_runs = |call: ContextId| {
            let mut guards = program.outwards(call).filter(|(_, over)| matches!(over.frame, Frame::Guard(_)));
            !is_within(call, id) && is_within(call, around) && guards.all(|(over, _)| is_within(id, over))
        };
        let mut beside = [false, false];
        for (_, name) in calls.iter().filter(|(call, _)| always_runs(*call)) {
            // A function that is a step by itself does both.
            let is_whole = !is_backward(name) && !Role::UpdateCall.fits(name);
            beside[0] |= is_backward(name) || is_whole;
            beside[1] |= !is_backward(name);
        }
        (goes_back && beside == [true, true]).then_some(id)
    };
    let found: Vec<ContextId> = program.notes.contexts.iter().enumerate().filter_map(seldom).collect();
    for id in found {
        program.notes.contexts[id].trains = false;
    }
}

/// Marks the contexts around a training call, up to the loop whose iteration is the step. Returns whether the function's
/// own body was reached, so that calling the function is itself a step.
fn mark_around(program: &mut Program, from: ContextId, updates: bool) -> bool {
    let around: Vec<ContextId> = program.outwards(from).map(|(id, _)| id).collect();
    for id in around {
        let context = &mut program.notes.contexts[id];
        context.trains = true;
        context.updates |= updates;
        if context.frame == Frame::Loop(LoopKind::Plain) {
            return false;
        }
    }
    true
}

/// Marks the contexts of training calls, including calls of functions that train.
fn mark_training(program: &mut Program, passes: &[Passes]) -> (Vec<usize>, Vec<bool>) {
    let is_training: Vec<usize> =
        (0..program.notes.calls.len()).filter(|index| is_training_call(&program.notes.calls[*index])).collect();
    let is_left_to_others = |function: &Function| Role::TrainingStep.fits(function.name) && is_left_open(function);
    let mut steps: Vec<bool> = program.sources.symbols.functions.iter().map(is_left_to_others).collect();
    let closures = closures(program);
    for index in &is_training {
        let call = &program.notes.calls[*index];
        let (context, updates) = (call.context, !goes_back(call));
        // A step by name only, called for its result: `with torch.no_grad(): stats = model.train_step(x)`.
        let is_named = updates && !Role::UpdateCall.fits(call.name);
        if !is_named || !is_without_gradients(program, context) {
            steps[program.function_at(context)] |= mark_around(program, context, updates);
        }
    }
    loop {
        let reach = |call: &Call| {
            let own = program.function_at(call.context);
            let only_looks =
                |callee: &FunctionId| closures.contains(callee) && call.callee == Callee::Function(*callee);
            let trains = |callee: &FunctionId| steps[*callee] && *callee != own && !only_looks(callee);
            let mut trained = callees(program, call).filter(trains).peekable();
            // A caller that records no graph runs another's step for its result only.
            if is_without_gradients(program, call.context) || trained.peek().is_none() {
                return None;
            }
            Some((call.context, trained.any(|callee| passes[callee].update)))
        };
        let reached: Vec<(ContextId, bool)> = program.notes.calls.iter().filter_map(reach).collect();
        let before = steps.clone();
        for (context, updates) in reached {
            steps[program.function_at(context)] |= mark_around(program, context, updates);
        }
        if steps == before {
            break;
        }
    }
    mark_rollouts(program, passes);
    (is_training, steps)
}

/// `env.step(action)` in a loop of a function that also trains: work done for every move is done all the time.
fn mark_rollouts(program: &mut Program, passes: &[Passes]) {
    let moves = |call: &Call| {
        let function = program.function_at(call.context);
        let name = call.receiver_expression().and_then(last_name)?.to_ascii_lowercase();
        let is_environment = Role::Environment.fits(&name) && !Role::NotEnvironment.fits(&name);
        let trains = passes[function].backward && passes[function].update;
        (Role::StepMethod.fits(call.name) && is_environment && trains).then_some(call.context)
    };
    let found: Vec<ContextId> = program.notes.calls.iter().filter_map(moves).collect();
    for context in found {
        if program.is_in_loop(context) {
            mark_around(program, context, false);
        }
    }
}

/// Whether the context is under `torch.no_grad()`, within the function.
fn is_without_gradients(program: &Program, id: ContextId) -> bool {
    program.outwards(id).any(|(_, around)| {
        let source = &program.sources.files[program.symbol(around.function).file].text;
        let is_block = || source.get(usize::from(around.range.start())..).is_some_and(|text| Role::With.fits(text));
        matches!(around.frame, Frame::WithoutGraph | Frame::Evaluation) && is_block()
    })
}

/// Functions passed to an optimizer to run in its step. Calls of them elsewhere only look at the result.
fn closures(program: &Program) -> Vec<FunctionId> {
    let steps = program.notes.calls.iter().filter(|call| Role::StepMethod.fits(call.name) && is_training_call(call));
    steps.flat_map(Call::argument_values).flat_map(Value::functions).copied().collect()
}

/// Whether the function is one step, whoever calls it: backward pass and update, by itself or through its callees, with
/// no loop around and no visible call of it. A function passed as a value (`Engine(train_step)`) is called by its
/// receiver.
fn is_uncalled_step(program: &Program, function: FunctionId, passes: &[Passes]) -> bool {
    let symbol = program.symbol(function);
    let is_step =
        symbol.definition.is_some() && !program.functions[function].is_called && !Role::TestBegin.fits(symbol.name);
    is_step && passes[function].backward && passes[function].update
}

/// Whether an entry is a step by itself: a trainer's hook, or one whole step.
fn is_step(program: &Program, function: FunctionId) -> bool {
    let is_hook = !Role::Pass.fits(program.symbol(function).name);
    is_hook && program.functions[function].kind != FunctionKind::Loss
}

/// Whether the function is private to its file and unused there.
fn is_left_over(program: &Program, function: FunctionId) -> bool {
    let symbol = program.symbol(function);
    let text = &program.sources.files[symbol.file].text;
    symbol.class.is_none() && symbol.name.starts_with('_') && text.matches(symbol.name).count() == 1
}

/// The halves of a step that a function runs, including its callees.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Passes {
    backward: bool,
    update: bool,
}

fn passes(program: &Program) -> Vec<Passes> {
    let mut passes = vec![Passes::default(); program.functions.len()];
    loop {
        let before = passes.clone();
        for (function, own) in passes.iter_mut().enumerate() {
            for call in program.calls_of(function) {
                if is_training_call(call) {
                    let is_backward = goes_back(call);
                    own.backward |= is_backward;
                    own.update |= !is_backward;
                } else if clears_gradients(call) {
                    own.update = true;
                } else if let Callee::Function(callee) = call.callee {
                    for callee in std::iter::once(&callee).chain(program.written_below(callee)) {
                        own.backward |= before[*callee].backward;
                        own.update |= before[*callee].update;
                    }
                }
            }
        }
        if passes == before {
            return passes;
        }
    }
}

/// `optimizer.zero_grad()`: code that clears the gradients goes on to a step, perhaps elsewhere.
fn clears_gradients(call: &Call) -> bool {
    let is_named = || call.receiver_expression().and_then(last_name).is_some_and(is_optimizer_name);
    Role::ClearsGradients.fits(call.name) && (matches!(call.receiver, Value::Optimizer(_)) || is_named())
}

/// Functions that have such a context.
fn functions_with(program: &Program, is_meant: impl Fn(&Context) -> bool) -> Vec<bool> {
    let mut found = vec![false; program.functions.len()];
    for context in &program.notes.contexts {
        found[context.function] |= is_meant(context);
    }
    found
}

/// The functions a call may run: the callee, its overrides in derived classes, and functions passed as arguments.
fn callees<'c>(program: &'c Program, call: &'c Call) -> impl Iterator<Item = FunctionId> + 'c {
    let called = match call.callee {
        Callee::Function(function) => Some(function),
        // Instantiating a plain class runs its `__init__`.
        Callee::Class(class) if program.sources.classes[class].kind == ClassKind::Other => {
            program.method(class, Role::Constructor.word())
        }
        _ => None,
    };
    let below = called.map_or(&[][..], |function| program.written_below(function));
    let handed = call.argument_values().flat_map(Value::functions).copied();
    called.into_iter().chain(below.iter().copied()).chain(handed)
}

fn goes_back(call: &Call) -> bool {
    Role::BackwardName.fits(call.name)
}

pub fn is_training_call(call: &Call) -> bool {
    let is = |role: Role| role.fits(call.name);
    let last_name = call.receiver_expression().and_then(last_name);
    match &call.callee {
        Callee::Function(_) | Callee::Class(_) => false,
        Callee::External(dotted) if is(Role::Backward) => Role::AutogradCall.fits(dotted),
        _ if is(Role::BackwardCall) || is(Role::OptimizerStep) => true,
        _ if is(Role::StepMethod) => {
            matches!(call.receiver, Value::Optimizer(_) | Value::Scaler(_))
                || call.receiver != Value::Scheduler
                    && last_name.is_some_and(|name| is_optimizer_name(name) || Role::Scaler.fits(name))
        }
        Callee::Method | Callee::Value if is(Role::StepByName) => true,
        Callee::Value => is(Role::Scaler) && call.arguments.iter().any(|value| matches!(value, Value::Optimizer(_))),
        _ => false,
    }
}

/// The last name in `self.optimizers[0]`: `optimizers`.
fn last_name(expression: &Expr) -> Option<&str> {
    match expression {
        Expr::Subscript(subscript) => last_name(&subscript.value),
        Expr::Call(call) => last_name(&call.func),
        other => syntax::last_name(other),
    }
}

/// Functions that are entered once per step, whoever calls them.
fn step_entries(program: &Program, steps: &[bool], passes: &[Passes]) -> Vec<bool> {
    // Their other code runs once, even in a `forward`.
    let loops = functions_with(program, Context::is_step_loop);
    let is_entry = |(function, facts): (FunctionId, &FunctionFacts)| match facts.kind {
        FunctionKind::Step => !loops[function],
        FunctionKind::Plain => {
            let is_named = || Role::TrainingStep.fits(program.symbol(function).name);
            steps[function] && is_uncalled_step(program, function, passes)
                || !facts.is_called && !loops[function] && is_named()
        }
        FunctionKind::Loss => !facts.is_called && !facts.is_handed_over && !is_left_over(program, function),
        _ => false,
    };
    program.functions.iter().enumerate().map(is_entry).collect()
}

/// The entries, and all functions that they or loops of steps reach through calls made at every step, however many.
fn reached(program: &Program, entries: &[bool]) -> Vec<bool> {
    let mut found = entries.to_vec();
    // Each function is looked at first for its loops, and again where it turns out to be entered at every step.
    let mut queue: Vec<FunctionId> = (0..found.len()).collect();
    while let Some(function) = queue.pop() {
        let called = program.calls_of(function);
        let called = called.flat_map(|call| callees(program, call).map(move |callee| (call.context, callee)));
        for (context, callee) in called.chain(program.properties_of(function)) {
            if !found[callee] && is_hot(program, context, found[function]) {
                found[callee] = true;
                queue.push(callee);
            }
        }
    }
    found
}

/// Whether a context runs once per step, given whether its function is entered once per step.
fn is_hot(program: &Program, id: ContextId, entered_hot: bool) -> bool {
    let (mut in_step_loop, mut updates) = (false, false);
    for (_, context) in program.outwards(id) {
        match context.frame {
            Frame::Evaluation | Frame::Guard(Guard::Evaluation) if !context.trains && !in_step_loop => return false,
            // Parameters are updated under it, so some other model was frozen. Gradients alone belong to an evaluation.
            Frame::Evaluation if !context.trains && !updates => return false,
            Frame::Handler if !context.trains && !in_step_loop => return false,
            Frame::Guard(guard) if guard.cools() && !context.trains && !in_step_loop => return false,
            Frame::Loop(LoopKind::Plain) if context.trains => {
                in_step_loop = true;
                updates |= context.updates;
            }
            Frame::Body => {
                let kind = program.functions[context.function].kind;
                let is_cold = matches!(kind, FunctionKind::Evaluation | FunctionKind::Kept);
                return !is_cold && (in_step_loop || entered_hot);
            }
            _ => {}
        }
    }
    false
}

fn holds_evaluation(program: &Program, id: ContextId) -> bool {
    program.outwards(id).any(|(_, context)| {
        matches!(context.frame, Frame::Evaluation | Frame::Guard(Guard::Evaluation)) && !context.trains
    })
}

/// Functions that evaluate by name or decorator, or that only evaluation calls.
fn evaluated_functions(program: &Program) -> Vec<bool> {
    let mut evaluated: Vec<bool> =
        program.functions.iter().map(|facts| facts.kind == FunctionKind::Evaluation).collect();
    loop {
        let before = evaluated.clone();
        let mut called = vec![(0u32, 0u32); evaluated.len()];
        for call in &program.notes.calls {
            let caller = program.function_at(call.context);
            let in_evaluation = evaluated[caller] || holds_evaluation(program, call.context);
            for callee in callees(program, call) {
                called[callee].0 += 1;
                called[callee].1 += u32::from(in_evaluation);
            }
        }
        for (function, (all, from_evaluation)) in called.into_iter().enumerate() {
            let is_step = program.functions[function].kind == FunctionKind::Step;
            evaluated[function] |= all > 0 && all == from_evaluation && !is_step;
        }
        if evaluated == before {
            return evaluated;
        }
    }
}
