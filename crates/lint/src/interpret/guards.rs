//! Estimates how often a branch runs, from its test.

use super::caches::{fills_tested_cache, resets_own_counter};
use super::cadence::*;
use super::*;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Branches {
    pub when_true: Guard,
    pub when_false: Guard,
}

const OPEN: Branches = Branches { when_true: Guard::Open, when_false: Guard::Open };
const TAKEN: Branches = Branches { when_true: Guard::Taken, when_false: Guard::Open };

fn when_true(guard: Guard) -> Branches {
    Branches { when_true: guard, when_false: Guard::Taken }
}

fn when_false(guard: Guard) -> Branches {
    Branches { when_true: Guard::Taken, when_false: guard }
}

impl Branches {
    fn swapped(self) -> Branches {
        Branches { when_true: self.when_false, when_false: self.when_true }
    }
}

impl<'p, 'a> Interpreter<'p, 'a> {
    /// Classifies the branches of an `if` with this body by its test.
    pub(super) fn classify(&mut self, test: &'a Expr, body: &'a [Stmt]) -> Branches {
        let mut branches = self.classify_test(test);
        let in_loop = self.program.is_in_loop(self.context);
        let is_once =
            || fills_tested_cache(test, body, in_loop) || self.ends_the_run(body) || speaks_of_trouble(test, body);
        if !branches.when_true.cools() && is_once() {
            branches.when_true = Guard::Once;
        }
        if !branches.when_true.cools() && in_loop && resets_own_counter(test, body) {
            branches.when_true = Guard::Cadence;
        }
        branches
    }

    fn classify_test(&mut self, test: &'a Expr) -> Branches {
        match test {
            Expr::UnaryOp(operation) if operation.op == UnaryOp::Not => {
                self.classify_test(&operation.operand).swapped()
            }
            Expr::BoolOp(operation) => {
                let parts: Vec<Branches> = operation.values.iter().map(|value| self.classify_test(value)).collect();
                combined(operation.op, &parts)
            }
            Expr::Compare(compare) => self.classify_compare(compare),
            Expr::BinOp(operation) if operation.op == Operator::Mod && !is_one(&operation.right) => {
                when_false(Guard::Cadence)
            }
            Expr::Call(call) => self.classify_call(test, call),
            Expr::Name(_) | Expr::Attribute(_) => self.classify_flag(test),
            Expr::Subscript(subscript)
                if text_of(&subscript.slice).is_some_and(|name| Role::Cadence.fits_any_case(name)) =>
            {
                when_true(Guard::Cadence)
            }
            Expr::Subscript(_) if self.is_off_unless_asked(test) => when_true(Guard::OptIn),
            Expr::BooleanLiteral(_) | Expr::NumberLiteral(_) if literal(test).known_bool() == Some(false) => {
                when_true(Guard::Once)
            }
            Expr::Named(named) => self.classify_test(&named.value),
            _ => OPEN,
        }
    }

    fn classify_call(&mut self, test: &'a Expr, call: &'a ExprCall) -> Branches {
        let last = function_name(call);
        let effect = Owner::TestedCall.effect(last).or_else(|| Owner::TestedCall.effect_of_part(last));
        if let Some(branches) = branches_of(effect) {
            return branches;
        }
        match last {
            _ if asked_for_tensor(test).is_some() || Role::Rank.fits_any_case(last) => TAKEN,
            _ if dotted_name(&call.func).is_some_and(|name| Role::AsksEnvironment.fits(&name)) => {
                when_true(Guard::OptIn)
            }
            _ if Role::Cadence.fits_any_case(last) => when_true(Guard::Cadence),
            _ if effect == Effect::Element => self.classify_inner(call),
            _ if Role::AsksSupport.fits(last) => when_false(Guard::Fallback),
            _ => self.classify_value(test),
        }
    }

    /// `torch.isnan(loss).any()`, `torch.any(torch.isnan(loss))`, `torch.isfinite(loss).all()`.
    fn classify_inner(&mut self, call: &'a ExprCall) -> Branches {
        let inner = match (&*call.func, call.arguments.args.first()) {
            (_, Some(inner @ Expr::Call(_))) => Some(inner),
            (Expr::Attribute(method), None) => Some(&*method.value),
            _ => None,
        };
        match inner {
            Some(test @ Expr::Call(asked)) if Role::Finite.fits(function_name(asked)) => self.classify_test(test),
            _ => OPEN,
        }
    }

    fn classify_value(&mut self, expression: &'a Expr) -> Branches {
        match self.quietly(|quiet| quiet.evaluate(expression)) {
            Value::Cadence => when_true(Guard::Cadence),
            Value::Capability => when_false(Guard::Fallback),
            _ => OPEN,
        }
    }

