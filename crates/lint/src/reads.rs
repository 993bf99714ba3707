//! Finds reads of a device value by the host: calls, tests and formatted text that wait for the device.

use ruff_python_ast::{Expr, Parameters, Stmt};
use ruff_text_size::Ranged;

pub use super::asked::Read;
use super::context::ContextId;
use super::effects::{Effect, Owner};
use super::interpret::{by_name, is_model_name};
use super::program::{Call, Callee, Program};
use super::symbols::FunctionId;
use super::syntax::{blocks_of, last_name, text_of};
use super::value::{Placement, Value};
use super::vocabulary::Role;

/// Whether this is a device tensor, or an unknown value with a method that only tensors have.
fn may_be_on_device(value: &Value) -> bool {
    match value {
        Value::Tensor(tensor) => tensor.placement == Placement::Device,
        Value::Unknown => true,
        _ => false,
    }
}

/// Whether the receiver was taken for a size or a module by name alone (`lengths`, `policy_value`): neither has methods
/// that read back.
fn is_misnamed(call: &Call) -> bool {
    let Some(name) = call.receiver_expression().and_then(last_name) else { return false };
    let is_meant = || by_name(name) == call.receiver || Role::LossName.fits_any_case(name);
    matches!(call.receiver, Value::Number { known: None, sized: true } | Value::Model(None)) && is_meant()
}

/// `def to_cpu(x): return x.detach().cpu()`: a function that only copies back, wherever it is called, by itself or
/// through others like it. Branches on the argument's type do not change that.
pub fn copies_only(program: &Program, function: FunctionId) -> Option<Read> {
    copies_through(program, function, &mut Vec::new())
}

fn copies_through(program: &Program, function: FunctionId, callers: &mut Vec<FunctionId>) -> Option<Read> {
    if callers.contains(&function) {
        return None;
    }
    program.asked.copies.of(function, || {
        callers.push(function);
        let read = copy_of_body(program, function, callers);
        callers.pop();
        read
    })
}

fn copy_of_body(program: &Program, function: FunctionId, callers: &mut Vec<FunctionId>) -> Option<Read> {
    let symbol = program.symbol(function);
    let parameters = &symbol.definition?.parameters;
    let is_text = |statement: &&Stmt| matches!(statement, Stmt::Expr(inner) if inner.value.is_string_literal_expr());
    let (mut read, mut is_by_type) = (None, false);
    for statement in symbol.body.iter().filter(|statement| !is_text(statement)) {
        let bodies = match statement {
            Stmt::If(branch) if asks_for_type(&branch.test) => {
                is_by_type = true;
                blocks_of(statement)
            }
            plain => vec![std::slice::from_ref(plain)],
        };
        for body in bodies {
            match body {
                [Stmt::Return(returned)] => {
                    read = read_on_the_way(program, callers, parameters, returned.value.as_deref()?)?.or(read);
                }
                [Stmt::Raise(_)] => {}
                _ => return None,
            }
        }
    }
    // A scalar read is fixed where it happens; one under a type test belongs to a utility.
    read.filter(|read| *read != Read::Scalar || is_by_type)
}

/// `isinstance(x, …)`, `torch.is_tensor(x)`.
pub fn asks_for_type(test: &Expr) -> bool {
    matches!(test, Expr::Call(call) if super::names_in(&call.func).iter().any(|name| Role::AsksType.fits(name) || Role::AsksTensor.fits(name)))
}

