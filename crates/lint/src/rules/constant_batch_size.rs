//! TP607: a batch size written as a number. Only a measurement tells whether a larger one is faster.

use super::*;

pub fn check(check: &mut Check) {
    let program = check.program;
    for loader in loaders(program) {
        let Some(given) = loader.node.arguments.find_argument_value("batch_size", 1) else { continue };
        let Some(size) = literal(given).known_integer() else { continue };
        let message = format!("the batch size is a constant, {size}: a larger one may use the device better");
        let advice = "make it an option, time the step at twice the size, and again, as long as samples per second grow \
                      and memory lasts; the learning rate goes with it";
        check.report_as(Notice::Pedantic, loader, message, Fix::shown(advice));
    }
}
