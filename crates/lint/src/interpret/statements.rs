//! Runs statements in order.

use ruff_python_ast::{ExceptHandler, StmtAnnAssign, StmtAssign, StmtTry, StmtWith};

use super::caches::returns_cache_filled_below;
use super::guards::{Branches, ends_turn};
use super::unpacking::{goes_over_keys, spread};
use super::*;
use crate::program::Accumulation;

/// Loops nested deeper than this are visited once.
const MOST_REPEATED: usize = 2;

impl<'p, 'a> Interpreter<'p, 'a> {
    /// Runs a block in order. `if cond: continue` and `model.eval()` change the context of the rest of the block.
    pub(super) fn run_block(&mut self, body: &'a [Stmt]) {
        for (index, statement) in body.iter().enumerate() {
            let rest = &body[index + 1..];
            let around = self.run_statement(statement);
            let around = around.or_else(|| self.starts_evaluation(&body[..=index], rest).then_some(Frame::Evaluation));
            let around = around.or_else(|| {
                let is_filled = matches!(statement, Stmt::If(branch) if returns_cache_filled_below(branch, rest));
                is_filled.then_some(Frame::Guard(Guard::Once))
            });
            if let Some(frame) = around
                && !rest.is_empty()
            {
                self.within(frame, range_of(rest), |inside| inside.run_block(rest));
                return;
            }
        }
    }

    /// Runs one statement; returns the frame that the rest of its block runs under, if there is one.
    fn run_statement(&mut self, statement: &'a Stmt) -> Option<Frame> {
        let outer = self.statement.replace(statement);
        let mut around = None;
        match statement {
            Stmt::Assign(assign) => self.run_assign(assign),
            Stmt::AnnAssign(assign) => self.run_annotated(assign),
            Stmt::AugAssign(assign) => {
                let before = self.evaluate(&assign.target);
                let value = self.evaluate(&assign.value);
                if self.noted().is_some() {
                    let (target, expression, context) = (&*assign.target, &*assign.value, self.context);
                    let noted = Accumulation { target, expression, statement, context, value: value.clone() };
                    self.program.notes.accumulations.push(noted);
                }
                let after = self.combine(&before, &value);
                self.assign(&assign.target, after);
            }
            Stmt::Expr(inner) => drop(self.evaluate(&inner.value)),
            Stmt::Return(inner) => {
                let value = inner.value.as_ref().map_or(Value::Nothing, |value| self.may_be(value));
                self.give(value);
            }
            Stmt::If(branch) => around = self.run_if(branch),
            Stmt::For(repeat) => self.run_for(statement, repeat),
            Stmt::While(repeat) => {
                self.test(&repeat.test);
                let (value, loaders, context) = (Value::Unknown, Vec::new(), self.context);
                let body = &repeat.body;
                let around = Loop { statement, target: None, iterated: None, value, loaders, body, context };
                self.run_loop(LoopKind::Plain, around, Value::Unknown);
                self.run_block(&repeat.orelse);
            }
            Stmt::With(with) => {
                self.run_with(with);
                // Statements after `with …: return` are reached where the block suppressed an error.
                around = matches!(with.body.last(), Some(Stmt::Return(_))).then_some(Frame::Handler);
            }
            Stmt::Try(attempt) => self.run_try(attempt),
            Stmt::Assert(assert) => drop(self.test(&assert.test)),
            _ => self.run_other_statement(statement),
        }
        self.statement = outer;
        around
    }

    fn run_other_statement(&mut self, statement: &'a Stmt) {
        match statement {
            Stmt::Match(choice) => {
                self.evaluate(&choice.subject);
                let before = self.names.clone();
                let mut after = before.clone();
                for case in &choice.cases {
                    self.names = before.clone();
                    self.run_block(&case.body);
                    after.add_all(&self.names);
                }
                self.names = after;
            }
            Stmt::FunctionDef(definition) => {
                for decorator in &definition.decorator_list {
                    self.evaluate(&decorator.expression);
                }
                if let Some(id) = self.inner_function(definition) {
                    self.names.insert(definition.name.as_str(), Value::Function(id));
                }
            }
            Stmt::ClassDef(definition) => {
                let classes = &self.program.sources.symbols.files[self.file()].classes;
                if let Some(id) = classes.get(definition.name.as_str()) {
                    self.names.insert(definition.name.as_str(), Value::Class(*id));
                }
            }
            Stmt::Delete(delete) => {
                for name in delete.targets.iter().filter_map(Expr::as_name_expr) {
                    self.names.remove(name.id.as_str());
                }
            }
            Stmt::Raise(raise) => {
                if let Some(exception) = &raise.exc {
                    self.within(Frame::Guard(Guard::Once), raise.range, |inside| inside.evaluate(exception));
                }
            }
            _ => {}
        }
    }