    fn classify_flag(&mut self, test: &'a Expr) -> Branches {
        let by_value = self.classify_value(test);
        let Some(name) = last_name(test).filter(|_| by_value == OPEN) else { return by_value };
        let lower = name.to_ascii_lowercase();
        let is = |role: Role| role.fits(&lower);
        match test {
            _ if is(Role::TrainingFlag) => when_false(Guard::Evaluation),
            _ if is(Role::EvaluationFlag) => when_true(Guard::Evaluation),
            _ if Role::Cadence.fits_any_case(&lower) => when_true(Guard::Cadence),
            // `if args.cuda: x = x.cuda()`: training runs have a device.
            _ if Role::Rank.fits_any_case(&lower) || is(Role::DeviceFlag) => TAKEN,
            _ if is(Role::Decoding) => when_true(Guard::Evaluation),
            _ if is(Role::OutOfMemory) => when_true(Guard::Once),
            _ if self.is_off_unless_asked(test) => when_true(Guard::OptIn),
            _ => OPEN,
        }
    }

    pub(super) fn classify_compare(&mut self, compare: &'a ExprCompare) -> Branches {
        let ([operator], [right]) = (&*compare.ops, &*compare.comparators) else { return self.classify_range(compare) };
        let left = &*compare.left;
        if mentions_version(left) || mentions_version(right) {
            return match operator {
                CmpOp::Lt | CmpOp::LtE => when_true(Guard::Fallback),
                _ => when_false(Guard::Fallback),
            };
        }
        // `if targets is not None:` in a model that computes its own loss: training code passes them. Gradients exist
        // after a backward pass.
        let is_target = last_name(left).is_some_and(|name| Role::Target.fits_any_case(name));
        if is_target && matches!(operator, CmpOp::IsNot) && right.is_none_literal_expr() {
            return TAKEN;
        }
        let (left_value, right_value) = self.quietly(|quiet| (quiet.evaluate(left), quiet.evaluate(right)));
        if left_value.surely_holds_device() || right_value.surely_holds_device() {
            return OPEN;
        }
        if let Some(divisor) = modulo_of(left).or_else(|| modulo_of(right)) {
            return match operator {
                _ if is_one(divisor) => OPEN,
                CmpOp::NotEq => when_false(Guard::Cadence),
                _ => when_true(Guard::Cadence),
            };
        }
        if left_value == Value::Clock || right_value == Value::Clock {
            return match operator {
                CmpOp::Gt | CmpOp::GtE if left_value == Value::Clock => when_true(Guard::Cadence),
                CmpOp::Lt | CmpOp::LtE if right_value == Value::Clock => when_true(Guard::Cadence),
                _ => when_false(Guard::Cadence),
            };
        }
        if let Some(phase) = tested_phase(*operator, left, right) {
            return match operator {
                CmpOp::Eq | CmpOp::In | CmpOp::Is => phase,
                CmpOp::NotEq | CmpOp::NotIn | CmpOp::IsNot => phase.swapped(),
                _ => OPEN,
            };
        }
        let is_first_rank = called_name(left).is_some_and(|name| Role::Rank.fits_any_case(name));
        if is_first_rank && matches!(operator, CmpOp::Eq | CmpOp::In | CmpOp::LtE) {
            return TAKEN;
        }
        if right.is_none_literal_expr() {
            return self.classify_presence(*operator, left);
        }
        // `n = boxes.shape[0]`: a size, although step counters have the same name.
        let is_size = |side: &Expr, value: &Value| {
            *value == Value::SIZE && last_name(side).is_some_and(|name| Role::ShortCount.fits(name))
        };
        let counts = |side: &Expr| counts_steps(side) && !is_size(left, &left_value) && !is_size(right, &right_value);
        self.classify_counter(*operator, left, right, &right_value, counts(left), counts(right))
    }

    /// `cache is not None`, which only decoding or an option provides.
    fn classify_presence(&mut self, operator: CmpOp, left: &'a Expr) -> Branches {
        let branches = match last_name(left).is_some_and(|name| Role::Decoding.fits(name)) {
            true => when_true(Guard::Evaluation),
            false if self.is_missing_unless_asked(left) => when_true(Guard::OptIn),
            false => OPEN,
        };
        match operator {
            CmpOp::IsNot => branches,
            CmpOp::Is => branches.swapped(),
            _ => OPEN,
        }
    }