/// How a chain of methods on a parameter reads it back, if it does; `None` if the expression is not such a chain.
fn read_on_the_way(
    program: &Program,
    callers: &mut Vec<FunctionId>,
    parameters: &Parameters,
    returned: &Expr,
) -> Option<Option<Read>> {
    let (mut at, mut read) = (returned, None);
    loop {
        at = match at {
            Expr::Call(call) => {
                let Expr::Attribute(method) = &*call.func else {
                    // `return to_cpu(x)`
                    let file = program.symbol(*callers.last()?).file;
                    let noted = program.call_at(file, call.range())?;
                    let Callee::Function(helper) = noted.callee else { return None };
                    read = Some(copies_through(program, helper, callers)?);
                    at = call.arguments.args.first()?;
                    continue;
                };
                match Owner::Tensor.effect(method.attr.as_str()) {
                    Effect::ToHost | Effect::Numbers => read = Some(Read::Copy),
                    Effect::Number => read = Some(Read::Scalar),
                    _ if Role::PassesOn.fits(method.attr.as_str()) => {}
                    _ => return None,
                }
                &method.value
            }
            Expr::Attribute(attribute) if Role::DataAttribute.fits(attribute.attr.as_str()) => &attribute.value,
            Expr::Subscript(subscript) => &subscript.value,
            Expr::Name(name) if parameters.includes(name.id.as_str()) => return Some(read),
            _ => return None,
        };
    }
}

/// How a call reads back, if it does. A utility that only copies back is charged to its callers.
pub fn read_of(program: &Program, call: &Call) -> Option<Read> {
    if copies_only(program, program.function_at(call.context)).is_some() {
        return None;
    }
    read_at(program, call)
}

/// How a call copies tensors back inside a utility that accepts arrays and tensors alike. A one-line copy is charged to
/// its callers.
pub fn read_in_tool(program: &Program, call: &Call) -> Option<Read> {
    let function = program.function_at(call.context);
    let by_type = |one: &Stmt| matches!(one, Stmt::If(branch) if asks_for_type(&branch.test));
    copies_only(program, function).filter(|_| program.symbol(function).body.iter().any(by_type))?;
    read_at(program, call).filter(|_| call.is_method())
}

fn read_at(program: &Program, call: &Call) -> Option<Read> {
    match &call.callee {
        Callee::Function(function) => {
            let given = call.arguments.first().is_some_and(Value::is_on_device);
            copies_only(program, *function).filter(|_| given)
        }
        Callee::External(dotted) => {
            let first = || call.arguments.first().is_some_and(Value::is_surely_on_device);
            let any = || call.arguments.iter().any(Value::is_surely_on_device);
            match Owner::ReadingCall.effect(dotted) {
                Effect::ReadsScalar => first().then_some(Read::Scalar),
                Effect::ReadsTruth => first().then_some(Read::Truth),
                Effect::ReadsEach => any().then_some(Read::Scalar),
                // `max(count, 1)` compares on the host.
                Effect::Compares if call.arguments.len() > 1 => any().then_some(Read::Truth),
                _ => None,
            }
        }
        Callee::Method => read_by_method(program, call),
        _ => None,
    }
}

fn read_by_method(program: &Program, call: &Call) -> Option<Read> {
    let to_host = || matches!(&call.result, Value::Tensor(tensor) if tensor.placement == Placement::Host);
    let receiver = call.receiver_expression();
    match Owner::Tensor.effect(call.name) {
        Effect::Number if call.arguments.is_empty() => {
            let through_copy = receiver.is_some_and(|receiver| is_copy_of_device(program, call, receiver));
            let may_be = may_be_on_device(&call.receiver) || is_misnamed(call);
            (may_be || through_copy).then_some(Read::Scalar)
        }
        Effect::ToHost => {
            // A comparison of unknown values is a tensor as well if it has such a method.
            let is_compared = matches!(call.receiver, Value::Bool(None));
            let is_size = is_misnamed(call) && !matches!(call.receiver, Value::Model(_));
            // `state["model"].cpu()`
            let is_model = || {
                matches!(receiver, Some(Expr::Subscript(part))
                if text_of(&part.slice).is_some_and(is_model_name))
            };
            let may_be = may_be_on_device(&call.receiver) || is_compared || is_size;
            (may_be && !is_model() && !feeds_item(program, call)).then_some(Read::Copy)
        }
        // `.numpy()` itself reads nothing back: torch rejects it on a device tensor. The `.cpu()` before it does the
        // copy.
        Effect::Numbers => call.receiver.is_on_device().then_some(Read::Copy),
        // `.type(torch.FloatTensor)`
        Effect::Retypes => (call.receiver.is_surely_on_device() && to_host()).then_some(Read::Copy),
        Effect::Moves => {
            (call.receiver.is_on_device() && to_host() && !feeds_item(program, call)).then_some(Read::Copy)
        }
        _ => None,
    }
}

