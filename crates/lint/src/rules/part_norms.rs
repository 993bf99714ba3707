//! Fixes gradient norms that each part of a model reads in a method of its own: the parts return tensors, and the
//! caller of all parts reads once.

use super::*;
use ruff_python_ast::{Number, StmtFor};

/// `total = 0.0`, the loop over parameters, `return math.sqrt(total)`: the whole body of a method that one loop over
/// parts calls.
pub fn repair(program: &Program, call: &Call, repeat: &StmtFor, gradients: &str) -> Option<Vec<Edit>> {
    let function = program.function_at(call.context);
    let symbol = program.symbol(function);
    let definition = symbol.definition.filter(|_| symbol.class.is_some())?;
    let method = Method::read(&definition.body, repeat)?;
    let mut callers = program.callers_of(function);
    let (Some(caller), None) = (callers.next(), callers.next()) else { return None };
    if program.functions[function].is_handed_over || program.file_of(caller.context) != symbol.file {
        return None;
    }
    let source = program.source(call.context);
    let owner = definition.parameters.args.first()?.parameter.name.as_str();
    let indent = source.indentation(repeat.range.start());
    let end = if method.is_root { "norm()" } else { "square().sum()" };
    let text = format!(
        "gradients = {gradients}\n{indent}if not gradients:\n{indent}    return torch.zeros((), device=next({owner}.parameters()).device)\n{indent}return torch.stack(torch._foreach_norm(gradients)).{end}"
    );
    let mut edits = vec![Edit::replace(method.range, text), gathered(program, caller)?];
    if let Some(returns) = &definition.returns {
        edits.push(Edit::replace(returns.range(), "torch.Tensor"));
    }
    Some(edits)
}

struct Method {
    /// From the initialization of the sum to the return.
    range: TextRange,
    is_root: bool,
}

impl Method {
    fn read(body: &[Stmt], repeat: &StmtFor) -> Option<Method> {
        let body = match body {
            [Stmt::Expr(first), rest @ ..] if first.value.is_string_literal_expr() => rest,
            body => body,
        };
        let [Stmt::Assign(begin), Stmt::For(inner), Stmt::Return(end)] = body else { return None };
        let ([Expr::Name(total)], true) = (begin.targets.as_slice(), inner.range == repeat.range) else { return None };
        let range = TextRange::new(begin.range.start(), end.range.end());
        let is_total = |expression: &Expr| name_of(expression) == Some(total.id.as_str());
        let (value, is_root) = match end.value.as_deref()? {
            Expr::Call(root) => {
                let is_square_root =
                    matches!(&*dotted_name(&root.func)?, "math.sqrt" | "np.sqrt" | "numpy.sqrt" | "sqrt");
                (root.arguments.args.first().filter(|_| root.arguments.args.len() == 1)?, is_square_root)
            }
            Expr::BinOp(root) if root.op == Operator::Pow => {
                let is_half = matches!(&*root.right, Expr::NumberLiteral(half)
                    if matches!(half.value, Number::Float(value) if value == 0.5));
                (&*root.left, is_half)
            }
            plain => return is_total(plain).then_some(Method { range, is_root: false }),
        };
        (is_total(value) && is_root).then_some(Method { range, is_root })
    }
}

/// Turns `for node in nodes: found[node.number] = node.norm()` into one list of tensors and one transfer.
fn gathered(program: &Program, caller: &Call) -> Option<Edit> {
    let source = program.source(caller.context);
    let around = program.loops_in(program.file_of(caller.context)).rev();
    let mut around = around.filter(|around| around.statement.range().contains_range(caller.node.range()));
    let Stmt::For(repeat) = around.next()?.statement else { return None };
    let ([Stmt::Assign(assign)], Expr::Name(part), true) =
        (repeat.body.as_slice(), &*repeat.target, repeat.orelse.is_empty())
    else {
        return None;
    };
    let is_list = matches!(&*repeat.iter, Expr::Name(_) | Expr::Attribute(_));
    let [Expr::Subscript(target)] = assign.targets.as_slice() else { return None };
    let (found, part) = (name_of(&target.value)?, part.id.as_str());
    let is_asked = assign.value.range() == caller.node.range()
        && caller.node.arguments.is_empty()
        && matches!(caller.callee, Callee::Function(_))
        && caller.receiver_expression().and_then(name_of) == Some(part);
    let function = program.function_at(caller.context);
    let is_dictionary = uses_of(program, function, found).iter().any(|one| {
        one.is_store && matches!(one.statement, Stmt::Assign(begin) if matches!(&*begin.value, Expr::Dict(empty) if empty.items.is_empty()))
    });
    if !is_list || !is_asked || !is_dictionary {
        return None;
    }
    let indent = source.indentation(repeat.range.start());
    let (parts, key) = (source.slice(repeat.iter.range()), source.slice(target.slice.range()));
    let asked = source.slice(caller.node.range());
    let values = format!("{found}_values");
    let text = format!(
        "{values} = [{asked} for {part} in {parts}]\n{indent}if {values}:\n{indent}    {found}.update(zip([{key} for {part} in {parts}], torch.stack({values}).tolist()))"
    );
    Some(Edit::replace(repeat.range, text))
}
