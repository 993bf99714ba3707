//! TP605: gradients of any size reach the optimizer. About stability, not speed.

use super::*;

pub fn check(check: &mut Check) {
    let program = check.program;
    let mut seen = Vec::new();
    for call in trained_by_default(program) {
        let file = program.file_of(call.context);
        let has = |topic| program.groups.mentions(file, topic);
        if call.name != "step" || !program.is_hot(call.context) || seen.contains(&file) {
            continue;
        }
        if has(Topic::Clipping) || has(Topic::Trainer) {
            continue;
        }
        seen.push(file);
        let message = "gradients are not clipped: one bad batch can undo the run (stability, not speed)";
        let advice = "`torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)` before the step; results change";
        check.report_as(Notice::Pedantic, call, message, Fix::shown(advice));
    }
}
