//! Branches that fill the cache they test: they run once, however often the test does.

use super::*;

/// A branch that fills the cache it tests: `if self.mask is None: self.mask = …`, `if first: first = False`. A local
/// name is a cache only where a loop keeps it from one iteration to the next.
pub(super) fn fills_tested_cache(test: &Expr, body: &[Stmt], in_loop: bool) -> bool {
    let filled: Vec<String> = body.iter().flat_map(stored_names).collect();
    let keeps = |name: &String| name.contains('.') || in_loop || is_flag_flip(body, name);
    let asked = asked_names(test);
    asked.iter().any(|asked| filled.contains(asked) && keeps(asked)) || keeps_what_it_makes(&asked, &filled, body)
}

/// `cached = self.cache.get(key)`, then `if cached is None: cached = …; self.cache[key] = cached`.
fn keeps_what_it_makes(asked: &[String], filled: &[String], body: &[Stmt]) -> bool {
    let is_made = asked.iter().any(|asked| !asked.contains('.') && filled.contains(asked));
    is_made
        && body.iter().any(|statement| {
            matches!(statement, Stmt::Assign(assign) if assign.targets.iter().any(|target| matches!(target, Expr::Subscript(_)))
                && dotted_name(&assign.value).is_some_and(|kept| asked.contains(&kept)))
        })
}

/// `if self.mask is not None and …: return self.mask` before the code that builds and stores a mask, which then runs
/// once.
pub(super) fn returns_cache_filled_below(branch: &StmtIf, rest: &[Stmt]) -> bool {
    // `if self.table is not None:`, and inside `if self.table.size(0) >= n: …; return`.
    let returns = match branch.body.as_slice() {
        [Stmt::Return(_)] => true,
        [Stmt::If(inner)] => inner.elif_else_clauses.is_empty() && matches!(inner.body.last(), Some(Stmt::Return(_))),
        _ => false,
    };
    if !returns {
        return false;
    }
    let found = match &*branch.test {
        Expr::BoolOp(operation) => operation.values.iter().collect(),
        test => vec![test],
    };
    let is_there = |part: &Expr| match part {
        Expr::Compare(compare) => match (&*compare.ops, &*compare.comparators) {
            ([CmpOp::IsNot], [Expr::NoneLiteral(_)]) => dotted_name(&compare.left),
            ([CmpOp::In], [cache]) => dotted_name(cache),
            _ => None,
        },
        Expr::Call(call) => has_attribute_of(call)
            .or_else(|| call.arguments.args.first().and_then(dotted_name))
            .filter(|_| matches!(&*call.func, Expr::Name(name) if Role::AsksPresence.fits(name.id.as_str()))),
        _ => None,
    };
    let asked: Vec<String> = found.into_iter().filter_map(is_there).filter(|name| name.contains('.')).collect();
    branch.elif_else_clauses.is_empty()
        && !asked.is_empty()
        && rest.iter().flat_map(stored_names).any(|kept| asked.contains(&kept))
}

/// `if seen >= next_report: …; next_report += every` and `if waited > every: …; waited = 0`: true now and then, since
/// the branch itself resets the condition.
pub(super) fn resets_own_counter(test: &Expr, body: &[Stmt]) -> bool {
    let Expr::Compare(compare) = test else { return false };
    let ([CmpOp::Gt | CmpOp::GtE | CmpOp::Eq], [right]) = (&*compare.ops, &*compare.comparators) else { return false };
    let (left, right) = (dotted_name(&compare.left), dotted_name(right));
    body.iter().any(|statement| match statement {
        Stmt::AugAssign(assign) => right.is_some() && dotted_name(&assign.target) == right,
        Stmt::Assign(assign) => {
            let is_zero = literal(&assign.value).known_integer() == Some(0);
            is_zero && left.is_some() && assign.targets.iter().any(|target| dotted_name(target) == left)
        }
        _ => false,
    })
}

