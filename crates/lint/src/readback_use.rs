//! Determines why the host reads a value back, and so whether the read could be deferred.

use ruff_python_ast::{Expr, ExprCall, Stmt};
use ruff_text_size::{Ranged, TextRange};

pub use super::asked::ReadbackUse;
use super::context::Frame;
use super::program::{Call, Program};
use super::reads::asks_for_type;
use super::settings::literal;
use super::symbols::FunctionId;
use super::syntax::{around, called_by, keyword_of, last_name};
use super::uses::uses_of;
use super::vocabulary::Role;

/// Names are followed this deep through assignments and returns.
const MOST_NAMES_DEEP: usize = 3;
const MOST_CALLERS: usize = 8;

/// Why the value at `range`, a part of `statement`, is read.
pub fn readback_use(program: &Program, function: FunctionId, statement: &Stmt, range: TextRange) -> ReadbackUse {
    of_part(program, function, statement, range, MOST_NAMES_DEEP)
}

fn of_part(program: &Program, function: FunctionId, statement: &Stmt, range: TextRange, deep: usize) -> ReadbackUse {
    match statement {
        Stmt::Raise(_) => return ReadbackUse::Guard,
        Stmt::Assert(assert) if assert.test.range().contains_range(range) => {
            return if asks_for_numbers(&assert.test) { ReadbackUse::Finite } else { ReadbackUse::Guard };
        }
        // Its type was tested before it was read.
        Stmt::If(branch) if branch.test.range().contains_range(range) && asks_for_type(&branch.test) => {
            return ReadbackUse::Finite;
        }
        Stmt::If(branch) if branch.test.range().contains_range(range) => return of_branch(&branch.test, &branch.body),
        Stmt::If(branch) => {
            let clause = branch.elif_else_clauses.iter().find_map(|clause| {
                let test = clause.test.as_ref().filter(|test| test.range().contains_range(range))?;
                Some(of_branch(test, &clause.body))
            });
            return clause.unwrap_or(ReadbackUse::Other);
        }
        Stmt::While(_) | Stmt::For(_) => return ReadbackUse::Needed,
        _ => {}
    }
    let mut around = around(statement, range);
    around.retain(|outer| outer.range() != range);
    // From the inside out: the first expression with an answer decides.
    for (index, expression) in around.iter().enumerate().rev() {
        let inner = around.get(index + 1).map_or(range, |inner| inner.range());
        if let Some(found) = of_surroundings(program, function, expression, inner) {
            return found;
        }
    }
    match statement {
        Stmt::Assign(assign) => match assign.targets.as_slice() {
            [target] => of_target(program, function, statement, target, deep),
            _ => ReadbackUse::Other,
        },
        Stmt::AnnAssign(assign) => of_target(program, function, statement, &assign.target, deep),
        Stmt::AugAssign(assign) => of_target(program, function, statement, &assign.target, deep),
        Stmt::Return(_) => of_result(program, function, deep),
        _ => ReadbackUse::Other,
    }
}

/// The use that an expression around the read gives it, or `None` to look further out.
fn of_surroundings(
    program: &Program,
    function: FunctionId,
    expression: &Expr,
    inner: TextRange,
) -> Option<ReadbackUse> {
    match expression {
        Expr::Subscript(subscript) if subscript.slice.range().contains_range(inner) => {
            let file = program.symbol(function).file;
            let mut noted = program.subscripts_in(file).filter(|noted| noted.node.range() == subscript.range());
            let is_place = subscript.slice.is_slice_expr() || subscript.slice.is_tuple_expr();
            let of_tensor = noted.any(|noted| noted.base.tensor().is_some());
            Some(if is_place || of_tensor { ReadbackUse::Needed } else { ReadbackUse::Key })
        }
        Expr::Slice(_) => Some(ReadbackUse::Needed),
        Expr::FString(_) | Expr::Dict(_) => Some(ReadbackUse::Log),
        Expr::If(choice) if choice.test.range().contains_range(inner) => {
            let leaves_out = choice.body.is_none_literal_expr() || choice.orelse.is_none_literal_expr();
            Some(if leaves_out { ReadbackUse::Needed } else { ReadbackUse::Skip })
        }
        Expr::Call(call) if call.arguments.range.contains_range(inner) => of_argument(call, inner),
        _ => None,
    }
}

