//! TP101: a scalar read back from the device at every step.

use super::*;
use crate::syntax::around;
use crate::uses::Use;
use ruff_python_ast::{StmtGlobal, StmtNonlocal};
use rustc_hash::FxHashSet;

pub fn check(check: &mut Check) {
    check_old_reads(check);
    let program = check.program;
    for call in program.hot_calls() {
        let is_of_tool = read_in_tool(program, call) == Some(Read::Scalar);
        let is_read = is_of_tool || read_of(program, call) == Some(Read::Scalar);
        if !is_read || program.is_in_parameter_loop(call.context) {
            continue;
        }
        let text = program.text(call.context, call.node);
        let shown = if call.name == "item" { "`.item()`".to_string() } else { format!("`{}()`", call.name) };
        let message = format!("{shown} makes the host wait for the device at every step: `{}`", short(text));
        let is_guess = call.receiver == Value::Unknown && call.name == "item";
        let notice = match is_of_tool || is_guess && !program.is_in_sight(call.context) {
            true => Notice::Pedantic,
            false => notice::of_read(program, call.context, call.statement, call.node.range()),
        };
        check.report_as(notice, call, message, fix(program, call));
        if is_guess {
            check.doubt();
        }
    }
}

/// `loss.data[0]`, the form before `.item()` existed: a scalar if it is a loss or a mean.
fn check_old_reads(check: &mut Check) {
    let program = check.program;
    for subscript in &program.notes.subscripts {
        let Expr::Attribute(data) = &*subscript.node.value else { continue };
        let is_first = matches!(&*subscript.node.slice, Expr::NumberLiteral(_))
            && literal(&subscript.node.slice).known_integer() == Some(0);
        if data.attr.as_str() != "data"
            || !is_first
            || subscript.stored.is_some()
            || !program.is_hot(subscript.context)
            || !subscript.base.is_on_device()
            || !is_one_number(&data.value)
        {
            continue;
        }
        let text = quoted(program, subscript);
        let message = format!("`.data[0]` of a scalar makes the host wait for the device at every step: `{text}`");
        let advice = "keep the value on the device (`.detach()`) and read it only where it is logged";
        check.report_as(Notice::Pedantic, subscript, message, Fix::shown(advice));
    }
}

/// Whether the value is a loss by name, or the result of a mean or a sum.
fn is_one_number(value: &Expr) -> bool {
    const WORDS: [&str; 12] =
        ["loss", "err", "acc", "nll", "kl", "kld", "re", "cost", "penalty", "entropy", "elbo", "reward"];
    match value {
        Expr::Name(name) => {
            let lower = name.id.as_str().to_ascii_lowercase();
            lower.contains("loss") || lower.split('_').any(|word| WORDS.contains(&word))
        }
        Expr::Attribute(attribute) => attribute.attr.as_str().to_ascii_lowercase().contains("loss"),
        Expr::Subscript(subscript) => is_one_number(&subscript.value),
        Expr::Call(call) => {
            matches!(&*call.func, Expr::Attribute(method) if matches!(method.attr.as_str(), "mean" | "sum" | "norm"))
                && call.arguments.is_empty()
        }
        _ => false,
    }
}

fn fix(program: &Program, call: &Call) -> Fix {
    let advice = "keep the value on the device (`.detach()`) and read it only where it is logged";
    if steers(call) {
        return Fix::shown("decide on the device (`torch.where`), or check the value every few steps");
    }
    if counts(call) {
        return Fix::shown(
            "the host needs this number here: take it from host data (shapes, the batch before it was moved), or keep the size fixed",
        );
    }
    keep_on_device(program, call).map_or_else(|| Fix::shown(advice), |edits| Fix::unsafe_(advice, edits))
}

/// Whether the number is a size or an index: `x[: n.item()]`, `range(int(n))`, `max_len = lens.max().item()`.
fn counts(call: &Call) -> bool {
    const SIZES: [&str; 11] =
        ["range", "arange", "zeros", "ones", "empty", "full", "view", "reshape", "expand", "split", "narrow"];
    let read = call.node.range();
    let is_counted = |outer: &Expr| match outer {
        _ if outer.range() == read => false,
        Expr::Subscript(subscript) => subscript.slice.range().contains_range(read),
        Expr::Call(outer) => SIZES.contains(&function_name(outer)) && outer.arguments.range.contains_range(read),
        _ => false,
    };
    let target = match call.statement {
        Stmt::Assign(assign) => assign.targets.first(),
        _ => None,
    };
    let is_named = target.is_some_and(|target| {
        let last = names_in(target).first().copied().unwrap_or_default().to_ascii_lowercase();
        ["len", "size", "index", "idx", "offset", "start", "end", "length", "count", "num"]
            .iter()
            .any(|word| last.split('_').any(|part| part.trim_end_matches('s') == *word) || last.ends_with("seqlen"))
    });
    is_named || around(call.statement, read).into_iter().any(is_counted)
}

