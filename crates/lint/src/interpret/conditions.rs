//! Conditions: values whose truth is tested, in evaluation order.

use super::*;

impl<'p, 'a> Interpreter<'p, 'a> {
    /// Evaluates a condition and records every value whose truth it needs.
    pub(super) fn test(&mut self, expression: &'a Expr) -> Value {
        match expression {
            Expr::BoolOp(operation) => self.in_order(operation.op, &operation.values, Self::test),
            Expr::UnaryOp(operation) if operation.op == UnaryOp::Not => {
                self.test(&operation.operand);
                Value::Bool(None)
            }
            _ => {
                let value = self.evaluate(expression);
                if let Some(statement) = self.noted() {
                    let test = Look { expression, statement, context: self.context, value: value.clone() };
                    self.program.notes.tests.push(test);
                }
                value
            }
        }
    }

    /// `step % 100 == 0 and torch.isnan(loss)`: later operands are reached only where the first one holds. The last
    /// operand is returned as it is, and tested where the whole expression is.
    pub(super) fn in_order(
        &mut self,
        operator: BoolOp,
        values: &'a [Expr],
        last: fn(&mut Self, &'a Expr) -> Value,
    ) -> Value {
        let (first, rest) = match values {
            [] => return Value::Unknown,
            [only] => return last(self, only),
            [first, rest @ ..] => (first, rest),
        };
        let value = self.test(first);
        let branches = self.quietly(|quiet| quiet.classify(first, &[]));
        let guard = match operator {
            BoolOp::And => branches.when_true,
            BoolOp::Or => branches.when_false,
        };
        // `best is None or loss < best`: the rest is evaluated whenever there is something to compare.
        let guard = if guard == Guard::Open && asks_for_nothing(first) { Guard::Taken } else { guard };
        let range = TextRange::new(rest[0].start(), rest[rest.len() - 1].end());
        let narrowed = asked_for_another_type(first).filter(|_| operator == BoolOp::And);
        let before = narrowed.and_then(|name| self.names.insert(name, Value::Unknown));
        let other = self.within(Frame::Guard(guard), range, |inside| inside.in_order(operator, rest, last));
        if let (Some(name), Some(before)) = (narrowed, before) {
            self.names.insert(name, before);
        }
        match (value, other) {
            // `wanted and step % 100 == 0` bound to a name stays a cadence.
            (Value::Cadence, _) | (_, Value::Cadence) => Value::Cadence,
            (value, other) => value.join(&other).reading(),
        }
    }
}

/// `x` in `isinstance(x, torch.Tensor)` and `torch.is_tensor(x)`.
pub(super) fn asked_for_tensor(test: &Expr) -> Option<&str> {
    let Expr::Call(call) = test else { return None };
    let Some(Expr::Name(asked)) = call.arguments.args.first() else { return None };
    let named = |expression: &Expr| names_in(expression).first().is_some_and(|name| Role::TensorType.fits(name));
    let is_asked = match (&*call.func, call.arguments.args.get(1)) {
        (Expr::Name(function), Some(types)) => Role::AsksType.fits(function.id.as_str()) && named(types),
        (Expr::Attribute(function), None) => Role::AsksTensor.fits(function.attr.as_str()),
        _ => false,
    };
    is_asked.then(|| asked.id.as_str())
}

/// `x` in `isinstance(x, tuple)`: the code after it handles something other than a tensor.
fn asked_for_another_type(test: &Expr) -> Option<&str> {
    let Expr::Call(call) = test else { return None };
    let ([Expr::Name(asked), types], Expr::Name(function)) = (&*call.arguments.args, &*call.func) else { return None };
    let is_tensor = names_in(types).iter().any(|name| Role::AnyTensorType.fits(name));
    (Role::AsksType.fits(function.id.as_str()) && !is_tensor).then(|| asked.id.as_str())
}

fn asks_for_nothing(test: &Expr) -> bool {
    matches!(test, Expr::Compare(compare) if compare.comparators.iter().all(Expr::is_none_literal_expr))
}
