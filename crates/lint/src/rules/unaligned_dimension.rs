//! TP405: a dimension that reduced-precision GEMMs have to pad.

use super::*;

/// Smaller dimensions (image channels, classes) are given by the task.
const LEAST: i64 = 64;

pub fn check(check: &mut Check) {
    let program = check.program;
    for call in &program.notes.calls {
        let is_layer = matches!(
            call.external(),
            Some("torch.nn.Linear" | "torch.nn.Embedding" | "torch.nn.Conv1d" | "torch.nn.Conv2d" | "torch.nn.Conv3d")
        );
        if !is_layer || !program.groups.mentions(program.file_of(call.context), Topic::ReducedPrecision) {
            continue;
        }
        let sizes = call.arguments.iter().take(2).filter_map(|value| value.known_integer());
        let unaligned = sizes.into_iter().find(|size| *size >= LEAST && size % 8 != 0);
        if let Some(size) = unaligned {
            let rounded = size.div_euclid(8) * 8 + 8;
            let message = format!(
                "a dimension of {size} is not a multiple of 8: reduced-precision GEMMs over it cannot use full tensor-core tiles"
            );
            check.report_as(
                Notice::Pedantic,
                call,
                message,
                Fix::shown(format!("round it up to {rounded} and ignore the rest")),
            );
        }
    }
}
