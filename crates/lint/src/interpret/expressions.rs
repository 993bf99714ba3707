//! Evaluates expressions, recording what rules look at.

use ruff_python_ast::{Comprehension, ExprGenerator, ExprIf, ExprListComp, ExprSetComp, ExprSubscript};

use super::*;
use crate::program::{Product, Speed, Subscript};

impl<'p, 'a> Interpreter<'p, 'a> {
    /// The expression's value, as one.
    pub(super) fn evaluate(&mut self, expression: &'a Expr) -> Value {
        self.may_be(expression).reading()
    }

    /// All that the expression's value may be.
    pub(super) fn may_be(&mut self, expression: &'a Expr) -> Value {
        match expression {
            Expr::Name(name) => self.name_value(name.id.as_str()),
            Expr::Attribute(attribute) => self.attribute_value(attribute),
            Expr::Call(call) => {
                let value = self.call(call);
                self.moved_argument(call, &value).unwrap_or(value)
            }
            Expr::BinOp(_) => self.sum(expression),
            Expr::Compare(compare) => self.compare(compare),
            Expr::BoolOp(operation) => self.in_order(operation.op, &operation.values, Self::evaluate),
            Expr::UnaryOp(operation) => match operation.op {
                UnaryOp::Not => match self.test(&operation.operand) {
                    Value::Cadence => Value::Bool(None),
                    value => Value::Bool(value.known_bool().map(|on| !on)),
                },
                UnaryOp::USub => match self.evaluate(&operation.operand) {
                    Value::Number { known, sized } => Value::Number { known: known.and_then(i64::checked_neg), sized },
                    value => value,
                },
                _ => self.evaluate(&operation.operand),
            },
            Expr::If(choice) => self.choice(choice),
            Expr::Subscript(subscript) => self.subscript(subscript),
            Expr::Tuple(tuple) => Value::tuple(tuple.elts.iter().map(|element| self.may_be(element)).collect()),
            Expr::List(list) => self.list(&list.elts),
            Expr::Set(set) => Value::list(Value::any_of(set.elts.iter().map(|one| self.evaluate(one)))),
            Expr::Dict(dict) => self.dictionary(dict),
            Expr::ListComp(ExprListComp { elt, generators, range, .. })
            | Expr::SetComp(ExprSetComp { elt, generators, range, .. })
            | Expr::Generator(ExprGenerator { elt, generators, range, .. }) => {
                self.comprehension(generators, *range, |inside| Value::list(inside.evaluate(elt)))
            }
            Expr::DictComp(all) => self.comprehension(&all.generators, all.range, |inside| {
                all.key.iter().for_each(|key| drop(inside.evaluate(key)));
                match inside.evaluate(&all.value) {
                    // Neither its keys nor its values are known.
                    Value::Unknown => Value::Unknown,
                    element => Value::dict(Entries::new(), element),
                }
            }),
            _ => self.other_expression(expression),
        }
    }

    fn other_expression(&mut self, expression: &'a Expr) -> Value {
        match expression {
            Expr::FString(text) => {
                for element in text.value.elements() {
                    if let Some(part) = element.as_interpolation() {
                        let value = self.evaluate(&part.expression);
                        self.note_shown(&part.expression, value);
                    }
                }
                Value::Text(None)
            }
            Expr::Starred(starred) => {
                let value = self.evaluate(&starred.value);
                self.element_of(&value)
            }
            Expr::Named(named) => {
                let value = self.may_be(&named.value);
                self.assign(&named.target, value.clone());
                value
            }
            Expr::Await(inner) => self.evaluate(&inner.value),
            Expr::Yield(inner) => {
                let value = inner.value.as_ref().map_or(Value::Nothing, |value| self.evaluate(value));
                self.give(Value::list(value));
                Value::Unknown
            }
            Expr::YieldFrom(inner) => {
                let value = self.evaluate(&inner.value);
                self.note_whole_pass(&inner.value, &value);
                self.give(value);
                Value::Unknown
            }
            Expr::Slice(slice) => {
                for part in [&slice.lower, &slice.upper, &slice.step].into_iter().flatten() {
                    self.evaluate(part);
                }
                Value::Bool(None)
            }
            _ => literal(expression),
        }
    }

