//! Finds tests of a device value's truth.

use ruff_python_ast::{Expr, Operator, Parameters};

use super::program::{FunctionKind, Look, Program};
use super::vocabulary::Role;

/// Whether the test needs a tensor's own truth. Parameters of a `forward` that are only guessed to be tensors do not
/// count.
pub fn asks_device(program: &Program, test: &Look) -> bool {
    if !test.value.is_surely_on_device() {
        return false;
    }
    let function = program.function_at(test.context);
    let is_guess = matches!(program.functions[function].kind, FunctionKind::Step | FunctionKind::Loss);
    let is_parameter = |expression: &Expr| {
        let definition = program.symbol(function).definition;
        definition.is_some_and(|definition| is_made_of_parameters(&definition.parameters, expression))
    };
    match test.expression {
        // `if self.criterion:` asks whether it is set.
        Expr::Attribute(_) => !is_guess && test.value.tensor().is_some_and(|tensor| tensor.boolean),
        Expr::Name(_) | Expr::Subscript(_) => !is_guess && !is_parameter(test.expression),
        Expr::Compare(compare) => {
            let left = &*compare.left;
            // Remainders are taken of sizes and counters.
            let is_remainder = matches!(left, Expr::BinOp(operation) if operation.op == Operator::Mod);
            // `answer != {}` compares a container.
            let is_container =
                compare.comparators.iter().any(|side| side.is_dict_expr() || side.is_list_expr() || side.is_set_expr());
            !is_remainder
                && !is_container
                && !(is_guess && (is_parameter(left) || is_index(left) || compare.comparators.iter().any(is_parameter)))
        }
        // `(-padding) or None`
        Expr::UnaryOp(_) | Expr::BinOp(_) => !(is_guess && is_parameter(test.expression)),
        // `outputs.get("aux")` tests a dictionary entry; `self.condition(x)` may return anything.
        Expr::Call(call) => !matches!(&*call.func, Expr::Attribute(method)
            if Role::MayAnswer.fits(method.attr.as_str())),
        _ => true,
    }
}

/// A parameter, or arithmetic on parameters alone: `height * width`.
fn is_made_of_parameters(parameters: &Parameters, expression: &Expr) -> bool {
    match expression {
        Expr::Name(name) => parameters.includes(name.id.as_str()),
        Expr::BinOp(operation) => {
            let holds = |part: &Expr| part.is_number_literal_expr() || is_made_of_parameters(parameters, part);
            holds(&operation.left) && holds(&operation.right)
        }
        Expr::UnaryOp(operation) => is_made_of_parameters(parameters, &operation.operand),
        _ => false,
    }
}

/// `dataloader_idx`: a host number, although it was packed with a batch.
fn is_index(expression: &Expr) -> bool {
    matches!(expression, Expr::Name(name) if Role::Index.fits(name.id.as_str()))
}
