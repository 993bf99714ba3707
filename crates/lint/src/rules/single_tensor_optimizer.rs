//! TP502: an optimizer updates the parameters one by one.

use super::*;
use crate::value::Stage;

pub fn check(check: &mut Check) {
    let program = check.program;
    for call in &program.notes.calls {
        let is_optimizer = matches!(call.result, Value::Optimizer(Some(_)));
        for name in ["foreach", "fused"] {
            let value = keyword_of(call.node, name);
            if is_optimizer && value.and_then(boolean) == Some(false) {
                // `fused=False` alone still leaves the multi-tensor path.
                let other = keyword_of(call.node, "foreach");
                if name == "fused" && other.and_then(boolean) == Some(true) {
                    continue;
                }
                let message = format!("`{name}=False`: separate small kernels update each parameter");
                let fix = Fix::unsafe_(
                    format!("`{name}=True`"),
                    vec![set_keyword(program.source(call.context), call.node, name, "True")],
                );
                check.report(call, message, fix);
            }
        }
    }
    let advice = "update all parameters together: an optimizer from `torch.optim`, or `torch._foreach_add_`";
    let message = "parameters are updated one by one in Python: several small kernels each, at every step";
    for call in program.hot_calls() {
        let updates = matches!(call.name, "add_" | "sub_" | "addcdiv_" | "copy_") && call.is_method();
        let is_parameter = matches!(&call.receiver, Value::Tensor(tensor) if tensor.stage == Stage::Parameter);
        if updates
            && is_parameter
            && program.is_in_parameter_loop(call.context)
            && speaks_of_gradient(call.node.arguments.args.iter())
        {
            check.report(call, message, Fix::shown(advice));
        }
    }
    for call in program.hot_calls().filter(|call| averages_weights(program, call)) {
        let message = "the weight average is updated parameter by parameter: small kernels for each, at every step";
        let advice = "update them together: `torch._foreach_lerp_(averages, weights, 1 - decay)`";
        check.report_as(Notice::Pedantic, call, message, Fix::shown(advice));
    }
    for sum in &program.notes.accumulations {
        let is_hot = program.is_hot(sum.context) && program.is_in_parameter_loop(sum.context);
        let is_parameter = matches!(sum.target, Expr::Attribute(target) if target.attr.as_str() == "data")
            || matches!(sum.target, Expr::Name(_));
        if is_hot && is_parameter && speaks_of_gradient(std::iter::once(sum.expression)) {
            let is_sum = matches!(sum.statement, Stmt::AugAssign(assign) if assign.op == Operator::Add);
            if sum.value.tensor().is_some() && !(is_sum && sum.target.is_name_expr()) {
                check.report((sum.context, sum.statement), message, Fix::shown(advice));
            }
        }
    }
}

/// `average.mul_(decay).add_(weight, alpha=1 - decay)` in a loop, and the same with `lerp_` or `copy_`.
fn averages_weights(program: &Program, call: &Call) -> bool {
    let Some(receiver) = call.receiver_expression().filter(|_| call.is_method()) else { return false };
    let Some(iterated) = program.loop_around(call.context).and_then(|around| around.iterated) else { return false };
    let names = names_in(iterated);
    let over_weights = program.is_in_parameter_loop(call.context)
        || names.iter().any(|name| name.contains("param") || name.contains("state_dict"))
        || names.contains(&"keys");
    let moves = match call.name {
        "add_" => matches!(receiver, Expr::Call(inner) if function_name(inner) == "mul_"),
        "lerp_" => true,
        // `target.data.copy_(target.data * (1 - tau) + source.data * tau)`
        "copy_" => matches!(call.node.arguments.args.first(), Some(Expr::BinOp(sum))
            if matches!((&*sum.left, &*sum.right), (Expr::BinOp(_), Expr::BinOp(_)))),
        _ => false,
    };
    moves && over_weights && !speaks_of_gradient(call.node.arguments.args.iter())
}

fn speaks_of_gradient<'a>(mut expressions: impl Iterator<Item = &'a Expr>) -> bool {
    expressions.any(|expression| names_in(expression).contains(&"grad"))
}
