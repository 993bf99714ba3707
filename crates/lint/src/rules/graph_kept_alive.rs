//! TP205: a sum or list that keeps every step's graph alive.

use rustc_hash::FxHashSet;

use ruff_python_ast::{Expr, Stmt};
use ruff_text_size::{Ranged, TextRange};

use crate::context::ContextId;
use crate::finding::{Cause, Confidence, Effort, Severity};
use crate::fix::{Edit, Fix};
use crate::program::Program;
use crate::readback_use::counts;
use crate::rule::{Check, SourceRule};
use crate::syntax::blocks_of;
use crate::value::Value;

pub const RULE: SourceRule = SourceRule {
    code: "TP205",
    name: "graph-kept-alive",
    cause: Cause::MemoryGrows,
    severity: Severity::High,
    effort: Effort::Low,
    confidence: Confidence::Medium,
    operators: &["aten::add_", "aten::add"],
    page: include_str!("graph_kept_alive.md"),
    check,
};

fn check(check: &mut Check) {
    let program = check.program;
    for sum in &program.notes.accumulations {
        let is_count = crate::names_in(sum.expression).first().is_some_and(|name| counts(name));
        let kept = program.is_hot(sum.context) && sum.value.carries_graph() && !is_count;
        if kept && outlives_step(program, sum.context, sum.target) && !is_detached(program, sum.context, sum.expression)
        {
            report(check, sum.context, sum.statement, sum.expression, sum.target);
        }
    }
    for call in program.hot_calls() {
        if call.name != "append" || !call.is_method() || !call.arguments.first().is_some_and(Value::carries_graph) {
            continue;
        }
        if let (Some(list), Some(argument)) = (call.receiver_expression(), call.node.arguments.args.first())
            && matches!(call.receiver, Value::List(_))
            && outlives_step(program, call.context, list)
            && !is_detached(program, call.context, argument)
        {
            report(check, call.context, call.statement, argument, list);
        }
    }
}

fn report(check: &mut Check, context: ContextId, statement: &Stmt, value: &Expr, target: &Expr) {
    let program = check.program;
    let (value_text, target) = (program.text(context, value), program.text(context, target));
    let detached = match value {
        Expr::Name(_) | Expr::Attribute(_) | Expr::Subscript(_) | Expr::Call(_) => format!("{value_text}.detach()"),
        _ => format!("({value_text}).detach()"),
    };
    let message = format!(
        "`{target}` keeps the graph of every step alive: `{}` is added without `.detach()`",
        super::short(value_text)
    );
    let fix = Fix::unsafe_("add it with `.detach()`", vec![Edit::replace(value.range(), detached)]);
    check.report(context, statement, message, fix);
}

/// Whether the target is initialized outside the loop of steps and is not trained on.
fn outlives_step(program: &Program, context: ContextId, target: &Expr) -> bool {
    let Some(name) = crate::classes::dotted_name(target) else { return false };
    let Some(step_loop) = program.step_loop(context) else { return false };
    let Some(around) = program.loop_at(step_loop) else { return false };
    let function = program.function_of(context);
    !is_assigned(around.body, &name, target.range()) && !trained_on(program, context, function.body).contains(&name)
}

/// `if training: loss.backward(); loss = loss.detach()`: detached wherever it had a graph.
fn is_detached(program: &Program, context: ContextId, value: &Expr) -> bool {
    let Expr::Name(name) = value else { return false };
    let detaches = |statement: &Stmt| match statement {
        Stmt::Assign(assign) => {
            let is_it = assign.targets.iter().any(|target| matches!(target, Expr::Name(one) if one.id == name.id));
            is_it && program.text(context, &*assign.value).contains(".detach()")
        }
        _ => false,
    };
    let mut open: Vec<&[Stmt]> = vec![program.function_of(context).body];
    while let Some(block) = open.pop() {
        if block.iter().any(detaches) {
            return true;
        }
        open.extend(block.iter().flat_map(blocks_of));
    }
    false
}

fn is_assigned(body: &[Stmt], name: &str, except: TextRange) -> bool {
    body.iter().any(|statement| match statement {
        Stmt::Assign(assign) if !assign.range.contains_range(except) => assign.targets.iter().any(|target| {
            crate::classes::dotted_name(target).as_deref() == Some(name)
                || matches!(target, Expr::Tuple(targets)
                    if targets.elts.iter().any(|one| crate::classes::dotted_name(one).as_deref() == Some(name)))
        }),
        other => blocks_of(other).into_iter().any(|block| is_assigned(block, name, except)),
    })
}

/// Names that flow into a backward pass.
fn trained_on(program: &Program, context: ContextId, body: &[Stmt]) -> FxHashSet<String> {
    let function = program.function_at(context);
    let mut names: FxHashSet<String> = FxHashSet::default();
    for call in program.calls_of(function) {
        if call.name == "backward" {
            let receiver = call.receiver_expression().into_iter();
            for expression in receiver.chain(&call.node.arguments.args) {
                names.extend(dotted_names(expression));
            }
        }
    }
    for _ in 0..3 {
        add_sources(body, &mut names);
    }
    names
}

fn add_sources(body: &[Stmt], names: &mut FxHashSet<String>) {
    for statement in body {
        let (target, value) = match statement {
            Stmt::Assign(assign) => (assign.targets.first(), Some(&*assign.value)),
            Stmt::AugAssign(assign) => (Some(&*assign.target), Some(&*assign.value)),
            _ => (None, None),
        };
        if let (Some(target), Some(value)) = (target, value)
            && crate::classes::dotted_name(target).is_some_and(|target| names.contains(&target))
        {
            names.extend(dotted_names(value));
        }
        for block in blocks_of(statement) {
            add_sources(block, names);
        }
    }
}

fn dotted_names(expression: &Expr) -> Vec<String> {
    let mut found: Vec<String> = crate::names_in(expression).into_iter().map(str::to_string).collect();
    found.extend(crate::classes::dotted_name(expression));
    found
}
