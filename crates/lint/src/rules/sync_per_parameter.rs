//! TP107: a read-back for every parameter of the model, at every step.

use super::*;

pub fn check(check: &mut Check) {
    let program = check.program;
    for call in program.hot_calls() {
        if program.is_in_parameter_loop(call.context) && (read_of(program, call).is_some() || shows(program, call)) {
            let text = quoted(program, call);
            let message = format!("the host waits for the device once per parameter at every step: `{text}`");
            let fix = if asks_for_numbers(text.as_str()) { together() } else { parameter_norms::fix(program, call) };
            check.report(call, message, fix);
        }
    }
    let advice = || parameter_norms::advice();
    for shown in &program.notes.shown {
        let is_read = program.is_hot(shown.context) && shown.value.is_surely_on_device();
        if is_read && program.is_in_parameter_loop(shown.context) {
            let text = quoted(program, shown);
            let message = format!("formatting `{text}` makes the host wait once per parameter at every step");
            check.report(shown, message, advice());
        }
    }
    for test in &program.notes.tests {
        let is_read = program.is_hot(test.context) && asks_device(program, test);
        if is_read && program.is_in_parameter_loop(test.context) {
            let text = quoted(program, test);
            let message = format!("the truth value of `{text}` makes the host wait once per parameter at every step");
            let fix = if asks_for_numbers(text.as_str()) { together() } else { advice() };
            check.report(test, message, fix);
        }
    }
}

fn asks_for_numbers(text: &str) -> bool {
    ["isnan", "isinf", "isfinite"].iter().any(|word| text.contains(word))
}

/// The fix for NaN checks, which norms do not help with.
fn together() -> Fix {
    Fix::shown(
        "check all of them on the device, `torch.stack([p.grad.isfinite().all() for p in …]).all()`, and read one result",
    )
}
