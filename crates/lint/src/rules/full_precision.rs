//! TP401: training in single precision throughout.

use super::*;

pub fn check(check: &mut Check) {
    let program = check.program;
    for call in first_backward(program) {
        let file = program.file_of(call.context);
        let has = |topic| program.groups.mentions(file, topic);
        let multiplies = has(Topic::MatrixProduct) || has(Topic::Convolution);
        if has(Topic::ReducedPrecision) || has(Topic::Trainer) || !multiplies {
            continue;
        }
        let message = "GEMMs and convolutions run in single precision: no autocast, no bfloat16 anywhere";
        let advice = "run the forward pass under `torch.autocast(\"cuda\", dtype=torch.bfloat16)`; results change, so compare the losses";
        let is_large = has(Topic::LargeProduct) || has(Topic::Convolution);
        // Only the reader can decide whether the results may change.
        check.report_as(Notice::Pedantic, call, message, Fix::shown(advice));
        if !is_large {
            check.doubt();
        }
    }
}
