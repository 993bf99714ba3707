//! TP303: pinned batches copied with a blocking copy.

use super::*;
use crate::context::Context;

pub fn check(check: &mut Check) {
    let program = check.program;
    for call in &program.notes.calls {
        let from_pinned = matches!(&call.receiver, Value::Tensor(tensor) if tensor.placement == Placement::Pinned);
        let has_flag = call.node.arguments.find_keyword("non_blocking").is_some() || call.node.arguments.args.len() > 1;
        let has_rest = call.keywords.iter().any(|(name, _)| name.is_none());
        // An evaluation runs only now and then.
        let is_seldom = program.is_evaluation(call.context) && !trains_around(program, call.context)
            || is_pass_without_gradients(program, call.context);
        if !from_pinned || has_flag || has_rest || is_seldom || !moves_to_device(call) {
            continue;
        }
        let message = format!("the batch is pinned, but `.{}` still waits for the copy", call.name);
        let fix = Fix::unsafe_(
            "let the host continue during the copy: `non_blocking=True`",
            vec![set_keyword(program.source(call.context), call.node, "non_blocking", "True")],
        );
        let notice = Notice::when(program.is_hot(call.context));
        check.report_as(notice, call, message, fix);
    }
}

/// `with torch.no_grad(): features = frozen(images.to(device))` in the loop that trains the layers on top.
fn trains_around(program: &Program, context: ContextId) -> bool {
    innermost_loop(program, context).is_some_and(|around| around.trains)
}

/// Whether this is a loop over data that runs a model without training: its copies happen once.
fn is_pass_without_gradients(program: &Program, context: ContextId) -> bool {
    let Some(around) = innermost_loop(program, context) else { return false };
    let is_without = |inside: &Context| {
        matches!(inside.frame, Frame::WithoutGraph | Frame::Evaluation) && around.range.contains_range(inside.range)
    };
    !around.trains
        && !program.is_hot(context)
        && program.contexts_of(around.function).any(|(_, inside)| is_without(inside))
}

fn innermost_loop<'p>(program: &'p Program, context: ContextId) -> Option<&'p Context> {
    program.outwards(context).map(|(_, around)| around).find(|around| around.frame == Frame::Loop(LoopKind::Plain))
}
