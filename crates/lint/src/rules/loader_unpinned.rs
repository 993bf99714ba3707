//! TP302: batches in pageable memory, which the device cannot copy from without the host.

use super::*;

pub const RULE: SourceRule = SourceRule {
    code: "TP302",
    name: "loader-unpinned",
    cause: Cause::HostCopies,
    severity: Severity::Medium,
    effort: Effort::Low,
    confidence: Confidence::High,
    operators: &["aten::to", "aten::copy_", "cudaMemcpyAsync", "Memcpy HtoD (Pageable -> Device)"],
    page: include_str!("loader_unpinned.md"),
    check,
};

fn check(check: &mut Check) {
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
