//! Facts that an annotation states about a value: `node: Node`, `nodes: List[Node]`, `masks: dict[str, Tensor]`.

use ruff_python_ast::{Expr, Operator};

use super::Interpreter;
use super::names;
use crate::value::Value;

impl Interpreter<'_, '_> {
    /// The value an annotation describes, including classes of the given files and containers of them.
    pub(super) fn annotated(&self, annotation: Option<&Expr>) -> Option<Value> {
        self.by_annotation(annotation?, 3)
    }

    fn by_annotation(&self, annotation: &Expr, depth: usize) -> Option<Value> {
        if let Some(known) = names::by_annotation(Some(annotation)) {
            return Some(known);
        }
        match annotation {
            Expr::Name(name) => self.of_class(name.id.as_str()),
            // `"Node"`: a class defined further down.
            Expr::StringLiteral(text) => self.of_class(text.value.to_str()),
            Expr::BinOp(union) if union.op == Operator::BitOr && union.right.is_none_literal_expr() => {
                self.by_annotation(&union.left, depth)
            }
            Expr::Subscript(subscript) if depth > 0 => {
                let outer = match &*subscript.value {
                    Expr::Name(name) => name.id.as_str(),
                    Expr::Attribute(attribute) => attribute.attr.as_str(),
                    _ => return None,
                };
                let inner = |expression: &Expr| self.by_annotation(expression, depth - 1);
                match (outer, &*subscript.slice) {
                    ("Optional", inside) => inner(inside),
                    ("List" | "list" | "Sequence" | "Iterable" | "Set" | "set" | "Iterator" | "Collection", inside) => {
                        Some(Value::list(inner(inside)?))
                    }
                    ("Dict" | "dict" | "Mapping" | "OrderedDict" | "defaultdict", Expr::Tuple(pair)) => {
                        Some(Value::dict(Vec::new(), inner(pair.elts.get(1)?)?))
                    }
                    _ => None,
                }
            }
            _ => None,
        }
    }

    fn of_class(&self, name: &str) -> Option<Value> {
        match self.global_value(self.file(), name) {
            Value::Class(class) if self.program.sources.classes[class].kind.is_module() => {
                Some(Value::Model(Some(class)))
            }
            Value::Class(class) => Some(Value::Instance(class)),
            _ => None,
        }
    }
}
