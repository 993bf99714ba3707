//! TP108: a gradient scaler that reads back at every step because the optimizer cannot skip on the device.

use super::*;

pub fn check(check: &mut Check) {
    let program = check.program;
    for call in program.hot_calls() {
        let (Value::Scaler(Some(scaler)), "step") = (&call.receiver, call.name) else { continue };
        let Some(Value::Optimizer(Some(optimizer))) = call.arguments.first() else { continue };
        let (_, made) = program.site(*scaler);
        let is_enabled = keyword_of(made, "enabled").is_none_or(|value| boolean(value) == Some(true));
        let (file, site) = program.site(*optimizer);
        let name = function_name(site);
        let can_fuse = matches!(name, "Adam" | "AdamW" | "SGD" | "Adagrad");
        if !is_enabled || !can_fuse || site.arguments.find_keyword("fused").is_some() {
            continue;
        }
        let message = format!(
            "`scaler.step` reads back at every step whether a gradient overflowed, because {name} is not fused \
             and cannot skip on the device"
        );
        let is_here = file == program.file_of(call.context);
        // An optimizer has one of the two.
        let is_free = site.arguments.find_keyword("foreach").is_none();
        let edits = match is_here && is_free {
            true => vec![set_keyword(program.source(call.context), site, "fused", "True")],
            false => Vec::new(),
        };
        check.report_as(
            notice::of_logged_value(program, call.context),
            call,
            message,
            Fix::unsafe_(format!("make the optimizer `{name}(…, fused=True)`"), edits),
        );
    }
}
