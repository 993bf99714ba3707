//! Values a backward pass starts from: losses on the device, however they were computed.

use super::*;

impl<'p, 'a> Interpreter<'p, 'a> {
    /// `loss.backward()`, `accelerator.backward(loss)`, `scaler.scale(loss / n).backward()`: the loss is a tensor with
    /// a graph. Its name is remembered, so that the next round knows it from its assignment on.
    pub(super) fn note_trained(&mut self, node: &'a ExprCall) {
        match (node.arguments.args.first(), &*node.func) {
            (Some(loss), _) => self.mark_trained(loss),
            (None, Expr::Attribute(method)) => self.mark_trained(&method.value),
            _ => {}
        }
    }

    fn mark_trained(&mut self, expression: &'a Expr) {
        match expression {
            Expr::Name(name) => {
                let name = name.id.as_str();
                self.outcome.trained.insert(name);
                if self.named(name) == Some(Value::Unknown) {
                    self.names.insert(name, Value::DEVICE_WITH_GRAPH);
                }
            }
            Expr::Attribute(attribute) => {
                if let Some(class) = self.class_of(&attribute.value) {
                    let name = attribute.attr.as_str();
                    self.depends_on(Fact::attribute(class, name));
                    let known = self.program.sources.classes[class].attributes.get(name);
                    // Its own mark does not take it back.
                    if known.is_none_or(|known| [Value::Unknown, Value::DEVICE_WITH_GRAPH].contains(known)) {
                        self.outcome.store(class, name, Value::DEVICE_WITH_GRAPH);
                    }
                }
            }
            // `losses["total"].backward()`: a dictionary of losses is treated like a loss.
            Expr::Subscript(subscript) => self.mark_trained(&subscript.value),
            Expr::BinOp(operation) => {
                self.mark_trained(&operation.left);
                if matches!(operation.op, Operator::Add | Operator::Sub) {
                    self.mark_trained(&operation.right);
                }
            }
            Expr::Call(call) => match (&*call.func, call.arguments.args.first()) {
                (Expr::Attribute(method), Some(loss)) if Role::Scales.fits(method.attr.as_str()) => {
                    self.mark_trained(loss)
                }
                (Expr::Attribute(method), _) if Role::Averages.fits(method.attr.as_str()) => {
                    self.mark_trained(&method.value);
                }
                _ => {}
            },
            _ => {}
        }
    }

    /// The value bound to a name; where it is unknown, a guess from the name.
    pub(super) fn bound_to(&self, name: &str, value: Value) -> Value {
        // Most values are what they are, whatever their name.
        if !matches!(value, Value::Tensor(_) | Value::Unknown | Value::OneOf(_) | Value::Argument { .. }) {
            return value;
        }
        match value.clone().reading() {
            // `model, state, step = load(…)`: a step counter is a number, whatever it was packed with.
            Value::Tensor(_) if is_counter(name) => Value::NUMBER,
            Value::Unknown if self.program.functions[self.function].trained.contains(name) => Value::DEVICE_WITH_GRAPH,
            Value::Unknown => match names::by_name(name) {
                Value::Number { .. } | Value::Unknown => value,
                guess => guess,
            },
            _ => value,
        }
    }
}

fn is_counter(name: &str) -> bool {
    let counted = Role::CounterBegin.rest_of(name);
    Role::StepNumber.fits(name) || counted.is_some_and(|rest| Role::Counted.fits(rest))
}
