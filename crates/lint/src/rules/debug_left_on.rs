//! TP602: a debugging aid left on in training.

use super::*;

pub fn check(check: &mut Check) {
    let program = check.program;
    for call in &program.notes.calls {
        let Some(dotted) = call.external() else { continue };
        if is_asked_for(program, call) {
            continue;
        }
        match dotted {
            "torch.autograd.set_detect_anomaly" | "torch.autograd.anomaly_mode.set_detect_anomaly" => {
                if let Some(Expr::BooleanLiteral(on)) = call.node.arguments.args.first()
                    && on.value
                {
                    let message =
                        "anomaly detection checks every gradient for NaN and records a stack for every operator";
                    let edits = vec![Edit::replace(on.range(), "False")];
                    check.report(call, message, Fix::unsafe_("turn it off once the NaN is found", edits));
                }
            }
            "torch.autograd.detect_anomaly" => {
                let message = "anomaly detection checks every gradient for NaN and records a stack for every operator";
                check.report(call, message, Fix::shown("remove the block once the NaN is found"));
            }
            "torch.autograd.gradcheck" | "torch.autograd.gradgradcheck" if program.is_hot(call.context) => {
                let message = "gradients are checked numerically inside the training step";
                check.report(call, message, Fix::shown("check gradients in a test"));
            }
            "torch.profiler.profile" | "torch.autograd.profiler.profile" | "torch.autograd.profiler.emit_nvtx"
                if program.is_hot(call.context) =>
            {
                let message = "a profiler is started and stopped inside every step";
                check.report(call, message, Fix::shown("profile a few steps with a schedule, outside the loop"));
            }
            _ => {}
        }
    }
}

fn is_asked_for(program: &Program, call: &Call) -> bool {
    program.is_within(call.context, |frame| matches!(frame, Frame::Guard(Guard::OptIn | Guard::Once)))
}