    fn run_assign(&mut self, assign: &'a StmtAssign) {
        let value = self.may_be(&assign.value);
        if let ([Expr::Name(elapsed)], Expr::BinOp(difference), Value::Clock) =
            (assign.targets.as_slice(), &*assign.value, &value)
            && let Expr::Name(start) = &*difference.right
        {
            self.elapsed_since.insert(elapsed.id.as_str(), start.id.as_str());
        }
        if let ([Expr::Name(name)], Expr::Call(_)) = (assign.targets.as_slice(), &*assign.value) {
            let loaders = self.loaders_in(&assign.value);
            if !loaders.is_empty() {
                self.passes_over.insert(name.id.as_str(), loaders);
            }
        }
        self.note_alike(&assign.targets, &assign.value);
        for target in &assign.targets {
            self.assign(target, spread(&assign.value, target, value.clone()));
        }
    }

    fn run_annotated(&mut self, assign: &'a StmtAnnAssign) {
        let Some(expression) = &assign.value else { return };
        let value = self.evaluate(expression);
        // `nodes: List[Node] = []`: the annotation says what it will hold.
        let value = match self.annotated(Some(&assign.annotation)) {
            Some(said @ (Value::List(_) | Value::Dict { .. })) if value != Value::Unknown => said.join(&value),
            Some(said) if matches!(value, Value::Unknown | Value::Nothing) => said,
            _ => value,
        };
        self.assign(&assign.target, value);
    }

    /// Adds to what the function returns.
    pub(super) fn give(&mut self, value: Value) {
        let all = match self.outcome.returns.take() {
            Some(before) => before.join(&value),
            None => value,
        };
        self.note_either(&all);
        self.outcome.returns = Some(all);
    }

    fn inner_function(&self, definition: &StmtFunctionDef) -> Option<usize> {
        let functions = &self.program.sources.symbols.functions;
        // Functions are numbered in text order: an inner one comes after the one that contains it.
        let holds = |function: &crate::symbols::Function| {
            function.definition.is_some_and(|known| std::ptr::eq(known, definition))
        };
        functions[self.function..].iter().position(holds).map(|offset| self.function + offset)
    }

    fn run_if(&mut self, branch: &'a StmtIf) -> Option<Frame> {
        let Branches { when_true, when_false } = self.classify(&branch.test, &branch.body);
        self.test(&branch.test);
        let mut before = self.names.clone();
        let leaves = ends_turn(&branch.body);
        // `if isinstance(x, Tensor):`, even if other callers pass an array.
        if let Some(name) = asked_for_tensor(&branch.test)
            && self.named(name) == Some(Value::Numpy)
        {
            self.names.insert(name, Value::Unknown);
        }
        self.within(Frame::Guard(when_true), range_of(&branch.body), |inside| inside.run_block(&branch.body));
        let inside = std::mem::replace(&mut self.names, before.clone());
        let mut after = (!leaves).then_some(inside);
        // `if isinstance(x, Tensor): return …`: afterwards, and in the `else`, it is not a tensor.
        if let Some(name) = asked_for_tensor(&branch.test).filter(|_| leaves || !branch.elif_else_clauses.is_empty()) {
            before.insert(name, Value::Unknown);
        }
        let (mut otherwise, mut has_else) = (when_false, false);
        for clause in &branch.elif_else_clauses {
            self.names = before.clone();
            let guard = match &clause.test {
                Some(test) => {
                    let inner = self.classify(test, &clause.body);
                    // Evaluated only where the earlier branches are not taken.
                    self.within(Frame::Guard(otherwise), test.range(), |inside| inside.test(test));
                    let guard = elif_guard(when_true, otherwise, inner.when_true);
                    otherwise = match otherwise {
                        Guard::Open if !inner.when_false.cools() => Guard::Open,
                        Guard::Open | Guard::Taken => inner.when_false,
                        cold => cold,
                    };
                    guard
                }
                None => {
                    has_else = true;
                    otherwise
                }
            };
            self.within(Frame::Guard(guard), range_of(&clause.body), |inside| inside.run_block(&clause.body));
            if !ends_turn(&clause.body) {
                let names = std::mem::take(&mut self.names);
                after = Some(match after {
                    Some(after) => self.join_branches(after, names),
                    None => names,
                });
            }
        }
        // `if isinstance(x, Tensor): x = x.item()`: afterwards `x` is not a tensor.
        if let Some(name) = asked_for_tensor(&branch.test).filter(|_| after.is_some()) {
            before.remove(name);
        }
        self.names = match after {
            Some(after) if has_else => after,
            Some(after) => self.join_branches(before, after),
            None => before,
        };
        let rest_is_guarded = leaves && branch.elif_else_clauses.is_empty() && when_false.cools();
        rest_is_guarded.then_some(Frame::Guard(when_false))
    }

