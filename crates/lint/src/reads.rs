//! Finds reads of a device value by the host: calls, tests and formatted text that wait for the device.

use ruff_python_ast::{Expr, Parameters, Stmt};
use ruff_text_size::{Ranged, TextRange};

use super::context::ContextId;
use super::interpret::{by_name, is_model_name};
use super::program::{Call, Callee, Program};
use super::symbols::FunctionId;
use super::value::{Placement, Value};

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
    let name = match call.receiver_expression() {
        Some(Expr::Name(name)) => name.id.as_str(),
        Some(Expr::Attribute(attribute)) => attribute.attr.as_str(),
        _ => return false,
    };
    let is_meant = || by_name(name) == call.receiver || name.to_ascii_lowercase().contains("loss");
    matches!(call.receiver, Value::Number { known: None, sized: true } | Value::Model(None)) && is_meant()
}

/// `def to_cpu(x): return x.detach().cpu()`: a function that only copies back, wherever it is called. Branches on the
/// argument's type do not change that.
pub fn copies_only(program: &Program, function: FunctionId) -> Option<Read> {
    let symbol = &program.sources.symbols.functions[function];
    let parameters = &symbol.definition?.parameters;
    let is_text = |statement: &&Stmt| matches!(statement, Stmt::Expr(inner) if inner.value.is_string_literal_expr());
    let (mut read, mut is_by_type) = (None, false);
    for statement in symbol.body.iter().filter(|statement| !is_text(statement)) {
        match statement {
            Stmt::Return(returned) => read = read_on_the_way(parameters, returned.value.as_deref()?)?.or(read),
            Stmt::If(branch) if asks_for_type(&branch.test) => {
                is_by_type = true;
                let bodies = branch.elif_else_clauses.iter().map(|clause| &clause.body);
                for body in std::iter::once(&branch.body).chain(bodies) {
                    match body.as_slice() {
                        [Stmt::Return(returned)] => {
                            read = read_on_the_way(parameters, returned.value.as_deref()?)?.or(read);
                        }
                        [Stmt::Raise(_)] => {}
                        _ => return None,
                    }
                }
            }
            Stmt::Raise(_) => {}
            _ => return None,
        }
    }
    // A scalar read is fixed where it happens; one under a type test belongs to a utility.
    read.filter(|read| *read != Read::Scalar || is_by_type)
}

/// `isinstance(x, …)`, `torch.is_tensor(x)`.
pub fn asks_for_type(test: &Expr) -> bool {
    matches!(test, Expr::Call(call) if super::names_in(&call.func).iter().any(|name| matches!(*name, "isinstance" | "is_tensor")))
}

/// How a chain of methods on a parameter reads it back, if it does; `None` if the expression is not such a chain.
fn read_on_the_way(parameters: &Parameters, returned: &Expr) -> Option<Option<Read>> {
    let (mut at, mut read) = (returned, None);
    loop {
        at = match at {
            Expr::Call(call) => {
                let Expr::Attribute(method) = &*call.func else { return None };
                match method.attr.as_str() {
                    "cpu" | "tolist" => read = Some(Read::Copy),
                    "item" => read = Some(Read::Scalar),
                    "numpy" | "detach" | "float" | "squeeze" | "flatten" | "astype" | "copy" | "reshape" => {}
                    _ => return None,
                }
                &method.value
            }
            Expr::Attribute(attribute) if attribute.attr.as_str() == "data" => &attribute.value,
            Expr::Subscript(subscript) => &subscript.value,
            Expr::Name(name) if parameters.includes(name.id.as_str()) => return Some(read),
            _ => return None,
        };
    }
}

/// How a call reads back, if it does. A utility that only copies back is charged to its callers.
pub fn read_of(program: &Program, call: &Call) -> Option<Read> {
    if copies_only(program, program.notes.contexts.get(call.context).function).is_some() {
        return None;
    }
    read_at(program, call)
}

/// How a call copies tensors back inside a utility that accepts arrays and tensors alike. A one-line copy is charged to
/// its callers.
pub fn read_in_tool(program: &Program, call: &Call) -> Option<Read> {
    let function = program.notes.contexts.get(call.context).function;
    let by_type = |one: &Stmt| matches!(one, Stmt::If(branch) if asks_for_type(&branch.test));
    copies_only(program, function).filter(|_| program.sources.symbols.functions[function].body.iter().any(by_type))?;
    read_at(program, call).filter(|_| call.is_method())
}

