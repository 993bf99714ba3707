//! TP402: single-precision products kept off the tensor cores.

use super::*;

pub fn check(check: &mut Check) {
    let program = check.program;
    for call in first_backward(program) {
        let file = program.file_of(call.context);
        let has = |topic| program.groups.mentions(file, topic);
        // Where autocast is opt-in, the default run is single precision.
        let is_reduced = has(Topic::ReducedPrecision) && !has(Topic::PrecisionByChoice);
        if is_reduced || has(Topic::TensorFloat) || has(Topic::Trainer) || !has(Topic::MatrixProduct) {
            continue;
        }
        let message = "single-precision GEMMs without TF32: `set_float32_matmul_precision` is not called";
        let line = "torch.set_float32_matmul_precision(\"high\")";
        let edits = at_entry(program, file, line);
        let advice = format!("allow TF32 for them: `{line}`; GEMMs then use 10 bits of mantissa");
        // Without reduced precision, TP401 reports the line and saves more.
        check.report_as(Notice::Pedantic, call, message, Fix::unsafe_(advice, edits));
    }
}