    fn run_for(&mut self, statement: &'a Stmt, repeat: &'a StmtFor) {
        let iterated = self.evaluate(&repeat.iter);
        let kind = self.loop_kind(&repeat.iter, &iterated);
        let element = if goes_over_keys(repeat) { Value::Text(None) } else { self.element_of(&iterated) };
        let loaders = self.loaders_in(&repeat.iter);
        let value = loaders.first().map_or(iterated, |first| Value::Loader(Some(*first)));
        let (target, iterated) = (Some(&*repeat.target), Some(&*repeat.iter));
        let around = Loop { statement, target, iterated, value, loaders, body: &repeat.body, context: self.context };
        self.run_loop(kind, around, element);
        self.run_block(&repeat.orelse);
    }

    fn run_loop(&mut self, kind: LoopKind, around: Loop<'a>, element: Value) {
        let Loop { statement, target, body, .. } = around;
        let mut around = Some(around);
        let was_recording = self.is_recording;
        let turns = if self.loop_depth < MOST_REPEATED { 2 } else { 1 };
        self.loop_depth += 1;
        for turn in 1..=turns {
            self.is_recording = was_recording && turn == turns;
            let before = self.names.clone();
            if let Some(target) = target {
                self.assign(target, element.clone());
            }
            self.within(Frame::Loop(kind), statement.range(), |inside| {
                if inside.noted().is_some() {
                    let context = inside.context;
                    inside.program.notes.loops.extend(around.take().map(|around| Loop { context, ..around }));
                }
                inside.run_block(body);
            });
            self.names.add_all(&before);
        }
        self.loop_depth -= 1;
        self.is_recording = was_recording;
    }

    fn run_with(&mut self, with: &'a StmtWith) {
        let mut frame = Frame::With;
        for item in &with.items {
            let value = self.evaluate(&item.context_expr);
            if self.turns_gradients_off(&item.context_expr) {
                frame = Frame::Evaluation;
            }
            if let Some(target) = &item.optional_vars {
                self.assign(target, value);
            }
        }
        let off = usize::from(frame == Frame::Evaluation);
        self.without_graph += off;
        let block = self.program.notes.contexts.len();
        self.within(frame, with.range, |inside| inside.run_block(&with.body));
        self.without_graph -= off;
        if frame == Frame::Evaluation && !self.repeats_since(block) {
            self.program.notes.contexts[block].frame = Frame::WithoutGraph;
        }
    }

    /// Whether a loop over data, or one that runs a model, was visited since context `first`.
    fn repeats_since(&self, first: usize) -> bool {
        let notes = &self.program.notes;
        if !notes.contexts[first..].iter().any(|context| context.frame == Frame::Loop(LoopKind::Plain)) {
            return false;
        }
        if self.noted().is_none() {
            return true;
        }
        let over_data = notes.loops.iter().rev().take_while(|around| around.context >= first).any(|around| {
            let names = around.iterated.map(names_in).unwrap_or_default();
            matches!(around.value, Value::Loader(_))
                || around.iterated.is_none()
                || names.iter().any(|name| is_data_name(name))
        });
        over_data || notes.calls.iter().rev().take_while(|call| call.context >= first).any(|call| self.runs_model(call))
    }

    fn runs_model(&self, call: &Call) -> bool {
        let is_model = match call.callee {
            Callee::Function(function) => {
                let takes_model = call.argument_values().any(|value| matches!(value, Value::Model(_)));
                takes_model || self.program.functions[function].kind == FunctionKind::Step
            }
            Callee::Value => is_model_name(call.name),
            _ => false,
        };
        is_model && self.program.is_in_loop(call.context)
    }