/// Names that the test checks for absence, emptiness, size or truth.
fn asked_names(test: &Expr) -> Vec<String> {
    let named = |part: &Expr| match part {
        Expr::Call(call) => has_attribute_of(call),
        other => dotted_name(other),
    };
    match test {
        Expr::UnaryOp(operation) if operation.op == UnaryOp::Not => Vec::from_iter(named(&operation.operand)),
        Expr::BoolOp(operation) => operation.values.iter().flat_map(asked_names).collect(),
        Expr::Compare(compare) => match (&*compare.ops, &*compare.comparators) {
            ([CmpOp::Is], [Expr::NoneLiteral(_)]) => Vec::from_iter(named(&compare.left)),
            ([CmpOp::NotIn], [right]) => Vec::from_iter(dotted_name(right)),
            (_, [right]) => {
                let sides = [&*compare.left, right].into_iter();
                sides.flat_map(|side| [size_owner(side), cached_number(side)]).flatten().collect()
            }
            _ => Vec::new(),
        },
        _ => Vec::from_iter(dotted_name(test)),
    }
}

/// `hasattr(self, "mask")`, `getattr(self, "mask", None)` as `self.mask`.
fn has_attribute_of(call: &ExprCall) -> Option<String> {
    let (Expr::Name(name), [owner, attribute, ..]) = (&*call.func, &*call.arguments.args) else { return None };
    if !Role::NamesAttribute.fits(name.id.as_str()) {
        return None;
    }
    Some(format!("{}.{}", dotted_name(owner)?, text_of(attribute)?))
}

/// `self.mask` in `self.mask.size(0)`, `self.mask.shape[0]`, `len(self.mask)`.
fn size_owner(expression: &Expr) -> Option<String> {
    match expression {
        Expr::Subscript(subscript) => size_owner(&subscript.value),
        Expr::Attribute(attribute) if Role::Described.fits(attribute.attr.as_str()) => cached_number(&attribute.value),
        Expr::Call(call) => match &*call.func {
            Expr::Attribute(attribute) if Role::Measured.fits(attribute.attr.as_str()) => {
                cached_number(&attribute.value)
            }
            Expr::Name(name) if Owner::Builtin.effect(name.id.as_str()) == Effect::Size => {
                dotted_name(call.arguments.args.first()?)
            }
            _ => None,
        },
        _ => None,
    }
}

/// `self.max_seq_cached` in `seq_len > self.max_seq_cached`.
fn cached_number(expression: &Expr) -> Option<String> {
    dotted_name(expression).filter(|name| Role::OfSelf.fits(name))
}

/// `first = False`.
fn is_flag_flip(body: &[Stmt], name: &str) -> bool {
    body.iter().any(|statement| {
        matches!(statement, Stmt::Assign(assign) if matches!(&*assign.value, Expr::BooleanLiteral(_))
            && assign.targets.iter().any(|target| dotted_name(target).as_deref() == Some(name)))
    })
}

fn stored_names(statement: &Stmt) -> Vec<String> {
    let of_target = |target: &Expr| match target {
        Expr::Subscript(subscript) => dotted_name(&subscript.value),
        other => dotted_name(other),
    };
    match statement {
        Stmt::Assign(assign) => {
            let parts = assign.targets.iter().flat_map(|target| match target {
                Expr::Tuple(targets) => targets.elts.as_slice(),
                other => std::slice::from_ref(other),
            });
            parts.filter_map(of_target).collect()
        }
        Stmt::AnnAssign(assign) => of_target(&assign.target).into_iter().collect(),
        Stmt::Expr(_) => {
            let registers = |call: &&ExprCall| {
                method_of(call).is_some_and(|(_, name)| Owner::Module.effect(name) == Effect::RegistersBuffer)
            };
            let buffer = called_by(statement).filter(registers).and_then(|call| call.arguments.args.first());
            buffer.and_then(text_of).map(|name| format!("self.{name}")).into_iter().collect()
        }
        Stmt::If(branch) => branch.body.iter().flat_map(stored_names).collect(),
        Stmt::With(block) => block.body.iter().flat_map(stored_names).collect(),
        _ => Vec::new(),
    }
}