    /// `step == 0`, `step in milestones`, `args.timing == 1`.
    fn classify_counter(
        &mut self,
        operator: CmpOp,
        left: &'a Expr,
        right: &'a Expr,
        right_value: &Value,
        left_counts: bool,
        right_counts: bool,
    ) -> Branches {
        match operator {
            CmpOp::Eq if left_counts || right_counts => when_true(Guard::Cadence),
            CmpOp::NotEq if left_counts || right_counts => when_false(Guard::Cadence),
            CmpOp::In if left_counts && !right.is_call_expr() => when_true(Guard::Cadence),
            CmpOp::Lt | CmpOp::LtE if left_counts && right.is_number_literal_expr() => when_true(Guard::Cadence),
            CmpOp::Lt | CmpOp::LtE if is_random_draw(left) => when_true(Guard::Cadence),
            CmpOp::Is | CmpOp::Eq if right.is_boolean_literal_expr() => {
                let branches = self.classify_test(left);
                if right_value.known_bool() == Some(true) { branches } else { branches.swapped() }
            }
            // `args.timing == 1`, which is 0 by default.
            CmpOp::Eq if right_value.known_integer() > Some(0) && self.is_off_unless_asked(left) => {
                when_true(Guard::OptIn)
            }
            CmpOp::Gt if self.is_off_unless_asked(left) => when_true(Guard::OptIn),
            _ => OPEN,
        }
    }

    /// `0 < step < 10` and similar.
    fn classify_range(&mut self, compare: &'a ExprCompare) -> Branches {
        let all = || std::iter::once(&*compare.left).chain(&*compare.comparators);
        let is_seldom = all().any(|part| modulo_of(part).is_some_and(|divisor| !is_one(divisor)));
        if is_seldom { when_true(Guard::Cadence) } else { OPEN }
    }

    /// A switch that is off by default: a parameter, a setting, a constant.
    fn is_off_unless_asked(&mut self, expression: &Expr) -> bool {
        let speaks_of_debugging = |name: &str| Role::Debugging.fits_any_case(name);
        // `return_loss=False`: training code asks for it.
        let asks_for_loss = |name: &str| Role::LossName.fits(name);
        match expression {
            Expr::Name(name) if asks_for_loss(name.id.as_str()) => false,
            Expr::Name(name) => {
                let name = name.id.as_str();
                if let Some(default) = self.parameter_default(name) {
                    let passed = self.program.functions[self.function].passed.get(name);
                    return default.known_bool() == Some(false)
                        && passed.is_none_or(|passed| passed.known_bool() != Some(true))
                        && !(self.kind() == FunctionKind::Step && default == Value::Nothing);
                }
                let constants = &self.program.sources.symbols.files[self.file()].constants;
                let known = match self.named(name) {
                    Some(value) => value.known_bool(),
                    None => constants.get(name).and_then(|constant| literal(constant).known_bool()),
                };
                known.map_or_else(|| speaks_of_debugging(name), |on| !on)
            }
            Expr::Attribute(attribute) => {
                let name = attribute.attr.as_str();
                let Some(owner) = last_name(&attribute.value) else { return false };
                if Role::Settings.fits(owner) {
                    return match self.program.sources.settings.default_of(self.file(), name).map(Value::known_bool) {
                        Some(Some(on)) => !on,
                        Some(None) => false,
                        None => speaks_of_debugging(name),
                    };
                }
                speaks_of_debugging(name) || Role::SelfName.fits(owner) && self.is_off_when_made(name)
            }
            Expr::Subscript(subscript) => text_of(&subscript.slice).is_some_and(speaks_of_debugging),
            _ => false,
        }
    }

    /// Whether the value is None unless a caller or a setting provides it.
    fn is_missing_unless_asked(&mut self, expression: &Expr) -> bool {
        match expression {
            Expr::Name(name) if !self.is_tensor_code() => {
                let name = name.id.as_str();
                let is_missing = self.parameter_default(name) == Some(Value::Nothing);
                let passed = self.program.functions[self.function].passed.get(name);
                is_missing && passed.is_none_or(|passed| *passed == Value::Nothing)
            }
            Expr::Attribute(attribute) => {
                let Some(owner) = last_name(&attribute.value) else { return false };
                let name = attribute.attr.as_str();
                Role::Settings.fits(owner)
                    && self.program.sources.settings.default_of(self.file(), name) == Some(&Value::Nothing)
            }
            _ => false,
        }
    }

    /// `self.track` of a class constructed with `track=False`.
    fn is_off_when_made(&self, name: &str) -> bool {
        // Options of a module define the model.
        let class = self.program.symbol(self.function).class.filter(|class| !self.program.is_module(*class));
        let made = class.and_then(|class| self.program.method(class, Role::Constructor.word()));
        let default = made.and_then(|made| self.default_of(made, name));
        default.and_then(boolean) == Some(false) && !Role::LossName.fits(name)
    }

