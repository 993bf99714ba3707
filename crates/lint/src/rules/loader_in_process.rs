//! TP301: a loader that prepares batches in the training process.

use super::Workers;
use crate::edits::set_keyword;
use crate::finding::{Cause, Confidence, Effort, Severity};
use crate::fix::Fix;
use crate::rule::{Check, SourceRule};

pub const RULE: SourceRule = SourceRule {
    code: "TP301",
    name: "loader-in-process",
    cause: Cause::DataLoading,
    severity: Severity::Medium,
    effort: Effort::Low,
    confidence: Confidence::High,
    operators: &["enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"],
    page: include_str!("loader_in_process.md"),
    check,
};

fn check(check: &mut Check) {
    let program = check.program;
    for loader in super::loaders(program) {
        let workers = super::workers_of(program, loader);
        let is_zero = workers == Workers::Zero;
        if !(workers == Workers::Unsaid || is_zero) || super::device_in_dataset::puts_on_device(program, loader) {
            continue;
        }
        let message = if is_zero {
            "`num_workers=0`: batches are prepared in the training process, and the device waits for them"
        } else {
            "no `num_workers`: batches are prepared in the training process, and the device waits for them"
        };
        let fix = Fix::unsafe_(
            "prepare batches in worker processes: `num_workers=2` or more",
            super::keyword_edit(loader, set_keyword(loader.node, "num_workers", "2"), "num_workers"),
        );
        check.report_as(
            super::loader_notice(program, loader, "num_workers"),
            loader.context,
            loader.node,
            message,
            fix,
        );
    }
}
