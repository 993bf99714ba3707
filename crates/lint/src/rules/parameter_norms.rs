//! Fixes gradient norms that are read one by one: computes all norms in a few kernels, with one transfer or none.

use super::*;
use crate::uses::Use;
use headroom_rewrite::edits::{block_around, remove_statement};
use headroom_rewrite::syntax::method_of;
use ruff_python_ast::StmtFor;

const ADVICE: &str = "compute all norms together with `torch._foreach_norm` and read them with one transfer; if \
                      only the largest matter, use `topk` on the device";

pub fn advice() -> Fix {
    Fix::shown(ADVICE)
}

/// A fix where the loop has one of the usual shapes; advice elsewhere.
pub fn fix(program: &Program, call: &Call) -> Fix {
    let edits = repair(program, call);
    Fix::unsafe_(ADVICE, edits.unwrap_or_default())
}

fn repair(program: &Program, call: &Call) -> Option<Vec<Edit>> {
    let source = program.source(call.context);
    let around = program.loops_in(program.file_of(call.context)).rev();
    let mut around = around.filter(|around| around.statement.range().contains_range(call.node.range()));
    let repeat = around.find_map(|around| around.statement.as_for_stmt())?;
    let receiver = call.receiver_expression()?;
    let norm = GradientNorm::read(source.slice(repeat.iter.range()), repeat, receiver, call)?;
    norms_into_dictionary(program, call, repeat, &norm).or_else(|| sum_of_squares(program, call, repeat, &norm))
}

/// Whether the norm or its square is read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Power {
    Norm,
    Square,
}

/// `p.grad.norm().item()` in a loop over parameters.
struct GradientNorm<'a> {
    power: Power,
    iterated: &'a str,
    name: Option<&'a str>,
    parameter: &'a str,
}

impl<'a> GradientNorm<'a> {
    fn read(iterated: &'a str, repeat: &'a StmtFor, receiver: &'a Expr, call: &Call) -> Option<GradientNorm<'a>> {
        if call.name != "item" || !repeat.orelse.is_empty() {
            return None;
        }
        let (name, parameter) = match &*repeat.target {
            Expr::Tuple(targets) => {
                let [name, parameter] = targets.elts.as_slice() else { return None };
                (Some(name_of(name)?), name_of(parameter)?)
            }
            parameter => (None, name_of(parameter)?),
        };
        // Only the direct form is fixed, not `norm = p.grad.norm(2)` on the line before.
        let receiver = receiver.as_call_expr()?;
        let power = match squared(receiver) {
            Some(inner) if is_gradient(inner, parameter) => Power::Square,
            _ if is_gradient_norm(receiver, parameter) => Power::Norm,
            _ => return None,
        };
        Some(GradientNorm { power, iterated, name, parameter })
    }

    fn gradients(&self) -> String {
        let GradientNorm { iterated, parameter, .. } = self;
        let unused = if self.name.is_some() { "_, " } else { "" };
        format!("[{parameter}.grad for {unused}{parameter} in {iterated} if {parameter}.grad is not None]")
    }
}

/// `p.grad[.data|.detach()].norm([2])`.
fn is_gradient_norm(call: &ExprCall, parameter: &str) -> bool {
    let is_second = call.arguments.args.first().is_none_or(is_two) && call.arguments.keywords.is_empty();
    method_of(call).is_some_and(|(owner, name)| name == "norm" && is_second && is_gradient(owner, parameter))
}

/// `g` in `g.pow(2).sum()`, `(g ** 2).sum()`, `g.square().sum()`.
fn squared(call: &ExprCall) -> Option<&Expr> {
    let (summed, "sum") = method_of(call)? else { return None };
    match summed {
        _ if !call.arguments.is_empty() => None,
        Expr::BinOp(square) if square.op == Operator::Pow && is_two(&square.right) => Some(&square.left),
        Expr::Call(inner) => match (method_of(inner)?, &*inner.arguments.args) {
            ((owner, "pow"), [two]) if is_two(two) => Some(owner),
            ((owner, "square"), []) => Some(owner),
            _ => None,
        },
        _ => None,
    }
}

fn is_two(expression: &Expr) -> bool {
    literal(expression).known_integer() == Some(2)
}

/// `p.grad[.data|.detach()]`.
fn is_gradient(expression: &Expr, parameter: &str) -> bool {
    match expression {
        Expr::Call(inner) => {
            method_of(inner).is_some_and(|(owner, method)| method == "detach" && is_gradient(owner, parameter))
        }
        Expr::Attribute(attribute) => match attribute.attr.as_str() {
            "data" => is_gradient(&attribute.value, parameter),
            "grad" => name_of(&attribute.value) == Some(parameter),
            _ => false,
        },
        _ => false,
    }
}

/// `p.grad is not None`.
fn asks_for_gradient(test: &Expr, parameter: &str) -> bool {
    let names = names_in(test);
    names.len() == 2 && names.contains(&parameter) && names.contains(&"grad")
}

/// The only statement of the loop, looked up inside `if p.grad is not None:`.
fn only_statement<'a>(body: &'a [Stmt], parameter: &str) -> Option<&'a Stmt> {
    let body = match body {
        [Stmt::If(branch)] if branch.elif_else_clauses.is_empty() && asks_for_gradient(&branch.test, parameter) => {
            &branch.body
        }
        body => body,
    };
    let [only] = body else { return None };
    Some(only)
}

fn is_call(expression: &Expr, call: &Call) -> bool {
    expression.as_call_expr().is_some_and(|read| std::ptr::eq(read, call.node))
}

