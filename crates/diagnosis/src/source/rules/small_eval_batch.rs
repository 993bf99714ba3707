//! TP604: evaluation in smaller batches than training.

use ruff_python_ast::{Expr, Stmt};

use crate::finding::{Cause, Confidence, Effort, Severity};
use crate::source::fix::Fix;
use crate::source::program::{Loader, Program};
use crate::source::rule::{Check, SourceRule};

pub const RULE: SourceRule = SourceRule {
    code: "TP604",
    name: "small-eval-batch",
    cause: Cause::BatchTooSmall,
    severity: Severity::Low,
    effort: Effort::Low,
    confidence: Confidence::Medium,
    operators: &[],
    page: include_str!("small_eval_batch.md"),
    check,
};

fn check(check: &mut Check) {
    let program = check.program;
    let batch = |loader: &Loader| loader.batch_size.as_ref().and_then(|value| value.known_integer());
    for loader in &program.loaders {
        let Some(size) = batch(loader).filter(|_| evaluates(program, loader)) else { continue };
        let file = program.file_of(loader.context);
        let training =
            program.loaders.iter().filter(|other| program.file_of(other.context) == file && !evaluates(program, other));
        if let Some(larger) = training.filter_map(batch).max().filter(|larger| *larger > size) {
            let message = format!(
                "evaluation runs in batches of {size}, training in {larger}: without a backward pass more would fit, not less"
            );
            check.report(loader.context, loader.node, message, Fix::shown(format!("use at least {larger}")));
        }
    }
}

fn evaluates(program: &Program, loader: &Loader) -> bool {
    let name = match loader.statement {
        Stmt::Assign(assign) => match assign.targets.as_slice() {
            [Expr::Name(name)] => name.id.as_str(),
            [Expr::Attribute(target)] => target.attr.as_str(),
            _ => "",
        },
        _ => "",
    };
    let lower = name.to_ascii_lowercase();
    program.is_evaluation(loader.context)
        || lower.split('_').any(|word| {
            matches!(word, "val" | "valid" | "validation" | "test" | "eval" | "dev" | "valloader" | "testloader")
        })
}
