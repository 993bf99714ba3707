//! Finds where a block switches from training to evaluation: `model.eval()`.

use super::*;

impl<'p, 'a> Interpreter<'p, 'a> {
    /// `model.eval()` without a later `.train()` in the same block. Beside `student.train()` it freezes a teacher.
    pub(super) fn starts_evaluation(&self, upto: &[Stmt], rest: &[Stmt]) -> bool {
        let Some((statement, before)) = upto.split_last() else { return false };
        // A loss that searches for its own adversarial examples puts the model in eval mode and goes on.
        if matches!(self.kind(), FunctionKind::Loss | FunctionKind::Step) {
            return false;
        }
        let calls = |statement: &Stmt, role: Role| called_without_arguments(statement, role).is_some();
        let Some(still) = called_without_arguments(statement, Role::EvalMethod) else { return false };
        let near = &before[before.len().saturating_sub(3)..];
        let mut trained = near.iter().filter_map(|near| called_without_arguments(near, Role::TrainMethod));
        if trained.any(|trained| trained != still) {
            return false;
        }
        // `reference.eval()`, `teacher.requires_grad_(False)`: a model that is frozen while another is trained.
        let next = &rest[..rest.len().min(3)];
        if is_reference(&still) || next.iter().any(|later| freezes(later, &still)) {
            return false;
        }
        // After a backward pass in the same block, the rest belongs to the step.
        if before.iter().any(goes_back) && !rest.iter().any(is_without_graph) {
            return false;
        }
        // Gradients without a loop over data: adversarial examples for the calling step.
        if self.asks_for_gradients(rest) && !goes_over_data(rest) {
            return false;
        }
        // Cleanup at the end of a step: nothing is evaluated any more.
        let ends = matches!(rest, [Stmt::Return(last)] if last.value.as_deref().is_none_or(only_reads));
        !ends && !rest.iter().any(|later| calls(later, Role::TrainMethod))
    }
}

impl Interpreter<'_, '_> {
    fn asks_for_gradients(&self, statements: &[Stmt]) -> bool {
        let is_function = self.program.symbol(self.function).definition.is_some();
        let text = self.program.sources.files[self.file()].slice(range_of(statements));
        is_function && Role::GradientText.fits(text)
    }
}

/// `model` in the statement `model.train()`.
fn called_without_arguments(statement: &Stmt, role: Role) -> Option<String> {
    let call = called_by(statement)?;
    let (owner, method) = method_of(call)?;
    let is_meant = role.fits(method) && call.arguments.is_empty();
    is_meant.then(|| dotted_name(owner).unwrap_or_default())
}

/// `loss.item()`, `a.detach().cpu(), b`: only passes values on, computes nothing.
fn only_reads(expression: &Expr) -> bool {
    match expression {
        Expr::Call(call) => {
            method_of(call).is_some_and(|(owner, method)| Role::OnlyReads.fits(method) && only_reads(owner))
        }
        Expr::Tuple(tuple) => tuple.elts.iter().all(only_reads),
        Expr::Dict(dict) => dict.items.iter().all(|item| only_reads(&item.value)),
        Expr::Attribute(_) | Expr::Name(_) | Expr::StringLiteral(_) | Expr::NumberLiteral(_) => true,
        _ => false,
    }
}

/// Whether the name says that the model is not the one being trained.
fn is_reference(name: &str) -> bool {
    Role::Reference.fits(&name.rsplit('.').next().unwrap_or_default().to_ascii_lowercase())
}

/// `model.requires_grad_(False)`, `for p in model.parameters(): p.requires_grad = False`.
fn freezes(statement: &Stmt, model: &str) -> bool {
    let of_model = |call: &ExprCall, is_meant: &dyn Fn(&str) -> bool| {
        method_of(call).is_some_and(|(owner, method)| is_meant(method) && dotted_name(owner).as_deref() == Some(model))
    };
    let Stmt::For(repeat) = statement else {
        return called_by(statement).is_some_and(|call| of_model(call, &|method| Role::Freezes.fits(method)));
    };
    let is_flag = |target: &ExprAttribute| Role::GradientFlag.fits(target.attr.as_str());
    let sets_flag = |target: &Expr| target.as_attribute_expr().is_some_and(is_flag);
    let sets = |inner: &Stmt| inner.as_assign_stmt().is_some_and(|assign| assign.targets.iter().any(sets_flag));
    let is_parameters = |method: &str| Owner::Module.effect(method) == Effect::Parameters;
    repeat.iter.as_call_expr().is_some_and(|call| of_model(call, &is_parameters)) && repeat.body.iter().any(sets)
}

/// `with torch.no_grad():`
fn is_without_graph(statement: &Stmt) -> bool {
    let Stmt::With(with) = statement else { return false };
    let mut names = with.items.iter().filter_map(|item| called_name(&item.context_expr));
    names.any(|name| Role::GraphOff.fits(name))
}

/// A backward pass in the block itself or in a branch of it, but not in an inner loop.
fn goes_back(statement: &Stmt) -> bool {
    match statement {
        Stmt::Expr(_) => {
            called_by(statement).and_then(method_of).is_some_and(|(_, method)| Role::Backward.fits(method))
        }
        Stmt::If(branch) => {
            let others = branch.elif_else_clauses.iter().flat_map(|clause| &clause.body);
            branch.body.iter().chain(others).any(goes_back)
        }
        Stmt::With(with) => with.body.iter().any(goes_back),
        _ => false,
    }
}