fn read_at(program: &Program, call: &Call) -> Option<Read> {
    match (&call.callee, call.name) {
        (Callee::Function(function), _) => {
            let given = call.arguments.first().is_some_and(Value::is_on_device);
            copies_only(program, *function).filter(|_| given)
        }
        (Callee::Method, "item") if call.arguments.is_empty() => {
            let through_copy =
                call.receiver_expression().is_some_and(|receiver| is_copy_of_device(program, call, receiver));
            let may_be = may_be_on_device(&call.receiver) || is_misnamed(call);
            (may_be || through_copy).then_some(Read::Scalar)
        }
        (Callee::External(dotted), _) => match dotted.as_str() {
            "builtins.float" | "builtins.int" => {
                call.arguments.first().is_some_and(Value::is_surely_on_device).then_some(Read::Scalar)
            }
            "builtins.bool" | "math.isnan" | "math.isfinite" | "math.isinf" => {
                call.arguments.first().is_some_and(Value::is_surely_on_device).then_some(Read::Truth)
            }
            "builtins.range" => call.arguments.iter().any(Value::is_surely_on_device).then_some(Read::Scalar),
            // `max(count, 1)` compares on the host.
            "builtins.max" | "builtins.min" if call.arguments.len() > 1 => {
                call.arguments.iter().any(Value::is_surely_on_device).then_some(Read::Truth)
            }
            "math.exp" | "math.log" | "math.sqrt" => {
                call.arguments.first().is_some_and(Value::is_surely_on_device).then_some(Read::Scalar)
            }
            _ => None,
        },
        (Callee::Method, "cpu") => {
            // A comparison of unknown values is a tensor as well if it has such a method.
            let is_compared = matches!(call.receiver, Value::Bool(None));
            let is_size = is_misnamed(call) && !matches!(call.receiver, Value::Model(_));
            // `state["model"].cpu()`
            let is_model = || {
                matches!(call.receiver_expression(), Some(Expr::Subscript(part))
                if super::settings::text_of(&part.slice).is_some_and(is_model_name))
            };
            let may_be = may_be_on_device(&call.receiver) || is_compared || is_size;
            (may_be && !is_model() && !feeds_item(program, call)).then_some(Read::Copy)
        }
        // `.numpy()` itself reads nothing back: torch rejects it on a device tensor. The `.cpu()` before it does the
        // copy.
        (Callee::Method, "tolist") => call.receiver.is_on_device().then_some(Read::Copy),
        // `.type(torch.FloatTensor)`
        (Callee::Method, "type") => {
            let to_host = matches!(&call.result, Value::Tensor(tensor) if tensor.placement == Placement::Host);
            (call.receiver.is_surely_on_device() && to_host).then_some(Read::Copy)
        }
        (Callee::Method, "to") => {
            let to_host = matches!(&call.result, Value::Tensor(tensor) if tensor.placement == Placement::Host);
            (call.receiver.is_on_device() && to_host && !feeds_item(program, call)).then_some(Read::Copy)
        }
        _ => None,
    }
}

