//! TP406: a bias that the following normalisation cancels.

use super::*;

pub fn check(check: &mut Check) {
    let program = check.program;
    for call in &program.notes.calls {
        if matches!(call.external(), Some("torch.nn.Sequential")) {
            for pair in call.node.arguments.args.windows(2) {
                if let [Expr::Call(first), Expr::Call(second)] = pair
                    && (is_biased_convolution(first) || wraps_convolution(program, call, first))
                    && is_batch_norm(second)
                {
                    report(check, call.context, first);
                }
            }
        }
        // `self.bn1(self.conv1(x))`, both constructed in the same class.
        if let Some((norm, convolution, class)) = applied_to_each_other(program, call)
            && let (Some((_, norm)), Some((context, convolution))) =
                (made_as(program, class, norm), made_as(program, class, convolution))
            && is_biased_convolution(convolution)
            && is_batch_norm(norm)
        {
            report(check, context, convolution);
        }
    }
}

fn report(check: &mut Check, context: ContextId, convolution: &ExprCall) {
    let message = "the batch norm after this convolution subtracts the mean, and the bias with it";
    let program = check.program;
    // Weights that were stored with a bias would no longer load.
    let loads = |call: &Call| matches!(call.name, "load_state_dict" | "from_pretrained" | "load_from_checkpoint");
    let edits = match program.notes.calls.iter().any(loads) {
        true => Vec::new(),
        false => vec![set_keyword(program.source(context), convolution, "bias", "False")],
    };
    let fix = Fix::unsafe_("`bias=False`", edits);
    check.report_as(Notice::Pedantic, (context, convolution), message, fix);
}

fn is_biased_convolution(call: &ExprCall) -> bool {
    let is_convolution = matches!(function_name(call), "Conv1d" | "Conv2d" | "Conv3d" | "ConvTranspose2d");
    let has_rest = call.arguments.keywords.iter().any(|keyword| keyword.arg.is_none());
    let is_on = keyword_of(call, "bias").is_none_or(|bias| boolean(bias) == Some(true));
    is_convolution && is_on && !has_rest && call.arguments.args.len() < 8
}

/// `ConvNorm(…)` of a given class that only wraps a convolution, with a bias by default.
fn wraps_convolution(program: &Program, near: &Call, made: &ExprCall) -> bool {
    let noted = program.call_at(program.file_of(near.context), made.range());
    let Some(Callee::Class(class)) = noted.map(|noted| &noted.callee) else { return false };
    let Some(init) = program.method(*class, "__init__") else { return false };
    let Some(definition) = program.symbol(init).definition else { return false };
    let default = definition.parameters.find("bias").and_then(|parameter| parameter.default());
    let is_layer =
        |call: &&Call| call.external().is_some_and(|name| name.starts_with("torch.nn.") && !name.contains("init"));
    let layers: Vec<&str> = program.calls_of(init).filter(is_layer).map(|call| call.name).collect();
    default.and_then(boolean) == Some(true)
        && made.arguments.find_keyword("bias").is_none()
        && !layers.is_empty()
        && layers.iter().all(|layer| layer.starts_with("Conv"))
}

fn is_batch_norm(call: &ExprCall) -> bool {
    matches!(function_name(call), "BatchNorm1d" | "BatchNorm2d" | "BatchNorm3d" | "SyncBatchNorm")
}

fn applied_to_each_other<'a>(program: &Program<'a>, call: &Call<'a>) -> Option<(&'a str, &'a str, ClassId)> {
    let class = program.function_of(call.context).class?;
    let [Expr::Call(inner)] = &*call.node.arguments.args else { return None };
    Some((attribute_of_self(&call.node.func)?, attribute_of_self(&inner.func)?, class))
}
