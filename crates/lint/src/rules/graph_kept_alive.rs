//! TP205: a sum or list that keeps every step's graph alive.

use rustc_hash::FxHashSet;

use super::*;
use crate::readback_use::counts;

pub fn check(check: &mut Check) {
    let program = check.program;
    for sum in &program.notes.accumulations {
        let is_count = names_in(sum.expression).first().is_some_and(|name| counts(name));
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
    let message =
        format!("`{target}` keeps the graph of every step alive: `{}` is added without `.detach()`", short(value_text));
    let fix = Fix::unsafe_("add it with `.detach()`", vec![Edit::replace(value.range(), detached)]);
    check.report((context, statement), message, fix);
}

/// Whether the target is initialized outside the loop of steps and is not trained on.
fn outlives_step(program: &Program, context: ContextId, target: &Expr) -> bool {
    let Some(name) = dotted_name(target) else { return false };
    let Some(step_loop) = program.step_loop(context) else { return false };
    let Some(around) = program.loop_at(step_loop) else { return false };
    let function = program.function_of(context);
    !is_assigned(around.body, &name, target.range()) && !trained_on(program, context, function.body).contains(&name)
}

/// `if training: loss.backward(); loss = loss.detach()`: detached wherever it had a graph.
fn is_detached(program: &Program, context: ContextId, value: &Expr) -> bool {
    let Expr::Name(name) = value else { return false };
    let is_it = |target: &Expr| name_of(target) == Some(name.id.as_str());
    let detaches = |statement: &Stmt| {
        let Stmt::Assign(assign) = statement else { return false };
        assign.targets.iter().any(is_it) && program.text(context, &*assign.value).contains(".detach()")
    };
    statements_in(program.function_of(context).body).into_iter().any(detaches)
}

fn is_assigned(body: &[Stmt], name: &str, except: TextRange) -> bool {
    let is_it = |target: &Expr| dotted_name(target).as_deref() == Some(name);
    let sets = |target: &Expr| is_it(target) || target.as_tuple_expr().is_some_and(|all| all.elts.iter().any(is_it));
    statements_in(body)
        .into_iter()
        .filter_map(Stmt::as_assign_stmt)
        .any(|assign| !assign.range.contains_range(except) && assign.targets.iter().any(sets))
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
    for statement in statements_in(body) {
        let (target, value) = match statement {
            Stmt::Assign(assign) => (assign.targets.first(), Some(&*assign.value)),
            Stmt::AugAssign(assign) => (Some(&*assign.target), Some(&*assign.value)),
            _ => (None, None),
        };
        if let (Some(target), Some(value)) = (target, value)
            && dotted_name(target).is_some_and(|target| names.contains(&target))
        {
            names.extend(dotted_names(value));
        }
    }
}

fn dotted_names(expression: &Expr) -> Vec<String> {
    let mut found: Vec<String> = names_in(expression).into_iter().map(str::to_string).collect();
    found.extend(dotted_name(expression));
    found
}