    fn parameter_default(&self, name: &str) -> Option<Value> {
        self.default_of(self.function, name).map(literal)
    }

    /// The default of a function's parameter.
    fn default_of(&self, function: FunctionId, name: &str) -> Option<&'a Expr> {
        self.program.symbol(function).definition?.parameters.find(name)?.default()
    }

    /// Whether the body leaves the loop of steps or the program, so that it runs at most once.
    fn ends_the_run(&self, body: &[Stmt]) -> bool {
        match body.last() {
            Some(Stmt::Raise(_)) => true,
            Some(Stmt::Break(_) | Stmt::Return(_)) => self.program.is_in_loop(self.context),
            Some(Stmt::Expr(inner)) => matches!(&*inner.value, Expr::Call(call)
                if dotted_name(&call.func).is_some_and(|name| Role::Exits.fits(&name))),
            _ => false,
        }
    }

    /// Evaluates without taking notes.
    pub(super) fn quietly<T>(&mut self, inside: impl FnOnce(&mut Self) -> T) -> T {
        let was_recording = std::mem::replace(&mut self.is_recording, false);
        let result = inside(self);
        self.is_recording = was_recording;
        result
    }
}

/// Whether the rest of the block is not reached after this body.
pub fn ends_turn(body: &[Stmt]) -> bool {
    matches!(body.last(), Some(Stmt::Continue(_) | Stmt::Return(_) | Stmt::Break(_) | Stmt::Raise(_)))
}

/// `and`: one cold operand makes the body cold, all together make the `else` cold. `or`: the reverse.
fn combined(operator: BoolOp, parts: &[Branches]) -> Branches {
    let (taken, other): (Vec<Guard>, Vec<Guard>) = parts.iter().map(|part| (part.when_true, part.when_false)).unzip();
    let is_taken = |guard: &Guard| *guard == Guard::Taken;
    let open = |is_taken: bool| if is_taken { Guard::Taken } else { Guard::Open };
    let one = |guards: &[Guard]| {
        let cold = guards.iter().copied().find(|guard| guard.cools());
        cold.unwrap_or_else(|| open(guards.iter().all(is_taken)))
    };
    let all = |guards: &[Guard]| match guards.iter().all(|guard| guard.cools()) {
        true => guards[0],
        false => open(guards.iter().any(is_taken)),
    };
    match operator {
        BoolOp::And => Branches { when_true: one(&taken), when_false: all(&other) },
        // `step % 100 == 0 or is_last`: still now and then.
        BoolOp::Or if taken.contains(&Guard::Cadence) => {
            Branches { when_true: Guard::Cadence, when_false: one(&other) }
        }
        BoolOp::Or => Branches { when_true: all(&taken), when_false: one(&other) },
    }
}

/// The branches of a test whose name alone decides.
fn branches_of(effect: Effect) -> Option<Branches> {
    Some(match effect {
        Effect::EvaluationIf => when_true(Guard::Evaluation),
        Effect::EvaluationUnless => when_false(Guard::Evaluation),
        Effect::FallbackIf => when_true(Guard::Fallback),
        Effect::FallbackUnless => when_false(Guard::Fallback),
        // A NaN or an infinity ends a run or spoils a step: it does not last.
        Effect::OnceIf => when_true(Guard::Once),
        Effect::OnceUnless => when_false(Guard::Once),
        Effect::OptInIf => when_true(Guard::OptIn),
        _ => return None,
    })
}

/// The branches of a comparison with a phase or a device: `mode == "train"`, `stage is Stage.VALID`,
/// `device.type in {"mps", "npu"}`. A text decides even where nothing is known of it.
fn tested_phase(operator: CmpOp, left: &Expr, right: &Expr) -> Option<Branches> {
    let asks_for_key = matches!(operator, CmpOp::In | CmpOp::NotIn) && last_name(right).is_some_and(holds_keys);
    let text = text_of(right).or_else(|| text_of(left)).or_else(|| first_text(right)).filter(|_| !asks_for_key);
    let is_by_identity = matches!(operator, CmpOp::Is | CmpOp::IsNot);
    if let Some(text) = text {
        let branches = branches_of(Owner::TestedText.effect(&lowered(text)));
        return Some(branches.filter(|_| !is_by_identity).unwrap_or(OPEN));
    }
    let of_constant = |side: &Expr| match side {
        Expr::Attribute(constant) => branches_of(Owner::TestedPhase.effect(constant.attr.as_str())),
        _ => None,
    };
    let branches = of_constant(right).or_else(|| of_constant(left))?;
    Some(if matches!(operator, CmpOp::In | CmpOp::NotIn) { OPEN } else { branches })
}