    fn turns_gradients_off(&self, expression: &Expr) -> bool {
        let (function, arguments) = match expression {
            Expr::Call(call) => (&*call.func, Some(&call.arguments)),
            other => (other, None),
        };
        let Some(name) = last_name(function) else { return false };
        let first = arguments.and_then(|all| all.args.first());
        let is_off = matches!(first, Some(Expr::BooleanLiteral(flag)) if !flag.value);
        Role::GraphOff.fits(name) && !is_off || Role::GraphSwitch.fits(name) && is_off
    }

    fn run_try(&mut self, attempt: &'a StmtTry) {
        let before = self.names.clone();
        self.run_block(&attempt.body);
        self.run_block(&attempt.orelse);
        let mut after = std::mem::take(&mut self.names);
        for handler in &attempt.handlers {
            let ExceptHandler::ExceptHandler(handler) = handler;
            self.names = before.clone();
            self.within(Frame::Handler, handler.range, |inside| inside.run_block(&handler.body));
            after.add_all(&self.names);
        }
        self.names = after;
        self.run_block(&attempt.finalbody);
    }

    pub(super) fn assign(&mut self, target: &'a Expr, value: Value) {
        match target {
            Expr::Name(name) => {
                let value = self.bound_to(name.id.as_str(), value);
                self.names.insert(name.id.as_str(), value);
            }
            Expr::Tuple(targets) => self.unpack(&targets.elts, value),
            Expr::List(targets) => self.unpack(&targets.elts, value),
            Expr::Starred(starred) => self.assign(&starred.value, Value::list(value)),
            Expr::Attribute(attribute) => {
                let owner = self.evaluate(&attribute.value);
                if let Value::Instance(class) | Value::Model(Some(class)) = owner {
                    self.outcome.store(class, attribute.attr.as_str(), value);
                }
            }
            Expr::Subscript(subscript) => {
                let (base, index) = self.parts_of(subscript, Some(&value));
                let Some(updated) = with_stored(base, index, value) else { return };
                match &*subscript.value {
                    Expr::Name(name) => {
                        self.names.insert(name.id.as_str(), updated);
                    }
                    // `self.loaders["train"] = …`
                    Expr::Attribute(attribute) => self.hold_as(attribute, updated),
                    _ => {}
                }
            }
            _ => {}
        }
    }

    fn unpack(&mut self, targets: &'a [Expr], value: Value) {
        let is_pairwise = |value: &Value| matches!(value, Value::Tuple(elements) if elements.len() == targets.len());
        match if is_pairwise(&value) { value } else { value.reading() } {
            Value::Tuple(elements) if elements.len() == targets.len() => {
                for (target, element) in targets.iter().zip(elements) {
                    self.assign(target, element);
                }
            }
            value => {
                let element = self.element_of(&value);
                for target in targets {
                    self.assign(target, element.clone());
                }
            }
        }
    }
}

/// The guard of an `elif`, from the first branch's, that of all branches before it, and its own.
fn elif_guard(first: Guard, otherwise: Guard, own: Guard) -> Guard {
    match (first, own) {
        // The `elif` of a cadence guard shares its cadence.
        (Guard::Cadence, _) => Guard::Cadence,
        (_, Guard::Open) if otherwise == Guard::Taken => Guard::Open,
        (_, Guard::Open | Guard::Taken) => otherwise,
        (_, own) => own,
    }
}

/// A container after `value` is stored into it at `index`.
fn with_stored(base: Value, index: Value, value: Value) -> Option<Value> {
    Some(match (base, index) {
        (Value::Dict { mut entries, element }, Value::Text(Some(key))) => {
            let element = element.join(&value);
            entries.insert(key, value);
            Value::dict(entries, element)
        }
        (Value::Dict { entries, element }, _) => Value::dict(entries, element.join(&value)),
        (Value::List(element), _) => Value::list(element.join(&value)),
        _ => return None,
    })
}

pub(super) type Names<'a> = rustc_hash::FxHashMap<&'a str, Value>;

/// Adds what a name may hold on another path.
pub(super) fn add<'a>(names: &mut Names<'a>, name: &'a str, value: Value) {
    match names.get_mut(name) {
        Some(known) if *known == value => {}
        Some(known) => *known = known.join(&value),
        None => drop(names.insert(name, value)),
    }
}

/// Adds all names of another path.
pub(super) fn add_all<'a>(names: &mut Names<'a>, others: &Names<'a>) {
    others.iter().for_each(|(name, value)| add(names, name, value.clone()));
}
