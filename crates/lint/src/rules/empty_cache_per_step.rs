//! TP204: the allocator's cache is emptied, or the garbage collector run, at every step.

use super::*;
use headroom_rewrite::edits::remove_statement;

pub fn check(check: &mut Check) {
    let program = check.program;
    for call in program.hot_calls() {
        let Some(dotted) = call.external() else { continue };
        let message = match dotted {
            "gc.collect" => "the garbage collector walks every object at every step, and the device waits for the host",
            _ if call.name == "empty_cache" && dotted.starts_with("torch.") => {
                "freed memory goes back to the driver at every step, and the next step requests it again"
            }
            _ => continue,
        };
        let edits = match call.statement {
            // Under a branch it may be the answer to a shortage of memory.
            Stmt::Expr(_) if !is_guarded(program, call.context) => {
                vec![remove_statement(program.source(call.context), call.statement)]
            }
            _ => Vec::new(),
        };
        let advice = "remove it from the step; keep fewer tensors alive instead";
        let notice = notice::in_step(program, call.context);
        check.report_as(notice, call, message, Fix::unsafe_(advice, edits));
    }
}
