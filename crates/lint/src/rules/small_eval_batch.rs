//! TP604: evaluation in smaller batches than training.

use super::*;

pub fn check(check: &mut Check) {
    let program = check.program;
    check_batches_by_hand(check);
    let batch = |loader: &Loader| loader.options.batch_size.as_ref().and_then(|value| value.known_integer());
    for loader in &program.constructed.loaders {
        let Some(size) = batch(loader).filter(|_| evaluates(program, loader)) else { continue };
        let file = program.file_of(loader.context);
        let training = program
            .constructed
            .loaders
            .iter()
            .filter(|other| program.file_of(other.context) == file && !evaluates(program, other));
        if let Some(larger) = training.filter_map(batch).max().filter(|larger| *larger > size) {
            let message = format!(
                "evaluation runs in batches of {size}, training in {larger}: without a backward pass a larger batch would fit"
            );
            let notice = notice(size, larger);
            check.report_as(notice, loader, message, Fix::shown(format!("use at least {larger}")));
        }
    }
}

/// Half the size is an oversight; slightly less is rounding.
fn notice(size: i64, larger: i64) -> Notice {
    Notice::when(larger >= size.saturating_mul(2))
}

/// `data.get_batch("val", batch_size=32)`, where training calls the same method with a batch size from the settings.
fn check_batches_by_hand(check: &mut Check) {
    let program = check.program;
    let asked = |call: &Call| keyword_of(call.node, "batch_size").map(literal);
    let draws = |call: &&Call| ["batch", "data", "load", "sample"].iter().any(|word| call.name.contains(word));
    for call in program.notes.calls.iter().filter(draws).filter(|call| program.is_evaluation(call.context)) {
        let Some(size) = asked(call).and_then(|size| size.known_integer()) else { continue };
        let file = program.file_of(call.context);
        let same = |other: &&Call| {
            other.name == call.name && program.is_hot(other.context) && !program.is_evaluation(other.context)
        };
        let Some(training) = program.calls_in(file).find(same) else { continue };
        // The batch size of training: its own, else the largest that the script puts into its settings.
        let given = training.keyword("batch_size").and_then(|value| value.known_integer());
        let stored = program.subscripts_in(file).filter(|subscript| {
            matches!(&subscript.index, Value::Text(Some(key)) if key == "batch_size") && subscript.stored.is_some()
        });
        let largest = stored.filter_map(|subscript| subscript.stored.as_ref()?.known_integer()).chain(given).max();
        if let Some(larger) = largest.filter(|larger| *larger > size) {
            let message = format!(
                "evaluation requests batches of {size}, training {larger}: without a backward pass a larger batch would fit"
            );
            let advice = format!("pass it at least the training batch size: {larger}");
            check.report_as(notice(size, larger), call, message, Fix::shown(advice));
        }
    }
}