fn of_argument(call: &ExprCall, inner: TextRange) -> Option<ReadbackUse> {
    let name = last_name(&call.func).unwrap_or_default();
    // `losses.append(x)` and `meter.update(x)` store it; `math.log(x)` passes it on.
    if Role::Stores.fits(name) || is_logging_call(call, name, inner) {
        return Some(ReadbackUse::Log);
    }
    if Role::HandsOn.fits(name) { None } else { Some(ReadbackUse::Other) }
}

/// Whether the call records its arguments, by its name or its owner's.
fn is_logging_call(call: &ExprCall, name: &str, inner: TextRange) -> bool {
    let lower = name.to_ascii_lowercase();
    let owner = match &*call.func {
        Expr::Attribute(attribute) => super::names_in(&attribute.value).first().copied().unwrap_or_default(),
        _ => "",
    };
    let is_mathematics = Role::Mathematics.fits(owner);
    let loss = keyword_of(call, Role::LossOption.word());
    let is_named = loss.is_some_and(|loss| loss.range().contains_range(inner));
    !is_mathematics && Role::Records.fits(&lower) || is_named && Role::Posts.fits(&lower)
}

fn of_target(program: &Program, function: FunctionId, statement: &Stmt, target: &Expr, deep: usize) -> ReadbackUse {
    match target {
        // Names that depend on each other would ask for each other repeatedly.
        Expr::Name(name) => program
            .asked
            .readback_uses
            .of((function, name.range(), deep), || of_name(program, function, statement, name.id.as_str(), deep)),
        // `logs["loss"] = …`
        Expr::Subscript(subscript) => match &*subscript.slice {
            Expr::StringLiteral(_) | Expr::FString(_) | Expr::Name(_) | Expr::BinOp(_) => ReadbackUse::Log,
            _ => ReadbackUse::Other,
        },
        Expr::Attribute(attribute) if counts(attribute.attr.as_str()) => ReadbackUse::Needed,
        Expr::Attribute(_) => ReadbackUse::Log,
        Expr::Tuple(tuple) => {
            let uses = tuple.elts.iter().map(|target| of_target(program, function, statement, target, deep));
            uses.max().unwrap_or(ReadbackUse::Other)
        }
        _ => ReadbackUse::Other,
    }
}

/// The use of a name, from all later lines that read it: the use that is hardest to defer decides.
fn of_name(program: &Program, function: FunctionId, statement: &Stmt, name: &str, deep: usize) -> ReadbackUse {
    if deep == 0 {
        return ReadbackUse::Other;
    }
    let uses = uses_of(program, function, name);
    let reads = uses.iter().filter(|one| !one.is_store && !statement.range().contains_range(one.expression.range()));
    // Earlier lines are reached again only through a loop around both.
    let mut contexts = program.contexts_of(function);
    let is_repeated = contexts
        .any(|(_, around)| matches!(around.frame, Frame::Loop(_)) && around.range.contains_range(statement.range()));
    let reads = reads.filter(|one| is_repeated || one.expression.start() > statement.start());
    // `total += x` reads itself.
    let reads = reads
        .filter(|one| !matches!(one.statement, Stmt::AugAssign(sum) if sum.target.range() == one.expression.range()));
    let uses = reads.map(|one| of_part(program, function, one.statement, one.expression.range(), deep - 1));
    uses.max().unwrap_or(ReadbackUse::Log)
}

