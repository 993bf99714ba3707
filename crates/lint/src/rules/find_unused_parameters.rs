//! TP505: the graph is traversed at every step to find parameters without a gradient.

use super::*;

pub fn check(check: &mut Check) {
    let program = check.program;
    for call in &program.notes.calls {
        let is_on = keyword_of(call.node, "find_unused_parameters").and_then(boolean) == Some(true);
        let by_strategy =
            call.keyword("strategy") == Some(&Value::Text(Some("ddp_find_unused_parameters_true".to_string())));
        if is_on || by_strategy {
            let message = "`find_unused_parameters` walks the whole graph after every forward pass";
            let advice = "turn it off if every step uses every parameter; freeze or drop unused parameters";
            check.report_as(Notice::Pedantic, call, message, Fix::shown(advice));
        }
    }
}
