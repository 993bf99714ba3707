//! TP404: a step without compilation, which matters where a trace shows that it is launch-bound.

use super::*;

pub fn check(check: &mut Check) {
    let program = check.program;
    for call in first_backward(program) {
        if program.groups.mentions(program.file_of(call.context), Topic::Compiled) {
            continue;
        }
        let message = "nothing is compiled: every operation of the step is launched by itself";
        let fix = Fix::shown("try `model = torch.compile(model)` and measure");
        check.report_as(Notice::Pedantic, call, message, fix);
    }
}
