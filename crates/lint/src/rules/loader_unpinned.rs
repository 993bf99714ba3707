//! TP302: batches in pageable memory, which the device cannot copy from without the host.

use super::*;

pub fn check(check: &mut Check) {
    let program = check.program;
    for loader in loaders(program) {
        let given = loader.options.pin_memory.as_ref();
        let is_absent = given.is_none() && !loader.options.has_unknown;
        let is_off = given.and_then(|value| value.known_bool()) == Some(false);
        let file = program.file_of(loader.context);
        if !(is_absent || is_off)
            || !program.groups.touches_device(file)
            || device_in_dataset::puts_on_device(program, loader)
        {
            continue;
        }
        let message = "no `pin_memory`: every batch is copied to the device from pageable memory, and the copy blocks";
        let fix = Fix::unsafe_(
            "pin batches: `pin_memory=True`, and copy them with `non_blocking=True`",
            keyword_edit(program, loader, "pin_memory", "True"),
        );
        check.report_as(Notice::Pedantic, loader, message, fix);
    }
}
