//! TP407: convolutions of a fixed size without a search for the fastest kernel.

use super::*;

pub fn check(check: &mut Check) {
    let program = check.program;
    for call in first_backward(program) {
        let file = program.file_of(call.context);
        let has = |topic| program.groups.mentions(file, topic);
        let wants = has(Topic::Convolution) && has(Topic::FixedSize) && !has(Topic::VaryingSize);
        if !wants || has(Topic::Benchmark) || has(Topic::Deterministic) {
            continue;
        }
        let message = "convolutions have fixed sizes, but `cudnn.benchmark` is off: cuDNN picks a kernel heuristically, not the fastest";
        let line = "torch.backends.cudnn.benchmark = True";
        let edits = at_entry(program, file, line);
        check.report_as(
            Notice::Pedantic,
            call,
            message,
            Fix::unsafe_(format!("let cuDNN time its kernels once: `{line}`"), edits),
        );
    }
}