    /// A long sum is nested as deeply as it is long, to the left.
    fn sum(&mut self, expression: &'a Expr) -> Value {
        let (mut sums, mut first) = (Vec::new(), expression);
        while let Expr::BinOp(operation) = first {
            sums.push((first, operation));
            first = &operation.left;
        }
        let first = self.evaluate(first);
        sums.into_iter().rev().fold(first, |left, (whole, operation)| {
            let right = self.evaluate(&operation.right);
            self.binary(whole, operation.op, &operation.right, left, right).reading()
        })
    }

    fn choice(&mut self, choice: &'a ExprIf) -> Value {
        let branches = self.quietly(|quiet| quiet.classify(&choice.test, &[]));
        self.test(&choice.test);
        let (body, orelse) = (&*choice.body, &*choice.orelse);
        let one = self.within(Frame::Guard(branches.when_true), body.range(), |inside| inside.may_be(body));
        let other = self.within(Frame::Guard(branches.when_false), orelse.range(), |inside| inside.may_be(orelse));
        let both = one.join(&other);
        self.note_either(&both);
        match (one.reading(), other.reading()) {
            // `args.workers if posix else 0`: either one.
            (Value::Unknown, Value::Number { sized, .. }) | (Value::Number { sized, .. }, Value::Unknown) => {
                Value::Number { known: None, sized }
            }
            _ => both,
        }
    }

    fn list(&mut self, elements: &'a [Expr]) -> Value {
        let elements: Vec<Value> = elements.iter().map(|one| self.evaluate(one)).collect();
        // `[generator, critic]`, `[train_loader, eval_loader]`: a few values that are tracked separately.
        let is_own = |value: &Value| matches!(value, Value::Model(_) | Value::Loader(_) | Value::Optimizer(Some(_)));
        match elements.len() > 1 && elements.iter().any(is_own) {
            true => Value::tuple(elements),
            false => Value::list(Value::any_of(&elements)),
        }
    }

    fn binary(
        &mut self,
        whole: &'a Expr,
        operator: Operator,
        right_node: &'a Expr,
        left: Value,
        right: Value,
    ) -> Value {
        if operator == Operator::MatMult {
            return self.product(whole, &left, &right);
        }
        if operator == Operator::Mod && matches!(left, Value::Text(_)) {
            if right.surely_holds_device() {
                self.note_shown(right_node, Value::DEVICE);
            }
            return Value::Text(None);
        }
        if operator == Operator::Div && right == Value::Clock {
            self.note_speed(whole, right_node);
            return Value::NUMBER;
        }
        match (&left, &right) {
            (Value::Number { known: Some(one), .. }, Value::Number { known: Some(two), .. }) => {
                let known = match operator {
                    Operator::Add => one.checked_add(*two),
                    Operator::Sub => one.checked_sub(*two),
                    Operator::Mult => one.checked_mul(*two),
                    Operator::FloorDiv => one.checked_div(*two),
                    _ => None,
                };
                Value::Number { known, sized: true }
            }
            _ => self.combine(&left, &right),
        }
    }

    /// Records a value that becomes part of a text.
    pub(super) fn note_shown(&mut self, expression: &'a Expr, value: Value) {
        if let Some(statement) = self.noted() {
            self.program.notes.shown.push(Look { expression, statement, context: self.context, value });
        }
    }