/// The use of a number that a function returns: from its callers' use of it, else from the function's name.
fn of_result(program: &Program, function: FunctionId, deep: usize) -> ReadbackUse {
    if deep == 0 {
        return ReadbackUse::Other;
    }
    let of_caller = |call: &Call| {
        let caller = program.function_at(call.context);
        // An unused result could have stayed on the device.
        if matches!(call.statement, Stmt::Expr(inner) if inner.value.range() == call.node.range()) {
            return ReadbackUse::Log;
        }
        of_part(program, caller, call.statement, call.node.range(), deep - 1)
    };
    let callers = program.callers_of(function).filter(|call| program.is_hot(call.context)).take(MOST_CALLERS);
    callers.map(of_caller).max().unwrap_or_else(|| by_name(program.symbol(function).name))
}

fn by_name(name: &str) -> ReadbackUse {
    let lower = name.to_ascii_lowercase();
    match lower.split('_').any(|word| Role::Result.fits(word)) {
        _ if counts(name) => ReadbackUse::Needed,
        true => ReadbackUse::Log,
        false => ReadbackUse::Other,
    }
}

/// `max_len`, `num_boxes`, `batch_index`: names of sizes and indices.
pub fn counts(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    lower.split('_').any(|part| Role::Count.fits(part.trim_end_matches('s')))
}

fn of_branch(test: &Expr, body: &[Stmt]) -> ReadbackUse {
    if asks_for_numbers(test) {
        return ReadbackUse::Finite;
    }
    let is_shown = |statement: &Stmt| called_by(statement).is_some_and(says_trouble);
    let gives_up = |statement: &Stmt| match statement {
        Stmt::Raise(_) | Stmt::Continue(_) | Stmt::Break(_) | Stmt::Pass(_) => true,
        _ => is_shown(statement),
    };
    if body.iter().all(gives_up) || matches!(body.last(), Some(Stmt::Raise(_))) || asks_whether_empty(test) {
        return ReadbackUse::Guard;
    }
    let asked = super::names_in(test);
    let writes = |statement: &Stmt| writes_under_mask(statement) || sets_again(statement, &asked);
    match body.iter().all(|statement| writes(statement) || is_shown(statement)) && body.iter().any(writes) {
        true => ReadbackUse::Skip,
        false => ReadbackUse::Needed,
    }
}

/// `x[mask] = 0`, `x = x.masked_fill(mask, 0)`, `total += x`: the device could do it regardless of the answer.
fn writes_under_mask(statement: &Stmt) -> bool {
    let masks = |expression: &Expr| super::names_in(expression).iter().any(|name| Role::WritesUnderMask.fits(name));
    match statement {
        Stmt::Assign(assign) => masks(&assign.value) || assign.targets.iter().all(Expr::is_subscript_expr),
        Stmt::AugAssign(_) => true,
        Stmt::Expr(inner) => masks(&inner.value),
        _ => false,
    }
}

/// `if loss.item() > 1: loss = torch.tensor(1.0)`: a clamp.
fn sets_again(statement: &Stmt, asked: &[&str]) -> bool {
    let Stmt::Assign(assign) = statement else { return false };
    // Setting `None` skips more than a write.
    !assign.value.is_none_literal_expr()
        && assign.targets.iter().all(|target| matches!(target, Expr::Name(name) if asked.contains(&name.id.as_str())))
}

/// `torch.isnan(loss)`, `not is_finite`.
fn asks_for_numbers(test: &Expr) -> bool {
    super::names_in(test).iter().any(|name| Role::Finite.fits_any_case(name))
}

/// `mask.sum() > 0`, `count == 0`: guards against a division by zero.
fn asks_whether_empty(test: &Expr) -> bool {
    match test {
        Expr::Compare(compare) => {
            let is_zero = |side: &Expr| side.is_number_literal_expr() && literal(side).known_integer() == Some(0);
            compare.comparators.iter().any(is_zero)
        }
        Expr::BoolOp(operation) => operation.values.iter().any(asks_whether_empty),
        Expr::UnaryOp(operation) => asks_whether_empty(&operation.operand),
        _ => false,
    }
}

fn says_trouble(call: &ExprCall) -> bool {
    super::names_in(&call.func).iter().any(|name| Role::Trouble.fits(name))
}
