//! TP101: a scalar read back from the device at every step.

use ruff_python_ast::visitor::{Visitor, walk_expr};
use ruff_python_ast::{Expr, Operator, Stmt};
use ruff_text_size::{Ranged, TextRange};

use crate::context::ContextId;
use crate::finding::{Cause, Confidence, Effort, Severity};
use crate::fix::{Edit, Fix};
use crate::program::{Call, Program};
use crate::reads::{Read, read_of};
use crate::rule::{Check, Notice, SourceRule};
use crate::uses::{Use, uses_of};
use crate::value::Value;
use crate::worth;

pub const RULE: SourceRule = SourceRule {
    code: "TP101",
    name: "item-per-step",
    cause: Cause::HostSync,
    severity: Severity::High,
    effort: Effort::Low,
    confidence: Confidence::High,
    operators: &["aten::item", "aten::_local_scalar_dense", "cudaMemcpyAsync", "cudaStreamSynchronize"],
    page: include_str!("item_per_step.md"),
    check,
};

fn check(check: &mut Check) {
    let program = check.program;
    for call in program.hot_calls() {
        if read_of(program, call) != Some(Read::Scalar) || program.is_in_parameter_loop(call.context) {
            continue;
        }
        let text = program.text(call.context, call.node);
        let shown = if call.name == "item" { "`.item()`".to_string() } else { format!("`{}()`", call.name) };
        let message = format!("{shown} makes the host wait for the device at every step: `{}`", super::short(text));
        let is_guess = call.receiver == Value::Unknown && call.name == "item";
        let notice = match is_guess && !program.is_in_sight(call.context) {
            true => Notice::Pedantic,
            false => worth::of_read(program, call.context, call.statement, call.node.range()),
        };
        check.report_as(notice, call.context, call.node, message, fix(program, call));
        if is_guess {
            check.doubt();
        }
    }
}

fn fix(program: &Program, call: &Call) -> Fix {
    let advice = "keep the value on the device (`.detach()`) and read it once, where it is logged";
    if steers(call) {
        return Fix::shown("decide on the device (`torch.where`), or look at the value every few steps");
    }
    if counts(call) {
        return Fix::shown(
            "the host needs this number here: take it from what the host knows (shapes, the batch before it was moved), or keep the size fixed",
        );
    }
    keep_on_device(program, call).map_or_else(|| Fix::shown(advice), |edits| Fix::unsafe_(advice, edits))
}

/// Whether the number sizes or places something: `x[: n.item()]`, `range(int(n))`, `max_len = lens.max().item()`.
fn counts(call: &Call) -> bool {
    struct Around {
        read: TextRange,
        found: bool,
    }
    impl<'a> Visitor<'a> for Around {
        fn visit_expr(&mut self, expression: &'a Expr) {
            if !expression.range().contains_range(self.read) || expression.range() == self.read {
                return;
            }
            self.found |= match expression {
                Expr::Subscript(subscript) => subscript.slice.range().contains_range(self.read),
                Expr::Call(outer) => {
                    let sizes = [
                        "range", "arange", "zeros", "ones", "empty", "full", "view", "reshape", "expand", "split",
                        "narrow",
                    ];
                    sizes.contains(&super::called_name(outer)) && outer.arguments.range.contains_range(self.read)
                }
                _ => false,
            };
            walk_expr(self, expression);
        }
    }
    let mut around = Around { read: call.node.range(), found: false };
    around.visit_stmt(call.statement);
    let target = match call.statement {
        Stmt::Assign(assign) => assign.targets.first(),
        _ => None,
    };
    let is_named = target.is_some_and(|target| {
        let last = crate::names_in(target).first().copied().unwrap_or_default().to_ascii_lowercase();
        ["len", "size", "index", "idx", "offset", "start", "end", "length", "count", "num"]
            .iter()
            .any(|word| last.split('_').any(|part| part.trim_end_matches('s') == *word) || last.ends_with("seqlen"))
    });
    around.found || is_named
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

/// `total += loss.item()` and `shown = loss.item()` become tensors that are read as `float(…)` where they are used, if
/// all their uses are seldom.
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
    let mut edits =
        vec![Edit::replace(call.node.range(), format!("{}.detach()", program.text(call.context, receiver)))];
    edits.extend(reads_elsewhere(program, call.context, name.id.as_str(), call.statement)?);
    Some(edits)
}

/// `float(name)` at every use outside the step. None where a use is hot, is no plain read, or leaves the function.
fn reads_elsewhere(program: &Program, context: ContextId, name: &str, statement: &Stmt) -> Option<Vec<Edit>> {
    let function = program.notes.contexts.get(context).function;
    let mut edits = Vec::new();
    for Use { expression, context, is_store, .. } in uses_of(program, function, name) {
        if statement.range().contains_range(expression.range()) || is_store {
            continue;
        }
        if context.is_none_or(|context| program.is_hot(context)) {
            return None;
        }
        edits.push(Edit::replace(expression.range(), format!("float({name})")));
    }
    Some(edits)
}
