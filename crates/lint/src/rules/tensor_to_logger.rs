//! TP103: a device value is passed to something that prints or records it at every step.

use super::*;
use crate::reads::only_shows;

pub fn check(check: &mut Check) {
    let program = check.program;
    for shown in &program.notes.shown {
        if !program.is_hot(shown.context)
            || !shown.value.is_surely_on_device()
            || program.is_in_parameter_loop(shown.context)
        {
            continue;
        }
        let text = quoted(program, shown);
        let message = format!("formatting `{text}` reads it from the device at every step, and the host waits");
        let notice = notice::of_logged_value(program, shown.context);
        let fix = fix(program, shown.context, shown.statement);
        check.report_as(notice, shown, message, fix);
    }
    for call in program.hot_calls() {
        if program.is_in_parameter_loop(call.context) || !shows(program, call) {
            continue;
        }
        let message = format!("`{}` gets a device value and reads it at every step, and the host waits", call.name);
        let notice = notice::of_logged_value(program, call.context);
        check.report_as(notice, call, message, fix(program, call.context, call.statement));
    }
}

fn fix(program: &Program, context: ContextId, statement: &Stmt) -> Fix {
    let advice = "log every few steps, or pass a value that was read once for several steps";
    // A running average needs every value, and an event under a branch seldom falls on the fiftieth step.
    let edit = match only_shows(program, context, statement) && !is_guarded(program, context) {
        true => guard_by_cadence(program, context, statement),
        false => None,
    };
    Fix::unsafe_(advice, edit.into_iter().collect())
}
