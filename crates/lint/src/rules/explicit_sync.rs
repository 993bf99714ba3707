//! TP105: an explicit wait for the device at every step.

use super::*;

pub fn check(check: &mut Check) {
    let program = check.program;
    for call in program.hot_calls() {
        let is_sync = call.name == "synchronize"
            && match &call.callee {
                Callee::External(dotted) => dotted.starts_with("torch."),
                Callee::Method => call.arguments.is_empty() && is_of_device(call),
                _ => false,
            };
        if !is_sync {
            continue;
        }
        // Only its author knows whether a clock, another stream or the host relies on it.
        let advice = "remove it from the step; time with CUDA events, or synchronise once around many steps";
        let message = "`synchronize()` at every step: the host waits until the device has finished all queued work";
        let notice = notice::in_step(program, call.context);
        check.report_as(notice, call, message, Fix::shown(advice));
    }
}

/// `torch_npu.npu.synchronize()`, `stream.synchronize()`: other things can be synchronized too.
fn is_of_device(call: &Call) -> bool {
    let names = call.receiver_expression().map(names_in).unwrap_or_default();
    const WORDS: [&str; 10] =
        ["cuda", "device", "stream", "event", "accelerator", "npu", "xpu", "mps", "torch", "musa"];
    names.iter().any(|name| WORDS.iter().any(|word| name.to_ascii_lowercase().contains(word)))
}
