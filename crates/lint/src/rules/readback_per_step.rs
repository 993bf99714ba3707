//! TP102: a whole tensor copied to the host at every step.

use super::*;

pub fn check(check: &mut Check) {
    let program = check.program;
    for call in program.hot_calls() {
        let is_of_tool = read_in_tool(program, call) == Some(Read::Copy);
        if !is_of_tool && read_of(program, call) != Some(Read::Copy) || program.is_in_parameter_loop(call.context) {
            continue;
        }
        let text = quoted(program, call);
        let message = format!("`{}()` copies a tensor to the host and waits for it at every step: `{text}`", call.name);
        let fix = Fix::shown("keep it on the device until the log or the end of the epoch, and copy once");
        // A model that needs sizes of its own parts (routing, packing) needs the numbers right there.
        let is_size = call.name == "tolist" && program.step_loop(call.context).is_none();
        // `.cpu()` of an unknown value may be a module's or a dictionary's.
        let notice = match is_of_tool || is_size || call.receiver == Value::Unknown {
            true => Notice::Pedantic,
            false => notice::of_copy(program, call.context, call.statement, call.node.range()),
        };
        check.report_as(notice, call, message, fix);
    }
}