/// Whether a call passes a device value to something that prints or records it.
pub fn shows(program: &Program, call: &Call) -> bool {
    let given = || call.argument_values().any(Value::surely_holds_device);
    match (&call.callee, call.name) {
        (Callee::External(dotted), _) => {
            matches!(
                dotted.as_str(),
                "builtins.print" | "wandb.log" | "mlflow.log_metric" | "mlflow.log_metrics" | "tqdm.tqdm.write"
            ) && given()
                || dotted.starts_with("logging.") && given()
                || matches!(dotted.as_str(), "builtins.str" | "builtins.repr")
                    && call.arguments.first().is_some_and(Value::is_surely_on_device)
        }
        (
            Callee::Method,
            "add_scalar"
            | "add_scalars"
            | "set_postfix"
            | "set_postfix_str"
            | "set_description"
            | "set_description_str"
            | "log_metric"
            | "log_metrics"
            | "log_scalar",
        ) => given(),
        (Callee::Method, "log" | "info" | "debug" | "warning" | "print" | "track") => {
            // Lightning's own `self.log`, in a class whose base is not among the files.
            let is_lightning = ["on_step", "on_epoch", "prog_bar", "sync_dist"]
                .iter()
                .any(|option| call.node.arguments.find_keyword(option).is_some());
            // `run.track(loss)` records, `tracker.track(boxes)` tracks objects.
            let follows = call.name == "track"
                && call.receiver_expression().is_some_and(|owner| {
                    super::names_in(owner).first().is_some_and(|name| name.to_ascii_lowercase().contains("tracker"))
                });
            !follows && !is_lightning && !matches!(call.receiver, Value::Model(_) | Value::Tensor(_)) && given()
        }
        (Callee::Method, "update" | "add") => {
            let named = call.receiver_expression().map(|receiver| super::names_in(receiver)).unwrap_or_default();
            let is_meter =
                named.iter().any(|name| name.to_ascii_lowercase().contains("meter") || *name == "metric_logger");
            (call.receiver == Value::Meter || call.receiver == Value::Unknown && is_meter) && given()
        }
        // A project's own logger or meter.
        (Callee::Function(function), name) if is_logging_name(name) => {
            let owner = program.sources.symbols.functions[*function].class;
            let reads = |inner: &Call| {
                let is_sink = inner.callee == Callee::Method && inner.name.starts_with("add_scalar");
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

/// Methods that print or record what they are given and keep nothing that a later step reads.
const SINKS: [&str; 15] = [
    "add_scalar",
    "add_scalars",
    "debug",
    "info",
    "log",
    "log_metric",
    "log_metrics",
    "log_scalar",
    "print",
    "set_description",
    "set_description_str",
    "set_postfix",
    "set_postfix_str",
    "warning",
    "write",
];

/// Methods that read a value and leave it as it is.
const READERS: [&str; 16] = [
    "cpu",
    "detach",
    "format",
    "get_last_lr",
    "get_scale",
    "item",
    "items",
    "join",
    "keys",
    "max",
    "mean",
    "min",
    "norm",
    "numpy",
    "sum",
    "tolist",
];

/// Whether leaving the statement out at a step changes only what is shown: it calls something that prints or records,
/// with arguments that only read.
pub fn only_shows(program: &Program, context: ContextId, statement: &Stmt) -> bool {
    let Stmt::Expr(shown) = statement else { return false };
    let function = program.notes.contexts.get(context).function;
    let inside = program.calls_of(function).filter(|call| statement.range().contains_range(call.node.range()));
    let (outer, inner): (Vec<&Call>, Vec<&Call>) = inside.partition(|call| call.node.range() == shown.value.range());
    let is_sink = |call: &&Call| match &call.callee {
        Callee::External(dotted) => dotted == "builtins.print" || SINKS.contains(&call.name),
        Callee::Method => SINKS.contains(&call.name) && call.receiver != Value::Meter,
        _ => false,
    };
    let only_reads = |call: &&Call| {
        let of_library = call.external().is_some_and(|dotted| dotted != "builtins.next");
        of_library || call.is_method() && READERS.contains(&call.name)
    };
    !outer.is_empty() && outer.iter().all(is_sink) && inner.iter().all(only_reads)
}

/// `update`, `log_training`, `write_scalars`: names of methods that store their arguments.
fn is_logging_name(name: &str) -> bool {
    matches!(name, "update" | "add") || name.split('_').any(|word| matches!(word, "log" | "write" | "record"))
}

/// `.cpu()` on a device value, right before `.item()`.
fn is_copy_of_device(program: &Program, outer: &Call, receiver: &Expr) -> bool {
    let Expr::Call(inner) = receiver else { return false };
    let named = matches!(&*inner.func, Expr::Attribute(attribute) if matches!(attribute.attr.as_str(), "cpu" | "to"));
    named && call_at(program, outer, inner.range()).is_some_and(|inner| may_be_on_device(&inner.receiver))
}

fn call_at<'p, 'a>(program: &'p Program<'a>, near: &Call, range: TextRange) -> Option<&'p Call<'a>> {
    let file = program.file_of(near.context);
    program.places.call_by_range.get(&(file, range)).map(|index| &program.notes.calls[*index])
}

fn feeds_item(program: &Program, call: &Call) -> bool {
    program.places.item_receivers.contains(&(program.file_of(call.context), call.node.range()))
}