/// `norms[name] = p.grad.norm().item()`; followed by `sorted(norms.items(), …)[:k]`, nothing is read in the step.
fn norms_into_dictionary(program: &Program, call: &Call, repeat: &StmtFor, norm: &GradientNorm) -> Option<Vec<Edit>> {
    let name = norm.name.filter(|_| norm.power == Power::Norm)?;
    let Stmt::Assign(assign) = only_statement(&repeat.body, norm.parameter)? else { return None };
    let [Expr::Subscript(target)] = assign.targets.as_slice() else { return None };
    let dictionary = name_of(&target.value)?;
    if name_of(&target.slice) != Some(name) || !is_call(&assign.value, call) {
        return None;
    }
    let source = program.source(call.context);
    let indent = source.indentation(repeat.range.start());
    let GradientNorm { iterated, parameter, .. } = norm;
    let names = format!("{dictionary}_names");
    let values = format!("{dictionary}_values");
    let on_device = format!(
        "{names} = [{name} for {name}, {parameter} in {iterated} if {parameter}.grad is not None]\n{indent}{values} = torch.stack(torch._foreach_norm({}))",
        norm.gradients()
    );
    if let Some(mut edits) = keep_largest(program, call.context, repeat, dictionary, &names, &values) {
        edits.push(Edit::replace(repeat.range, on_device));
        return Some(edits);
    }
    let read = format!("\n{indent}{dictionary}.update(zip({names}, {values}.tolist()))");
    Some(vec![Edit::replace(repeat.range, on_device + &read)])
}

/// `top = sorted(norms.items(), key=…, reverse=True)[:k]`, used only under guards: runs `topk` on the device, and reads
/// names and values where they are shown.
fn keep_largest(
    program: &Program,
    context: ContextId,
    repeat: &StmtFor,
    dictionary: &str,
    names: &str,
    values: &str,
) -> Option<Vec<Edit>> {
    let source = program.source(context);
    let function = program.function_at(context);
    let uses = uses_of(program, function, dictionary);
    let is_outside = |one: &&Use| !one.is_store && !repeat.range.contains_range(one.expression.range());
    let outside: Vec<&Use> = uses.iter().filter(is_outside).collect();
    // It is read only here.
    let [Use { statement: Stmt::Assign(assign), .. }] = outside.as_slice() else { return None };
    let ([Expr::Name(top)], Expr::Subscript(slice)) = (assign.targets.as_slice(), &*assign.value) else { return None };
    let (Expr::Call(call), Expr::Slice(bounds)) = (&*slice.value, &*slice.slice) else { return None };
    let is_largest_first = dotted_name(&call.func).as_deref() == Some("sorted")
        && keyword_of(call, "reverse").and_then(boolean) == Some(true)
        && keyword_of(call, "key").is_some_and(|key| source.slice(key.range()).trim_end().ends_with("[1]"));
    if !is_largest_first || bounds.lower.is_some() || bounds.step.is_some() {
        return None;
    }
    let count = source.slice(bounds.upper.as_ref()?.range());
    let top = top.id.as_str();
    let (largest, positions) = (format!("{top}_norms"), format!("{top}_indices"));
    let picked = format!("{largest}, {positions} = {values}.topk(min({count}, {values}.numel()))");
    let mut edits = vec![Edit::replace(assign.range, picked)];
    let read = format!("{top} = [({names}[i], norm) for i, norm in zip({positions}.tolist(), {largest}.tolist())]");
    let mut guarded: Vec<TextRange> = Vec::new();
    for one in uses_of(program, function, top).iter().filter(|one| !one.is_store) {
        let context = one.context?;
        let (_, guard) = program.outwards(context).find(|(_, around)| matches!(around.frame, Frame::Guard(_)))?;
        if program.is_hot(context) {
            return None;
        }
        if !guarded.contains(&guard.range) {
            guarded.push(guard.range);
        }
    }
    for range in guarded {
        let indent = source.indentation(range.start());
        edits.push(Edit::insert(range.start(), format!("{read}\n{indent}")));
    }
    // The dictionary is not read anywhere else: its empty initialization is removed if it is in the same block.
    let body = block_around(&source.syntax.body, repeat.range)?;
    let begins = |one: &&Stmt| matches!(one, Stmt::Assign(assign) if matches!(&*assign.targets, [name] if name_of(name) == Some(dictionary)));
    edits.extend(body.iter().find(begins).map(|first| remove_statement(source, first)));
    Some(edits)
}

/// `total += p.grad.norm().item() ** 2`, `total += p.grad.pow(2).sum().item()`.
fn sum_of_squares(program: &Program, call: &Call, repeat: &StmtFor, norm: &GradientNorm) -> Option<Vec<Edit>> {
    let Stmt::AugAssign(assign) = only_statement(&repeat.body, norm.parameter)? else { return None };
    let is_square = match &*assign.value {
        Expr::BinOp(square) if norm.power == Power::Norm => {
            square.op == Operator::Pow && is_two(&square.right) && is_call(&square.left, call)
        }
        read => norm.power == Power::Square && is_call(read, call),
    };
    if !is_square || assign.op != Operator::Add {
        return None;
    }
    if let Some(edits) = part_norms::repair(program, call, repeat, &norm.gradients()) {
        return Some(edits);
    }
    let total = program.text(call.context, &*assign.target);
    let text = format!("{total} += torch.stack(torch._foreach_norm({})).square().sum().item()", norm.gradients());
    Some(vec![Edit::replace(repeat.range, text)])
}
