//! TP106: at every step, a result whose size only the device knows.

use ruff_python_ast::CmpOp;

use super::*;
use crate::api;

pub fn check(check: &mut Check) {
    let program = check.program;
    let advice = "keep the size fixed: multiply by the mask, `torch.where`, `masked_fill`, or weight the loss";
    for call in program.hot_calls() {
        if sizes_by_value(call) {
            let message = format!(
                "only the device knows the size of `{}`'s result: the host waits for it at every step",
                call.name
            );
            let is_selected = call.name == "masked_select";
            let notice = if is_selected { notice::in_step(program, call.context) } else { Notice::Pedantic };
            check.report_as(notice, call, message, Fix::shown(advice));
        }
    }
    for subscript in &program.notes.subscripts {
        // A device mask can only index a device tensor.
        let is_picked_there = subscript.base.is_on_device()
            || subscript.base == Value::Unknown
                && subscript.index.is_surely_on_device()
                && subscript.index.tensor().is_some_and(|index| index.boolean);
        // Storing a number under a mask is a masked fill: nothing is counted.
        let is_fill = subscript.stored.as_ref().is_some_and(|stored| stored.tensor().is_none());
        if program.is_hot(subscript.context) && is_by_mask(subscript) && is_picked_there && !is_fill {
            let text = quoted(program, subscript);
            // `scores[mask] -= penalty` is a masked update, which needs no count; selecting rows may be intended.
            let is_update =
                matches!(subscript.statement, Stmt::AugAssign(sum) if sum.target.range() == subscript.node.range());
            let notice =
                Notice::when(is_update || is_reduced(program, subscript) && program.is_in_sight(subscript.context));
            let message = format!(
                "indexing by a mask (`{text}`) counts its elements on the device: the host waits for the count at every step"
            );
            check.report_as(notice, subscript, message, Fix::shown(advice));
        }
    }
}

fn is_by_mask(subscript: &Subscript) -> bool {
    match &subscript.index {
        // A mask on the host is counted there and the selected indices are copied over, so the host waits as well. A
        // guess is confirmed by its use: only tensors are indexed by a comparison.
        Value::Tensor(index) => {
            index.boolean || index.placement == Placement::Device && is_named_mask(&subscript.node.slice)
        }
        // `out[kept != wanted]` with otherwise unknown values.
        Value::Bool(None) => is_compared(&subscript.node.slice) && subscript.base.is_surely_on_device(),
        Value::Tuple(parts) => {
            let written: &[Expr] = match &*subscript.node.slice {
                Expr::Tuple(written) => &written.elts,
                _ => &[],
            };
            let is_named = |at: usize| written.get(at).is_some_and(is_named_mask);
            parts.iter().enumerate().any(|(at, part)| {
                part.is_on_device() && (part.tensor().is_some_and(|tensor| tensor.boolean) || is_named(at))
            })
        }
        _ => false,
    }
}

/// `mask`, `~pad_mask`, `self.valid_mask`, `masks[level]`: a tensor of this name used as an index is boolean. Integer
/// indices under a mask are named as such: `mask_idx`.
fn is_named_mask(index: &Expr) -> bool {
    let name = match index {
        Expr::Name(name) => name.id.as_str(),
        Expr::Attribute(attribute) => attribute.attr.as_str(),
        Expr::UnaryOp(operation) => return is_named_mask(&operation.operand),
        Expr::Subscript(subscript) => return is_named_mask(&subscript.value),
        _ => return false,
    };
    let lower = name.to_ascii_lowercase();
    let counts =
        |word: &str| matches!(word.trim_end_matches('s'), "idx" | "index" | "indice" | "id" | "ind" | "po" | "token");
    let mut words = lower.split('_');
    let is_mask = words.any(|word| word.trim_end_matches('s').ends_with("mask"));
    is_mask && !lower.split('_').any(counts)
}

/// Whether the index compares values, not identity or membership.
fn is_compared(index: &Expr) -> bool {
    matches!(index, Expr::Compare(compare) if compare.ops.iter().all(|operator| {
        matches!(operator, CmpOp::Eq | CmpOp::NotEq | CmpOp::Lt | CmpOp::LtE | CmpOp::Gt | CmpOp::GtE)
    }))
}

/// Whether the selected rows are reduced to one number or a loss, as they usually are in the loop of steps and in
/// losses: a weight of zero excludes them as well.
fn is_reduced(program: &Program, subscript: &Subscript) -> bool {
    let function = program.function_at(subscript.context);
    if program.step_loop(subscript.context).is_some() || program.functions[function].kind == FunctionKind::Loss {
        return true;
    }
    let (whole, part) = (subscript.statement.range(), subscript.node.range());
    let source = program.source(subscript.context);
    let after = source.slice(TextRange::new(part.end(), whole.end().max(part.end())));
    let before = source.slice(TextRange::new(whole.start().min(part.start()), part.start()));
    let called = before.rsplit('(').nth(1).map_or("", |text| text.trim_end());
    [".mean(", ".sum("].iter().any(|end| after.starts_with(end))
        || ["loss", "criterion", "cross_entropy"].iter().any(|word| called.to_ascii_lowercase().ends_with(word))
}

fn sizes_by_value(call: &Call) -> bool {
    match &call.callee {
        Callee::Method => {
            // Selected by a device mask, it is on the device too.
            let is_there = || call.receiver == Value::Unknown && call.arguments.iter().any(Value::is_surely_on_device);
            let by_value = api::tensor_method(call.name).is_some_and(api::Row::sizes_by_value);
            by_value && (call.receiver.is_on_device() || is_there())
        }
        Callee::External(dotted) => {
            // `torch.where(mask)` lists indices; with three arguments it selects values.
            let by_value = api::function(dotted).is_some_and(api::Row::sizes_by_value)
                || dotted == "torch.where" && call.arguments.len() == 1;
            by_value && call.arguments.first().is_some_and(Value::is_on_device)
        }
        _ => false,
    }
}
