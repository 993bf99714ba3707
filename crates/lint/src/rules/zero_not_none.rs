//! TP501: gradients are overwritten with zeros instead of being freed.

use super::*;

pub fn check(check: &mut Check) {
    check_by_hand(check);
    let program = check.program;
    for call in &program.notes.calls {
        let keyword = keyword_of(call.node, "set_to_none");
        // CUDA graphs write into the gradients they were captured with, so those must stay.
        let is_captured = || program.calls_in(program.file_of(call.context)).any(works_with_graphs);
        if call.name == "zero_grad" && keyword.and_then(boolean) == Some(false) && !is_captured() {
            let message = "`set_to_none=False` writes zeros into every gradient, and the backward pass adds to them";
            let advice = "free them: `set_to_none=True`";
            // Code that reads `.grad` may rely on it being there.
            let fix = match program.sources.files.iter().any(|file| reads_gradients(&file.text)) {
                true => Fix::shown(advice),
                false => {
                    let edit = set_keyword(program.source(call.context), call.node, "set_to_none", "True");
                    // A parameter that a step does not reach keeps a gradient of zeros, with which momentum and weight
                    // decay still move it; without a gradient the optimizer skips it.
                    Fix::unsafe_(advice, vec![edit])
                }
            };
            check.report(call, message, fix);
        }
    }
}

/// `p.grad.zero_()` for every parameter, at every step.
fn check_by_hand(check: &mut Check) {
    let program = check.program;
    for call in program.hot_calls() {
        let of_gradient = match call.receiver_expression() {
            Some(Expr::Attribute(gradient)) if gradient.attr.as_str() == "data" => {
                matches!(&*gradient.value, Expr::Attribute(inner) if inner.attr.as_str() == "grad")
            }
            Some(Expr::Attribute(gradient)) => gradient.attr.as_str() == "grad",
            _ => false,
        };
        if call.name == "zero_" && of_gradient && call.is_method() {
            let message = "a separate kernel fills every gradient with zeros, and the backward pass adds to them";
            let advice = "free them: `p.grad = None`, or `optimizer.zero_grad(set_to_none=True)`";
            check.report_as(Notice::Pedantic, call, message, Fix::shown(advice));
        }
    }
}

fn works_with_graphs(call: &Call) -> bool {
    matches!(call.name, "replay" | "make_graphed_callables" | "CUDAGraph" | "capture_begin")
        || call.external().is_some_and(|dotted| dotted.ends_with("cuda.graph"))
}

fn reads_gradients(text: &str) -> bool {
    text.match_indices(".grad").any(|(at, word)| {
        !text[at + word.len()..].starts_with(|next: char| next.is_ascii_alphanumeric() || next == '_')
    })
}

#[cfg(test)]
mod tests {
    use crate::fix::Safety;
    use crate::{Input, Selection, lint};

    /// The safety of the fix in a step with `line` after its backward pass.
    fn safety(line: &str) -> Safety {
        let text = format!(
            "def train(model, loader, optimizer, criterion):
    for x, y in loader:
        optimizer.zero_grad(set_to_none=False)
        loss = criterion(model(x.cuda()), y.cuda())
        loss.backward()
        {line}
        optimizer.step()
"
        );
        let selection = Selection::new(&["TP501".to_string()], &[]).expect("a known code");
        let report = lint(&[Input { path: "train.py".to_string(), bytes: text.into_bytes() }], &selection);
        assert_eq!(report.findings.len(), 1, "{line}");
        report.findings[0].fix.safety
    }

    #[test]
    fn a_fix_is_on_request_where_nobody_reads_gradients_and_shown_elsewhere() {
        assert_eq!(safety("pass"), Safety::Unsafe);
        assert_eq!(safety("check(model.weight.grad)"), Safety::Shown);
        assert_eq!(safety("norm = model.weight.grad.norm()"), Safety::Shown);
        // Other names with the same prefix.
        for other in ["print(loss.grad_fn)", "model.gradients()", "model.grad2 = 1", "loss.grad_fn.name()"] {
            assert_eq!(safety(other), Safety::Unsafe, "{other}");
        }
        assert_eq!(safety("print(loss.grad_fn, model.weight.grad)"), Safety::Shown);
    }
}
