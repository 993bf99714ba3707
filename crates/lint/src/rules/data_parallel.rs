//! TP504: one process drives several devices.

use super::*;

pub fn check(check: &mut Check) {
    let program = check.program;
    for call in &program.notes.calls {
        if call.external().is_some_and(|dotted| dotted.starts_with("torch.nn") && dotted.ends_with(".DataParallel")) {
            let message = "`DataParallel` copies the model to every device at every step and gathers the \
                           outputs on one, all from one process";
            let advice = "one process per device: `DistributedDataParallel`, started with `torchrun`";
            // Next to a path with one process per device, this is the fallback.
            let has = |topic| program.groups.mentions_itself(program.file_of(call.context), topic);
            let notice = Notice::when(!has(Topic::Distributed) && has(Topic::Trains));
            check.report_as(notice, call, message, Fix::shown(advice));
        }
    }
}
