//! TP606: a speed averaged since the start, which hides every change.

use ruff_python_ast::{Expr, Stmt};
use ruff_text_size::Ranged;

use crate::context::{ContextId, Frame, LoopKind};
use crate::finding::{Cause, Confidence, Effort, Severity};
use crate::fix::Fix;
use crate::program::{Loop, Program};
use crate::rule::{Check, Notice, SourceRule};
use crate::syntax::blocks_of;

pub const RULE: SourceRule = SourceRule {
    code: "TP606",
    name: "average-speed-only",
    cause: Cause::Practice,
    severity: Severity::Low,
    effort: Effort::Low,
    confidence: Confidence::Low,
    operators: &[],
    page: include_str!("average_speed_only.md"),
    check,
};

fn check(check: &mut Check) {
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
        let notice = if program.step_loop(speed.context).is_some() { Notice::Default } else { Notice::Pedantic };
        check.report_as(notice, speed.context, speed.expression, message, Fix::shown(advice));
    }
}

/// The enclosing loop of steps, or a loop that contains one: `for update in …: for minibatch in …`.
fn loop_of_steps<'p, 'a>(program: &'p Program<'a>, context: ContextId) -> Option<&'p Loop<'a>> {
    if let Some(step_loop) = program.step_loop(context) {
        return program.loop_at(step_loop);
    }
    let function = program.function_at(context);
    let around = program.notes.contexts.outwards(context).find_map(|(id, _)| program.loop_at(id))?;
    let holds = program.contexts_of(function).any(|(_, inner)| {
        inner.trains
            && inner.frame == Frame::Loop(LoopKind::Plain)
            && around.statement.range().contains_range(inner.range)
    });
    holds.then_some(around)
}

fn is_reset(body: &[Stmt], name: &str) -> bool {
    body.iter().any(|statement| match statement {
        Stmt::Assign(assign) => assign.targets.iter().any(|target| match target {
            Expr::Name(target) => target.id.as_str() == name,
            Expr::Tuple(targets) => {
                targets.elts.iter().any(|target| matches!(target, Expr::Name(target) if target.id.as_str() == name))
            }
            _ => false,
        }),
        other => blocks_of(other).into_iter().any(|block| is_reset(block, name)),
    })
}