    /// The result of arithmetic on two values.
    pub(super) fn combine(&mut self, left: &Value, right: &Value) -> Value {
        match (left, right) {
            (Value::Tensor(one), Value::Tensor(two)) => {
                // Adding a bias or a mask to scores gives scores; weights combined with anything else are no longer a
                // softmax's.
                let stands = |tensor: &Tensor| matches!(tensor.stage, Stage::Scores(_));
                let stage =
                    [one, two].into_iter().find(|tensor| stands(tensor)).map_or(Stage::Plain, |tensor| tensor.stage);
                let constant = matches!((one.origin, two.origin), (Origin::Constant(_), Origin::Constant(_)));
                // Random numbers on the host combine only with host tensors, so the guess that the other one is on the
                // device was wrong.
                let drawn = |tensor: &Tensor| {
                    tensor.placement == Placement::Host && matches!(tensor.origin, Origin::Factory(_))
                };
                let is_host = drawn(one) && two.is_assumed() || drawn(two) && one.is_assumed();
                let both = one.placement.max(two.placement).max(Placement::Host);
                let placement = if is_host { Placement::Host } else { both };
                self.tensor(Tensor {
                    placement,
                    graph: one.graph || two.graph,
                    boolean: one.boolean && two.boolean,
                    origin: if constant { one.origin } else { made_of([one, two].into_iter()) },
                    stage,
                    // Arithmetic with a tensor gives a tensor.
                    evidence: one.evidence.max(two.evidence),
                })
            }
            (Value::Tensor(tensor), _) | (_, Value::Tensor(tensor)) => {
                let stage = if tensor.stage == Stage::Parameter { Stage::Plain } else { tensor.stage };
                self.tensor(Tensor { stage, boolean: false, ..tensor.clone() })
            }
            (Value::Clock, _) | (_, Value::Clock) => Value::Clock,
            (Value::Numpy, _) | (_, Value::Numpy) => Value::Numpy,
            (Value::Number { sized: one, .. }, Value::Number { sized: two, .. }) => {
                Value::Number { known: None, sized: *one && *two }
            }
            (Value::Number { sized, .. }, Value::Bool(_)) | (Value::Bool(_), Value::Number { sized, .. }) => {
                Value::Number { known: None, sized: *sized }
            }
            (Value::Number { .. }, Value::Unknown) | (Value::Unknown, Value::Number { .. }) => Value::Unknown,
            (Value::List(one), Value::List(two)) => Value::list(one.join(two)),
            (Value::List(_), _) => left.clone(),
            (Value::Text(_), _) => Value::Text(None),
            (Value::Tuple(one), Value::Tuple(two)) => Value::tuple(one.iter().chain(two).cloned().collect()),
            (Value::External(name), other) | (other, Value::External(name)) if Role::OfPython.fits(name) => {
                other.clone()
            }
            _ => left.join(right),
        }
    }

    /// `left @ right`, where the stages of hand-written attention are recognized.
    pub(super) fn product(&mut self, whole: &'a Expr, left: &Value, right: &Value) -> Value {
        let stage = match (left.tensor().map(|one| one.stage), right.tensor().map(|two| two.stage)) {
            // Values may be transposed as well: heads before positions.
            (Some(Stage::Weights(weights)), Some(values))
                if !matches!(values, Stage::Weights(_) | Stage::Scores(_)) =>
            {
                if let Some(statement) = self.noted() {
                    let context = self.context;
                    self.program.notes.products.push(Product { expression: whole, statement, context, weights });
                }
                Stage::Plain
            }
            (Some(_), Some(Stage::Transposed)) => Stage::Scores(whole.range()),
            _ => Stage::Plain,
        };
        match self.combine(left, right) {
            Value::Tensor(tensor) => Value::Tensor(Tensor { stage, boolean: false, origin: Origin::Data, ..tensor }),
            other => other,
        }
    }

    fn note_speed(&mut self, whole: &'a Expr, divisor: &'a Expr) {
        let start = match divisor {
            Expr::BinOp(difference) if difference.op == Operator::Sub => name_of(&difference.right),
            // `elapsed = time.time() - start` earlier.
            elapsed => name_of(elapsed).and_then(|name| self.elapsed_since.get(name).copied()),
        };
        if let (Some(start), Some(_)) = (start, self.noted()) {
            let speed = Speed { expression: whole, context: self.context, start };
            self.program.notes.speeds.push(speed);
        }
    }

