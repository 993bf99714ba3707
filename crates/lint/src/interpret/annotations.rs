//! Facts that an annotation states about a value: `node: Node`, `nodes: List[Node]`, `masks: dict[str, Tensor]`.

use super::*;

impl Interpreter<'_, '_> {
    /// The value an annotation describes, including classes of the given files and containers of them.
    pub(super) fn annotated(&self, annotation: Option<&Expr>) -> Option<Value> {
        self.by_annotation(annotation?, 3)
    }

    fn by_annotation(&self, annotation: &Expr, depth: usize) -> Option<Value> {
        match annotation {
            Expr::Name(_) | Expr::Attribute(_) => {
                let name = last_name(annotation)?;
                let known = Owner::Annotation.effect(name).value();
                known.or_else(|| annotation.is_name_expr().then(|| self.of_class(name)).flatten())
            }
            // `"Node"`: a class defined further down.
            Expr::StringLiteral(text) => {
                let name = text.value.to_str();
                Owner::Annotation.effect(name).value().or_else(|| self.of_class(name))
            }
            Expr::BinOp(union) if union.op == Operator::BitOr && union.right.is_none_literal_expr() => {
                self.by_annotation(&union.left, depth)
            }
            Expr::Subscript(subscript) if depth > 0 => {
                let inner = |expression: &Expr| self.by_annotation(expression, depth - 1);
                match (Owner::Annotation.effect(last_name(&subscript.value)?), &*subscript.slice) {
                    (Effect::First, inside) => inner(inside),
                    (Effect::Collects, inside) => Some(Value::list(inner(inside)?)),
                    (Effect::Dictionary, Expr::Tuple(pair)) => {
                        Some(Value::dict(Entries::new(), inner(pair.elts.get(1)?)?))
                    }
                    _ => None,
                }
            }
            _ => None,
        }
    }

    fn of_class(&self, name: &str) -> Option<Value> {
        match self.global_value(self.file(), name) {
            Value::Class(class) => Some(self.instance(class)),
            _ => None,
        }
    }
}
