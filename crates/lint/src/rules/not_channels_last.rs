//! TP408: reduced-precision convolutions in a layout that they must transpose.

use super::*;

pub fn check(check: &mut Check) {
    let program = check.program;
    for backward in first_backward(program) {
        let file = program.file_of(backward.context);
        let has = |topic| program.groups.mentions(file, topic);
        if !has(Topic::Convolution)
            || !program.groups.mentions_itself(file, Topic::ReducedPrecision)
            || has(Topic::ChannelsLast)
        {
            continue;
        }
        // The model that this function trains, where every run moves it.
        let function = program.function_at(backward.context);
        let moved = program.calls_of(function).find(|call| {
            call.name == "to"
                && matches!(call.receiver, Value::Model(_))
                && call.node.arguments.len() == 1
                && call.keyword("dtype").is_none()
                && !is_guarded(program, call.context)
        });
        let message = "reduced-precision convolutions need channels-last data, and these get channels-first: \
                       each one transposes its input";
        let advice = "move the model and the images with `memory_format=torch.channels_last`";
        match moved {
            Some(call) => {
                let edits =
                    vec![set_keyword(program.source(call.context), call.node, "memory_format", "torch.channels_last")];
                check.report_as(Notice::Pedantic, call, message, Fix::unsafe_(advice, edits));
            }
            None => check.report_as(Notice::Pedantic, backward, message, Fix::shown(advice)),
        }
    }
}
