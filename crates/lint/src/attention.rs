//! Evidence that hand-written attention compares every position with every other, so that it costs sequence length
//! squared.

use rustc_hash::FxHashSet;

use ruff_python_ast::visitor::{Visitor, walk_expr};
use ruff_python_ast::{Expr, ExprCall, Operator, Stmt, UnaryOp};
use ruff_text_size::{Ranged, TextRange};

use super::effects::{Effect, Owner};
use super::program::{Product, Program};
use super::settings::literal;
use super::symbols::FunctionId;
use super::syntax::{each_expression, last_name, name_of};
use super::uses::uses_of;
use super::vocabulary::Role;

/// Whether queries and keys derive from the same input, position by position. Where they do not, the number of queries
/// is unknown: one for a pooling layer, a few for a resampler.
pub fn is_of_length_squared(program: &Program, product: &Product) -> bool {
    let function = program.function_at(product.context);
    let Some((queries, keys)) = operands(program, function, product.weights) else { return false };
    let (queries, keys) = (Derivation::of(program, function, queries), Derivation::of(program, function, keys));
    let is_plain = !queries.is_odd && !keys.is_odd && (!queries.ends_open || queries.is_moved);
    let is_one = queries.inputs.len() == 1 && keys.inputs.len() == 1;
    // `forward(q, k, v)`: the projections are elsewhere, and this function does nothing else to the inputs.
    let is_handed = !queries.is_bound && !keys.is_bound;
    is_plain && is_one && (is_handed || queries.inputs == keys.inputs)
}

/// `q @ k.transpose(-2, -1)`, `torch.matmul(q, k.mT)`, `torch.einsum("…", q, k)`: the operands of the first product
/// within `range`.
fn operands<'a>(program: &Program<'a>, function: FunctionId, range: TextRange) -> Option<(&'a Expr, &'a Expr)> {
    let mut found = None;
    each_expression(program.symbol(function).body, |expression| {
        if found.is_none() && range.contains_range(expression.range()) && is_product(expression) {
            found = Some(expression);
        }
    });
    match found? {
        Expr::BinOp(operation) => Some((&operation.left, &operation.right)),
        Expr::Call(call) => {
            let mut tensors = call.arguments.args.iter().filter(|argument| !argument.is_string_literal_expr());
            match (tensors.next(), tensors.next(), &*call.func) {
                (Some(left), Some(right), _) => Some((left, right)),
                (Some(right), None, Expr::Attribute(method)) => Some((&method.value, right)),
                _ => None,
            }
        }
        _ => None,
    }
}

fn is_product(expression: &Expr) -> bool {
    match expression {
        Expr::BinOp(operation) => operation.op == Operator::MatMult,
        Expr::Call(call) => last_name(&call.func).is_some_and(|name| Role::ProductFunction.fits(name)),
        _ => false,
    }
}

/// The input that a value derives from, and the operations applied on the way.
#[derive(Default)]
struct Derivation<'a> {
    /// Parameters of the function.
    inputs: FxHashSet<&'a str>,
    /// Computed in the function, not only passed in.
    is_bound: bool,
    /// One position alone, channels in place of positions, windows, or parts of unequal size.
    is_odd: bool,
    /// `.view(b, c, -1)`: positions come last, unless they are moved.
    ends_open: bool,
    is_moved: bool,
}

/// At most this many names are followed through assignments.
const MOST_NAMES: usize = 24;

