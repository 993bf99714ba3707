//! TP506: ranks synchronize at every step only to average a number for the log.

use super::*;

pub fn check(check: &mut Check) {
    check_helpers(check);
    let program = check.program;
    for call in program.hot_calls() {
        let is_part_of_gradient = program
            .function_of(call.context)
            .class
            .is_some_and(|class| program.sources.classes[class].kind == ClassKind::Gradient);
        if !is_collective(call)
            || program.is_in_parameter_loop(call.context)
            || !is_metric(program, call)
            || is_part_of_gradient
        {
            continue;
        }
        // Where the same statement reads the number back, TP101 already reports it, and one change fixes both.
        let is_read = program
            .calls_of(program.function_at(call.context))
            .any(|other| other.name == "item" && call.statement.range().contains_range(other.node.range()));
        let overlaps = call.node.arguments.find_keyword("async_op").is_some();
        // Ranks synchronize for the gradients anyway, and a helper does not decide when it is called: report only the
        // loop's own calls.
        let is_own = program.step_loop(call.context).is_some();
        let notice = Notice::when(!is_read && !overlaps && is_own);
        let message = format!("`{}` on a number for the log synchronises all ranks at every step", call.name);
        // Whatever reads the sum would have to move along, so a person moves it.
        check.report_as(notice, call, message, Fix::shown("average it only when it is logged"));
    }
}

/// `reduce_dict(losses)`: the collective is in the helper, but the line that requests it is here.
fn check_helpers(check: &mut Check) {
    let program = check.program;
    for call in program.hot_calls() {
        let Callee::Function(function) = call.callee else { continue };
        let meets = call.name.contains("reduce")
            && program.calls_of(function).any(|inner| is_collective(inner) && program.is_hot(inner.context));
        let names = call.node.arguments.args.iter().flat_map(names_in);
        if meets && !program.is_in_parameter_loop(call.context) && names.into_iter().any(is_metric_name) {
            let message = format!("`{}` on numbers for the log synchronises all ranks at every step", call.name);
            let fix = Fix::shown("average them only when they are logged");
            check.report_as(Notice::Pedantic, call, message, fix);
        }
    }
}

fn is_collective(call: &Call) -> bool {
    match &call.callee {
        Callee::External(dotted) => {
            dotted.starts_with("torch.distributed.")
                && matches!(
                    call.name,
                    "all_reduce" | "reduce" | "all_gather" | "all_gather_object" | "all_gather_into_tensor"
                )
        }
        Callee::Method => matches!(call.name, "gather_for_metrics"),
        _ => false,
    }
}

/// Whether the arguments are metrics by name: a loss, an accuracy, a count.
fn is_metric(program: &Program, call: &Call) -> bool {
    let mut names: Vec<&str> = call.node.arguments.args.iter().flat_map(names_in).collect();
    // `for v in losses.values(): all_reduce(v)` reduces losses.
    if let Some((target, iterated)) =
        program.loop_around(call.context).and_then(|around| Some((around.target?, around.iterated?)))
        && names_in(target).iter().any(|name| names.contains(name))
    {
        names.extend(names_in(iterated));
    }
    // `reduce_dict(losses)` gets them from its caller.
    let function = program.function_at(call.context);
    let is_helper = program.symbol(function).name.contains("reduce");
    let handed = program.callers_of(function).filter(|caller| is_helper && program.is_hot(caller.context));
    names.extend(handed.flat_map(|caller| caller.node.arguments.args.iter().flat_map(names_in)));
    names.into_iter().any(is_metric_name)
}

fn is_metric_name(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    // Gradient norms and flags for non-finite values are part of the step.
    if ["norm", "grad", "inf", "nan"].iter().any(|part| lower.contains(part)) {
        return false;
    }
    let mut words = lower.split('_');
    words.any(|word| {
        ["loss", "accurac", "metric", "correct", "total", "count", "stat", "meter"]
            .iter()
            .any(|known| word.starts_with(known))
            || matches!(word, "log" | "logs" | "acc" | "accs" | "acc1" | "acc5")
    })
}
