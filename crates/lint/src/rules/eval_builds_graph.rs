//! TP601: an evaluation records a graph that is not used.

use ruff_python_ast::StmtFunctionDef;

use super::*;
use crate::file::SourceFile;

pub fn check(check: &mut Check) {
    let program = check.program;
    let mut seen: Vec<FunctionId> = Vec::new();
    for call in &program.notes.calls {
        let function = program.function_at(call.context);
        let is_forward = match call.callee {
            Callee::Value => call.result.is_on_device(),
            Callee::Function(callee) => program.functions[callee].kind == FunctionKind::Step,
            _ => false,
        };
        let called = function_name(call.node);
        let is_model = called == "forward" || is_model_name(called);
        if !is_forward || !is_model || seen.contains(&function) || !evaluates(program, function, call.context) {
            continue;
        }
        if is_without_graph(program, call.context, 3) {
            continue;
        }
        seen.push(function);
        let symbol = program.symbol(function);
        let message = format!(
            "`{}` runs the model without `no_grad`: every activation is kept for a backward pass that never comes",
            symbol.name
        );
        let edits = match symbol.definition {
            Some(definition) if imports_torch(program, symbol.file) && is_surely_evaluation(program, function) => {
                vec![decorate(&program.sources.files[symbol.file], definition)]
            }
            _ => Vec::new(),
        };
        check.report_as(Notice::Pedantic, call, message, Fix::unsafe_("`@torch.no_grad()` on the function", edits));
    }
}

/// Directly above `def`: what other decorators make of the function need not be a function.
fn decorate(source: &SourceFile, definition: &StmtFunctionDef) -> Edit {
    let start = definition.decorator_list.first().map_or(definition.range.start(), |first| first.range().start());
    let indent = source.indentation(start);
    match definition.decorator_list.last() {
        Some(last) => Edit::insert(last.range().end(), format!("\n{indent}@torch.no_grad()")),
        None => Edit::insert(start, format!("@torch.no_grad()\n{indent}")),
    }
}

/// A name alone does not prove it where nobody is seen to call the function: its result may be trained on elsewhere.
fn is_surely_evaluation(program: &Program, function: FunctionId) -> bool {
    switches_to_evaluation(program, function) || program.callers_of(function).next().is_some()
}

/// Whether a training step calls the function, or something of its name that is not among the files.
fn is_part_of_step(program: &Program, function: FunctionId) -> bool {
    let name = program.symbol(function).name;
    let may_be = |call: &Call| match call.callee {
        Callee::Function(callee) => callee == function,
        Callee::Method | Callee::Value => call.name == name,
        _ => false,
    };
    program.hot_calls().any(|call| may_be(call) && !program.is_evaluation(call.context))
}

fn switches_to_evaluation(program: &Program, function: FunctionId) -> bool {
    program
        .calls_of(function)
        .any(|call| call.name == "eval" && matches!(call.receiver, Value::Model(_) | Value::Unknown))
}

fn imports_torch(program: &Program, file: usize) -> bool {
    program.sources.symbols.files[file].imports.get("torch").is_some_and(|dotted| dotted == "torch")
}

/// Whether the function evaluates: at least two of an evaluation's name, `model.eval()` and a loop, and no training.
fn evaluates(program: &Program, function: FunctionId, context: ContextId) -> bool {
    let symbol = program.symbol(function);
    let class = symbol.class.map_or(ClassKind::Other, |class| program.sources.classes[class].kind);
    if symbol.definition.is_none()
        || class == ClassKind::Lightning
        || program.functions[function].kind == FunctionKind::Step
    {
        return false;
    }
    let trains = program.contexts_of(function).any(|(_, around)| around.trains);
    let asks_gradient =
        program.calls_of(function).any(|call| matches!(call.name, "backward" | "grad" | "requires_grad_"));
    let switches = switches_to_evaluation(program, function);
    let is_decorated = program.functions[function].kind == FunctionKind::Evaluation && !is_evaluation_name(symbol.name);
    let in_loop = program.is_within(context, |frame| matches!(frame, Frame::Loop(_)));
    let by_name = is_evaluation_name(symbol.name) && (switches || in_loop);
    !trains
        && !asks_gradient
        && !is_decorated
        && (by_name || switches && in_loop)
        && !is_part_of_step(program, function)
}

/// Whether the context is in a `no_grad` block, in a decorated function, or only called from one.
fn is_without_graph(program: &Program, context: ContextId, depth: usize) -> bool {
    let function = program.function_at(context);
    let held = program.outwards(context).any(|(_, around)| {
        matches!(around.frame, Frame::Evaluation | Frame::WithoutGraph) && is_no_grad(program, around.range, function)
    });
    if held || is_decorated(program, function) {
        return true;
    }
    let mut callers = program.callers_of(function).peekable();
    depth > 0 && callers.peek().is_some() && callers.all(|call| is_without_graph(program, call.context, depth - 1))
}

fn is_decorated(program: &Program, function: FunctionId) -> bool {
    let symbol = program.symbol(function);
    symbol.definition.is_some_and(|definition| {
        definition.decorator_list.iter().any(|decorator| {
            let text = program.sources.files[symbol.file].slice(decorator.range());
            text.contains("no_grad") || text.contains("inference_mode") || text.contains("disable_grad")
        })
    })
}

/// Whether the range is a block that turns gradients off, not just the code after `model.eval()`.
fn is_no_grad(program: &Program, range: TextRange, function: FunctionId) -> bool {
    let symbol = program.symbol(function);
    let block = headroom_rewrite::edits::block_around(symbol.body, range);
    block.is_some_and(|block| {
        block.iter().any(|statement| statement.range() == range && matches!(statement, Stmt::With(_)))
    })
}