impl<'a> Derivation<'a> {
    fn of(program: &Program<'a>, function: FunctionId, value: &'a Expr) -> Derivation<'a> {
        let Some(definition) = program.symbol(function).definition else {
            return Derivation::default();
        };
        let mut derivation = Derivation::default();
        let (mut open, mut seen) = (vec![value], FxHashSet::default());
        while let Some(expression) = open.pop() {
            let mut parts = Parts::default();
            parts.visit_expr(expression);
            for call in parts.calls {
                // The keys' own transposition belongs to the product.
                derivation.look_at(call, std::ptr::eq(expression, value));
            }
            let mut firsts = parts.firsts.into_iter().filter_map(name_of);
            derivation.is_odd |= firsts.any(|name| definition.parameters.includes(name));
            for name in parts.names {
                if !seen.insert(name) || seen.len() > MOST_NAMES {
                    continue;
                }
                let uses = uses_of(program, function, name).into_iter();
                let stored = uses.filter(|one| one.is_store && one.expression.start() < value.start());
                let values: Vec<&Expr> = stored.filter_map(|one| value_for(one.statement, name)).collect();
                if definition.parameters.includes(name) && !Role::FirstParameter.fits(name) {
                    derivation.inputs.insert(name);
                }
                derivation.is_bound |= !values.is_empty();
                open.extend(values);
            }
        }
        derivation
    }

    fn look_at(&mut self, call: &ExprCall, is_operand: bool) {
        let Expr::Attribute(method) = &*call.func else { return };
        let arguments: Vec<Option<i64>> = call.arguments.args.iter().map(whole_number).collect();
        match Owner::Reshaping.effect(method.attr.as_str()) {
            Effect::Transposes if !is_operand => {
                self.is_odd |= matches!(*arguments, [Some(-2), Some(-1)] | [Some(-1), Some(-2)]);
                self.is_moved = true;
            }
            Effect::Permutes if !is_operand => {
                let last = arguments.last().copied().flatten();
                let moves_last = last.is_some_and(|last| last >= 0 && last + 1 != arguments.len() as i64);
                // Three axes mean a feature map, whose positions were last.
                self.is_odd |= moves_last && arguments.len() > 3 || arguments.len() > 5;
                self.is_moved = true;
            }
            Effect::Permutes => self.is_moved = true,
            Effect::Reshapes => self.ends_open |= arguments.last() == Some(&Some(-1)) && arguments.len() == 3,
            Effect::Splits => {
                let sizes = call.arguments.args.first().and_then(Expr::as_list_expr);
                let differ = |pair: &[Expr]| super::names_in(&pair[0]) != super::names_in(&pair[1]);
                self.is_odd |= sizes.is_some_and(|sizes| sizes.elts.windows(2).any(differ));
            }
            Effect::Reduces => self.is_odd = true,
            _ => {}
        }
    }
}

/// The value that a statement binds a name to: the matching element where both sides are tuples.
fn value_for<'a>(statement: &'a Stmt, name: &str) -> Option<&'a Expr> {
    let Stmt::Assign(assign) = statement else { return None };
    match (assign.targets.first()?, &*assign.value) {
        (Expr::Tuple(targets), Expr::Tuple(values)) if targets.elts.len() == values.elts.len() => targets
            .elts
            .iter()
            .zip(&values.elts)
            .find(|(target, _)| name_of(target) == Some(name))
            .map(|(_, value)| value),
        // `B, N, C = x.shape` says nothing about the contents.
        (_, value) if is_shape(value) => None,
        (_, value) => Some(value),
    }
}

fn is_shape(value: &Expr) -> bool {
    match value {
        Expr::Attribute(shape) => Owner::TensorAttribute.effect(shape.attr.as_str()) == Effect::SizeList,
        Expr::Call(call) => matches!(&*call.func, Expr::Attribute(method)
            if Owner::Tensor.effect(method.attr.as_str()) == Effect::Sizes),
        Expr::Subscript(subscript) => is_shape(&subscript.value),
        _ => false,
    }
}

fn whole_number(expression: &Expr) -> Option<i64> {
    match expression {
        Expr::NumberLiteral(_) => literal(expression).known_integer(),
        Expr::UnaryOp(operation) if operation.op == UnaryOp::USub => whole_number(&operation.operand).map(|one| -one),
        _ => None,
    }
}

/// Names and method calls in an expression, without sizes, and the values whose first position is taken.
#[derive(Default)]
struct Parts<'a> {
    names: Vec<&'a str>,
    calls: Vec<&'a ExprCall>,
    firsts: Vec<&'a Expr>,
}

impl<'a> Visitor<'a> for Parts<'a> {
    fn visit_expr(&mut self, expression: &'a Expr) {
        match expression {
            Expr::Name(name) => self.names.push(name.id.as_str()),
            _ if is_shape(expression) => return,
            Expr::Call(call) => {
                self.calls.push(call);
                if let Expr::Attribute(method) = &*call.func
                    && Role::TakesAxes.fits(method.attr.as_str())
                {
                    // Their arguments are sizes.
                    self.visit_expr(&method.value);
                    return;
                }
            }
            // `x[:, 0]`, `x[:, :1]`
            Expr::Subscript(subscript) => {
                if let Expr::Tuple(index) = &*subscript.slice
                    && index.elts.get(1).is_some_and(is_first)
                {
                    self.firsts.push(&subscript.value);
                }
                self.visit_expr(&subscript.value);
                return;
            }
            _ => {}
        }
        walk_expr(self, expression);
    }
}

fn is_first(index: &Expr) -> bool {
    match index {
        Expr::Slice(slice) => slice.upper.as_deref().and_then(whole_number) == Some(1),
        other => whole_number(other).is_some(),
    }
}
