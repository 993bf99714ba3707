//! TP403: attention written out as two products and a softmax.

use super::*;
use crate::attention;
use crate::program::Product;

pub fn check(check: &mut Check) {
    let program = check.program;
    for product in &program.notes.products {
        if !program.is_hot(product.context) || is_fallback(program, product) || is_used_elsewhere(program, product) {
            continue;
        }
        let message = "scores, softmax and weights, each of sequence length squared, are written to memory";
        let advice =
            "use one fused call that does not write them: `torch.nn.functional.scaled_dot_product_attention(q, k, v)`";
        // From the scores on, if they are computed in the same function.
        let whole = product.weights.cover(product.expression.range());
        let function = program.function_of(product.context).definition.map(|definition| definition.range());
        let is_here = function.is_some_and(|function| function.contains_range(whole));
        let range = if is_here { whole } else { product.expression.range() };
        // Only the reader knows the sequence length: windows and joints are short.
        check.report_as(Notice::Pedantic, (product.context, range), message, Fix::shown(advice));
        if !attention::is_of_length_squared(program, product) {
            check.doubt();
        }
    }
}

/// Fused attention kernels by their last name; `flash_attn_func` and its variants share a prefix.
const FUSED: [&str; 4] =
    ["scaled_dot_product_attention", "memory_efficient_attention", "flex_attention", "multi_head_attention_forward"];

/// Whether the function also calls a fused kernel: then this is the fallback where that one is unavailable.
fn is_fallback(program: &Program, product: &Product) -> bool {
    let function = |context| program.function_at(context);
    let here = function(product.context);
    program.notes.calls.iter().any(|call| {
        (FUSED.contains(&call.name) || call.name.starts_with("flash_attn")) && function(call.context) == here
    })
}

/// Whether the weights are returned, stored or shown besides being multiplied.
fn is_used_elsewhere(program: &Program, product: &Product) -> bool {
    let names = match product.expression {
        Expr::BinOp(operation) => names_in(&operation.left),
        Expr::Call(call) => {
            let receiver = match &*call.func {
                Expr::Attribute(attribute) => names_in(&attribute.value),
                _ => Vec::new(),
            };
            let operand = usize::from(call.arguments.args.first().is_some_and(Expr::is_string_literal_expr));
            let first = call.arguments.args.get(operand).map(names_in).unwrap_or_default();
            receiver.into_iter().chain(first).collect()
        }
        _ => Vec::new(),
    };
    let function = program.function_at(product.context);
    names.into_iter().filter(|name| !matches!(*name, "torch" | "F" | "self" | "dropout" | "matmul" | "bmm")).any(
        |name| {
            uses_of(program, function, name).iter().any(|one| {
                let in_product = product.expression.range().contains_range(one.expression.range());
                let leaves = match one.statement {
                    Stmt::Return(_) => true,
                    // `self.weights = weights`
                    Stmt::Assign(assign) => {
                        assign.value.is_dict_expr()
                            || assign.targets.iter().any(|target| matches!(target, Expr::Attribute(_)))
                    }
                    _ => false,
                };
                !one.is_store && !in_product && leaves
            })
        },
    )
}
