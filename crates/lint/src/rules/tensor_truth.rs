//! TP104: control flow that depends on a device value at every step.

use super::*;

pub fn check(check: &mut Check) {
    let program = check.program;
    let advice = "decide on the device (`torch.where`, masks), or check every few steps";
    for test in &program.notes.tests {
        if !program.is_hot(test.context) || program.is_in_parameter_loop(test.context) || !asks_device(program, test) {
            continue;
        }
        let text = quoted(program, test);
        let message = format!("the truth value of `{text}` is read from the device at every step, and the host waits");
        let notice = notice::of_test(program, test.context, test.statement, test.expression);
        check.report_as(notice, test, message, Fix::shown(advice));
    }
    for call in program.hot_calls() {
        if read_of(program, call) == Some(Read::Truth) && !program.is_in_parameter_loop(call.context) {
            let text = quoted(program, call);
            let message = format!("`{text}` reads from the device at every step, and the host waits");
            let notice = notice::of_read(program, call.context, call.statement, call.node.range());
            check.report_as(notice, call, message, Fix::shown(advice));
        }
    }
}