/// Whether the value decides what runs next.
fn steers(call: &Call) -> bool {
    match call.statement {
        Stmt::If(branch) => branch.test.range().contains_range(call.node.range()),
        Stmt::While(repeat) => repeat.test.range().contains_range(call.node.range()),
        Stmt::Assert(assert) => assert.range.contains_range(call.node.range()),
        _ => false,
    }
}

/// `total += loss.item()` and `shown = loss.item()` become tensors that are read as `float(…)` at their uses, if all
/// uses are rare.
fn keep_on_device(program: &Program, call: &Call) -> Option<Vec<Edit>> {
    let (target, value) = match call.statement {
        Stmt::AugAssign(assign) if assign.op == Operator::Add => (&*assign.target, &*assign.value),
        Stmt::Assign(assign) => match assign.targets.as_slice() {
            [target] => (target, &*assign.value),
            _ => return None,
        },
        _ => return None,
    };
    let Expr::Name(name) = target else { return None };
    let is_read = matches!(value, Expr::Call(read) if std::ptr::eq(read, call.node));
    let is_scaled = matches!(value, Expr::BinOp(product) if product.op == Operator::Mult
        && matches!(&*product.left, Expr::Call(read) if std::ptr::eq(read, call.node)));
    if call.name != "item" || !(is_read || is_scaled) {
        return None;
    }
    let receiver = call.receiver_expression()?;
    // The name belongs to a function around this one, or to the module, where it is read as a number.
    let function = program.function_at(call.context);
    if is_borrowed(program, function, name.id.as_str()) {
        return None;
    }
    // `shown = loss.item(); loss /= n`: the kept tensor would change as well.
    let is_changed = || is_changed_in_place(program, function, &names_in(receiver));
    if matches!(call.statement, Stmt::Assign(_)) && is_changed() {
        return None;
    }
    // A count stays a whole number. Anything else is summed in single precision, whatever the model computes in.
    let is_count = is_count(receiver);
    let (kept, read) = if is_count { ("", "int") } else { (".float()", "float") };
    let text = program.text(call.context, receiver);
    let detached = if is_count || text.ends_with(".detach()") { "" } else { ".detach()" };
    let mut edits = vec![Edit::replace(call.node.range(), format!("{text}{detached}{kept}"))];
    edits.extend(reads_elsewhere(program, call.context, name.id.as_str(), call.statement, read)?);
    Some(edits)
}

/// `(predicted == y).sum()`.
fn is_count(value: &Expr) -> bool {
    let Expr::Call(sum) = value else { return false };
    let Expr::Attribute(method) = &*sum.func else { return false };
    let is_mask = match &*method.value {
        Expr::Compare(_) => true,
        Expr::Call(inner) => matches!(function_name(inner), "eq" | "ne" | "lt" | "le" | "gt" | "ge"),
        _ => false,
    };
    method.attr.as_str() == "sum" && is_mask
}

/// `float(name)` at every use outside the step. `None` where a use is hot, is not a plain read, or leaves the function.
fn reads_elsewhere(
    program: &Program,
    context: ContextId,
    name: &str,
    statement: &Stmt,
    read: &str,
) -> Option<Vec<Edit>> {
    let function = program.function_at(context);
    let mut edits = Vec::new();
    for Use { expression, context, is_store, .. } in uses_of(program, function, name) {
        if statement.range().contains_range(expression.range()) || is_store {
            continue;
        }
        if context.is_none_or(|context| program.is_hot(context)) {
            return None;
        }
        edits.push(Edit::replace(expression.range(), format!("{read}({name})")));
    }
    Some(edits)
}

/// Whether the function assigns a name of a function around it or of the module: `nonlocal name`, `global name`.
fn is_borrowed(program: &Program, function: FunctionId, name: &str) -> bool {
    let borrowed = program.asked.borrowed.of(function, || {
        let mut borrowed = FxHashSet::default();
        for statement in statements_in(program.symbol(function).body) {
            if let Stmt::Nonlocal(StmtNonlocal { names, .. }) | Stmt::Global(StmtGlobal { names, .. }) = statement {
                borrowed.extend(names.iter().map(|name| name.as_str()));
            }
        }
        borrowed.into()
    });
    borrowed.contains(name)
}