    fn compare(&mut self, compare: &'a ExprCompare) -> Value {
        let left = self.evaluate(&compare.left);
        let rights: Vec<Value> = compare.comparators.iter().map(|right| self.evaluate(right)).collect();
        let by_identity =
            compare.ops.iter().all(|op| matches!(op, CmpOp::Is | CmpOp::IsNot | CmpOp::In | CmpOp::NotIn));
        let all = || rights.iter().chain([&left]);
        let with_text = all().any(|value| matches!(value, Value::Nothing | Value::Text(_)));
        let strength = |tensor: &&Tensor| (tensor.placement == Placement::Device, tensor.evidence);
        if !by_identity
            && !with_text
            && let Some(tensor) = all().filter_map(Value::tensor).max_by_key(strength)
        {
            let made = || made_of(all().filter_map(Value::tensor));
            let origin = if all().all(Value::is_sized) { tensor.origin } else { made() };
            return Value::Tensor(Tensor {
                boolean: true,
                graph: false,
                stage: Stage::Plain,
                origin,
                ..tensor.clone()
            });
        }
        if all().any(|value| *value == Value::Numpy) {
            return Value::Numpy;
        }
        let branches = self.quietly(|quiet| quiet.classify_compare(compare));
        match (branches.when_true, branches.when_false) {
            // `step % 10 == 0` bound to a name stays a cadence.
            (Guard::Cadence, _) => Value::Cadence,
            (_, Guard::Fallback) => Value::Capability,
            _ => Value::Bool(None),
        }
    }

    fn subscript(&mut self, subscript: &'a ExprSubscript) -> Value {
        let (base, index) = self.parts_of(subscript, None);
        match (&base, &index) {
            (Value::Dict { entries, element }, Value::Text(Some(key))) => {
                let known = entries.get(key).cloned();
                // A function stored under another key is not this one.
                let is_others = !entries.is_empty() && !element.functions().is_empty();
                known.unwrap_or_else(|| match is_others {
                    true => Value::Unknown,
                    false if names_text(key) => Value::Text(None),
                    false => (**element).clone(),
                })
            }
            (Value::Dict { element, entries }, _) => {
                entries.values().fold((**element).clone(), |all, value| all.join(value))
            }
            (Value::Tuple(elements), Value::Number { known: Some(at), .. }) => {
                let at = if *at < 0 { elements.len() as i64 + at } else { *at };
                usize::try_from(at).ok().and_then(|at| elements.get(at).cloned()).unwrap_or(Value::Unknown)
            }
            (Value::List(_) | Value::Parameters { .. }, _) if matches!(&*subscript.slice, Expr::Slice(_)) => base,
            // `batch["dataset_name"]`
            (Value::Tensor(_), Value::Text(Some(key))) if names_text(key) => Value::Text(None),
            (Value::Tensor(tensor), _) => {
                // `boxes[:, 4]`: a list cannot be indexed like that.
                let evidence = if asks_for_slices(&subscript.slice) { Evidence::Seen } else { tensor.evidence };
                // Indexed by data, the result is data.
                let origin =
                    if index.tensor().is_some() || index == Value::Unknown { Origin::Data } else { tensor.origin };
                // Gathering rows copies them into memory that is not pinned.
                let placement = match tensor.placement {
                    Placement::Pinned if index.tensor().is_some() => Placement::Host,
                    placement => placement,
                };
                Value::Tensor(Tensor { placement, stage: Stage::Plain, evidence, origin, ..tensor.clone() })
            }
            (Value::Loader(_) | Value::Unknown | Value::Module(_), _) => Value::Unknown,
            (Value::Model(_), _) => Value::Model(None),
            _ => base.element(),
        }
    }

    /// Evaluates and records a subscript's base and index, with the value stored into it.
    pub(super) fn parts_of(&mut self, node: &'a ExprSubscript, stored: Option<&Value>) -> (Value, Value) {
        let (base, index) = (self.evaluate(&node.value), self.evaluate(&node.slice));
        if let Some(statement) = self.noted() {
            let (context, stored) = (self.context, stored.cloned().map(Value::reading));
            let noted = Subscript { node, statement, context, base: base.clone(), index: index.clone(), stored };
            self.program.notes.subscripts.push(noted);
        }
        (base, index)
    }

