//! TP503: gradients are exchanged at every micro-step of an accumulation.

use super::*;

pub fn check(check: &mut Check) {
    let program = check.program;
    for index in &program.frequency.training_calls {
        let step = &program.notes.calls[*index];
        let file = program.file_of(step.context);
        let has = |topic| program.groups.mentions(file, topic);
        if step.name != "step" || !has(Topic::Distributed) || has(Topic::NoSync) {
            continue;
        }
        // The optimizer's step is under a cadence guard that does not contain the backward pass.
        let within = program.outwards(step.context).map(|(_, around)| around);
        let guard = within
            .take_while(|around| around.frame != Frame::Loop(LoopKind::Plain))
            .find(|around| around.frame == Frame::Guard(Guard::Cadence));
        let Some(guard) = guard else { continue };
        let backward = program.calls_in(file).find(|call| {
            call.name == "backward"
                && program.function_at(call.context) == program.function_at(step.context)
                && !guard.range.contains_range(call.node.range())
        });
        if let Some(backward) = backward {
            let message =
                "gradients are all-reduced at every backward pass, although the optimizer steps only after several";
            let advice = "run all but the last backward pass of an accumulation under `model.no_sync()`";
            let notice = notice::in_step(program, backward.context);
            check.report_as(notice, backward, message, Fix::shown(advice));
        }
    }
}
