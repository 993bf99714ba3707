//! TP606: a speed averaged since the start, which hides every change.

use super::*;

pub fn check(check: &mut Check) {
    let program = check.program;
    for speed in &program.notes.speeds {
        let Some(around) = loop_of_steps(program, speed.context) else { continue };
        if is_reset(around.body, speed.start) || program.is_evaluation(speed.context) {
            continue;
        }
        let message = format!(
            "speed is averaged since `{}` was set before the loop, which hides slow steps and slow starts",
            speed.start
        );
        let advice = "also log the speed since the last log line: reset the clock after each one";
        // In the loop of steps itself, a speed since the last log line is one line of work; around it, an average may
        // be intended.
        let notice = Notice::when(program.step_loop(speed.context).is_some());
        check.report_as(notice, speed, message, Fix::shown(advice));
    }
}

/// The enclosing loop of steps, or a loop that contains one: `for update in …: for minibatch in …`.
fn loop_of_steps<'p, 'a>(program: &'p Program<'a>, context: ContextId) -> Option<&'p Loop<'a>> {
    if let Some(step_loop) = program.step_loop(context) {
        return program.loop_at(step_loop);
    }
    let function = program.function_at(context);
    let around = program.loop_around(context)?;
    let holds = program.contexts_of(function).any(|(_, inner)| {
        inner.trains
            && inner.frame == Frame::Loop(LoopKind::Plain)
            && around.statement.range().contains_range(inner.range)
    });
    holds.then_some(around)
}

fn is_reset(body: &[Stmt], name: &str) -> bool {
    let is_it = |target: &Expr| name_of(target) == Some(name);
    let sets = |target: &Expr| is_it(target) || target.as_tuple_expr().is_some_and(|all| all.elts.iter().any(is_it));
    let resets = |one: &Stmt| one.as_assign_stmt().is_some_and(|assign| assign.targets.iter().any(sets));
    statements_in(body).into_iter().any(resets)
}