/// Whether a call passes a device value to something that prints or records it.
pub fn shows(program: &Program, call: &Call) -> bool {
    let given = || call.argument_values().any(Value::surely_holds_device);
    let is = |role: Role| role.fits(call.name);
    let owners = || call.receiver_expression().map(super::names_in).unwrap_or_default();
    match &call.callee {
        Callee::External(dotted) => {
            match Owner::LoggingCall.effect(dotted).or_else(|| Owner::LoggingCall.effect_of_part(dotted)) {
                Effect::Shows => given(),
                Effect::First => call.arguments.first().is_some_and(Value::is_surely_on_device),
                _ => false,
            }
        }
        Callee::Method if is(Role::LogsScalar) => given(),
        Callee::Method if is(Role::Logs) => {
            // Lightning's own `self.log`, in a class whose base is not among the files.
            let is_lightning =
                call.keywords.iter().any(|(name, _)| name.is_some_and(|name| Role::LightningOption.fits(name)));
            // `run.track(loss)` records, `tracker.track(boxes)` tracks objects.
            let is_tracker = |name: &&str| Role::Tracker.fits_any_case(name);
            let follows = is(Role::Tracks) && owners().first().is_some_and(is_tracker);
            !follows && !is_lightning && !matches!(call.receiver, Value::Model(_) | Value::Tensor(_)) && given()
        }
        Callee::Method if is(Role::AddsToMeter) => {
            let is_meter = || owners().iter().any(|name| Role::MeterName.fits_any_case(name));
            (call.receiver == Value::Meter || call.receiver == Value::Unknown && is_meter()) && given()
        }
        // A project's own logger or meter.
        Callee::Function(function) if is(Role::LoggingName) => {
            let owner = program.symbol(*function).class;
            let reads = |inner: &Call| {
                let is_sink = inner.callee == Callee::Method && Role::ScalarSink.fits(inner.name);
                let waits = read_of(program, inner) == Some(Read::Scalar) || is_sink && shows(program, inner);
                // Behind the callee's own interval it is read only now and then.
                let is_due = program.is_hot(inner.context);
                waits && is_due && !program.is_on_side_stream(inner.context, inner.node.range())
            };
            owner.is_some() && given() && program.calls_of(*function).any(reads)
        }
        _ => false,
    }
}

/// Whether leaving the statement out at a step changes only what is shown: it calls something that prints or records,
/// with arguments that only read.
pub fn only_shows(program: &Program, context: ContextId, statement: &Stmt) -> bool {
    let Stmt::Expr(shown) = statement else { return false };
    let function = program.function_at(context);
    let inside = program.calls_of(function).filter(|call| statement.range().contains_range(call.node.range()));
    let (outer, inner): (Vec<&Call>, Vec<&Call>) = inside.partition(|call| call.node.range() == shown.value.range());
    let is_sink = |call: &&Call| match &call.callee {
        Callee::External(_) => Role::Sink.fits(call.name),
        Callee::Method => Role::Sink.fits(call.name) && call.receiver != Value::Meter,
        _ => false,
    };
    let only_reads = |call: &&Call| {
        let of_library = call.external().is_some() && !Role::Next.fits(call.name);
        of_library || call.is_method() && Role::Reader.fits(call.name)
    };
    !outer.is_empty() && outer.iter().all(is_sink) && inner.iter().all(only_reads)
}

/// `.cpu()` on a device value, right before `.item()`.
fn is_copy_of_device(program: &Program, outer: &Call, receiver: &Expr) -> bool {
    let Expr::Call(inner) = receiver else { return false };
    let named = matches!(&*inner.func, Expr::Attribute(attribute)
        if matches!(Owner::Tensor.effect(attribute.attr.as_str()), Effect::ToHost | Effect::Moves));
    named
        && program
            .call_at(program.file_of(outer.context), inner.range())
            .is_some_and(|inner| may_be_on_device(&inner.receiver))
}

fn feeds_item(program: &Program, call: &Call) -> bool {
    program.places.item_receivers.contains(&(program.file_of(call.context), call.node.range()))
}