    fn dictionary(&mut self, dict: &'a ruff_python_ast::ExprDict) -> Value {
        let mut entries = Entries::new();
        let mut element = Value::Unknown;
        for item in &dict.items {
            let value = self.may_be(&item.value);
            match item.key.as_ref().map(|key| self.evaluate(key)) {
                Some(Value::Text(Some(key))) => drop(entries.insert(key, value)),
                Some(_) => element = element.join(&value),
                None => match value.reading() {
                    Value::Dict { entries: more, element: inner } => {
                        entries.extend(more);
                        element = element.join(&inner);
                    }
                    other => element = element.join(&other),
                },
            }
        }
        Value::dict(entries, element)
    }

    /// `yield from loader` iterates over all of it.
    fn note_whole_pass(&mut self, iterated: &'a Expr, value: &Value) {
        let Some(statement) = self.noted().filter(|_| matches!(value, Value::Loader(_))) else { return };
        let context = self.within(Frame::Loop(LoopKind::Plain), iterated.range(), |inside| inside.context);
        let (target, iterated, value) = (None, Some(iterated), value.clone());
        let loaders = value.loaders();
        self.program.notes.loops.push(Loop { statement, target, iterated, value, loaders, body: &[], context });
    }

    fn comprehension(
        &mut self,
        generators: &'a [Comprehension],
        range: TextRange,
        inside: impl FnOnce(&mut Self) -> Value,
    ) -> Value {
        let Some((first, rest)) = generators.split_first() else {
            return inside(self);
        };
        let iterated = self.evaluate(&first.iter);
        let kind = match self.loop_kind(&first.iter, &iterated) {
            // `[step(batch) for batch in loader]` iterates over batches like any loop.
            LoopKind::Plain if matches!(iterated, Value::Loader(_)) => LoopKind::Plain,
            LoopKind::Plain => LoopKind::WithinStep,
            kind => kind,
        };
        let element = self.element_of(&iterated);
        let outer = self.names.clone();
        let result = self.within(Frame::Loop(kind), range, |nested| {
            nested.assign(&first.target, element);
            for condition in &first.ifs {
                nested.test(condition);
            }
            nested.comprehension(rest, range, inside)
        });
        self.names = outer;
        match (kind, result) {
            // A filtered list of parameters stays one: `[p for p in model.parameters() if p.grad is not None]`.
            (LoopKind::Parameters, Value::List(element)) if is_parameter(&element) => {
                Value::Parameters { named: false }
            }
            (_, result) => result,
        }
    }
}

/// The origin of a result: made here if all its operands were made on the host here, as in `torch.rand(n) < p`.
pub(super) fn made_of<'t>(parts: impl Iterator<Item = &'t Tensor>) -> Origin {
    let made = |part: &Tensor| match (part.placement, part.origin) {
        (Placement::Host, Origin::Factory(range) | Origin::Constant(range)) => Some(range),
        _ => None,
    };
    let all: Option<Vec<TextRange>> = parts.map(made).collect();
    all.and_then(|all| all.first().copied()).map_or(Origin::Data, Origin::Factory)
}

/// `[:, 4]`, `[..., None]`.
fn asks_for_slices(index: &Expr) -> bool {
    let is_slice = |part: &Expr| matches!(part, Expr::Slice(_) | Expr::EllipsisLiteral(_));
    matches!(index, Expr::Tuple(parts) if parts.elts.iter().any(is_slice))
}

fn is_parameter(value: &Value) -> bool {
    value.tensor().is_some_and(|tensor| tensor.stage == Stage::Parameter)
}

/// Keys whose last word means text.
fn names_text(key: &str) -> bool {
    let last = key.rsplit(['_', '-', '.', '/']).next().unwrap_or_default().to_ascii_lowercase();
    Role::TextKey.fits(last.trim_end_matches('s'))
}
