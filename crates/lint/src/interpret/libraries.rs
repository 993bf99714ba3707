//! Return values of library functions, mainly torch's.

use super::expressions::made_of;
use super::factories::is_factory;
use super::*;

/// Marks a distribution whose parameters are plain numbers.
const DRAWN: &str = "of_numbers";

impl<'p, 'a> Interpreter<'p, 'a> {
    pub(super) fn library_call(&mut self, node: &'a ExprCall, dotted: &str, arguments: &Arguments<'a>) -> Value {
        let (library, rest) = dotted.split_once('.').unwrap_or((dotted, ""));
        let last = dotted.rsplit('.').next().unwrap_or(dotted);
        // The modules between a library and its function do not matter.
        let effect = Owner::Library.effect(&format!("{library}.{last}"));
        let effect = effect.or_else(|| Owner::Library.effect_of_part(dotted));
        let is_sized = || arguments.all().all(Value::is_sized);
        match effect {
            Effect::Builtins => self.builtin_call(last, arguments),
            Effect::Torch => self.torch_call(node, rest, last, arguments),
            Effect::SizedArray if is_sized() => Value::SIZE,
            Effect::SizedArray => Value::Numpy,
            Effect::Sized => Value::Number { known: None, sized: is_sized() },
            Effect::First => arguments.first(),
            Effect::Iterates => match arguments.first() {
                same @ (Value::Loader(_) | Value::Parameters { .. }) => same,
                other => Value::list(self.element_of(&other)),
            },
            Effect::Partial => self.partial(arguments),
            Effect::Deepspeed => {
                let model = arguments.keyword(Role::ModelOption.word()).cloned();
                let model = model.filter(|model| *model != Value::Unknown).unwrap_or(Value::Model(None));
                Value::Tuple(vec![model, Value::Optimizer(None), Value::Loader(None), Value::Scheduler])
            }
            Effect::TensorOf => self.tensor_of(arguments),
            Effect::MakesLoader => self.make_loader(node, arguments),
            Effect::ModelOrTensor => self.model_or_tensor(last, arguments),
            Effect::Pretrained if Role::NotPretrained.fits(dotted) => Value::Unknown,
            Effect::Pretrained => Value::Model(None),
            _ => effect.value().unwrap_or_else(|| match Role::HostLibrary.fits(library) {
                true => Value::Unknown,
                false => self.unknown_call(last, arguments),
            }),
        }
    }

    fn model_or_tensor(&mut self, last: &str, arguments: &Arguments) -> Value {
        let is_class = last.starts_with(|first: char| first.is_ascii_uppercase());
        if is_class { Value::Model(None) } else { self.tensor_of(arguments) }
    }

    /// A tensor in the same place as the arguments' tensors.
    pub(super) fn tensor_of(&mut self, arguments: &Arguments) -> Value {
        let all = || arguments.all().flat_map(tensors_in);
        match all().map(|tensor| tensor.placement.max(Placement::Host)).max() {
            Some(placement) => {
                self.tensor(Tensor { placement, graph: all().any(|tensor| tensor.graph), ..Tensor::ON_DEVICE })
            }
            None => Value::Unknown,
        }
    }

    fn builtin_call(&mut self, name: &str, arguments: &Arguments<'a>) -> Value {
        let first = arguments.first();
        let effect = Owner::Builtin.effect(name);
        match (effect, first) {
            (Effect::Integer, number @ Value::Number { .. }) => number,
            (Effect::Rounds, tensor @ Value::Tensor(_)) => tensor,
            (Effect::Integer | Effect::Rounds | Effect::Sized, value) => {
                Value::Number { known: None, sized: value.is_sized() }
            }
            (Effect::Enumerates, first) => Value::list(Value::tuple(vec![Value::NUMBER, self.element_of(&first)])),
            (Effect::Zips, _) => {
                let elements = arguments.positional.iter().map(|value| self.element_of(value)).collect();
                Value::list(Value::tuple(elements))
            }
            (Effect::Iterates, loader @ Value::Loader(_)) => loader,
            (Effect::Iterates | Effect::Collects, same @ (Value::Parameters { .. } | Value::Tuple(_))) => same,
            (Effect::Iterates | Effect::Collects, value) => Value::list(self.element_of(&value)),
            (Effect::Element, first) => self.element_of(&first),
            (Effect::Filters, _) => match arguments.positional.get(1) {
                Some(value @ Value::Parameters { .. }) => value.clone(),
                Some(value) => Value::list(self.element_of(value)),
                None => Value::Unknown,
            },
            (Effect::Reduces, first) if arguments.positional.len() == 1 => match self.element_of(&first) {
                Value::Tensor(tensor) => Value::Tensor(Tensor { stage: Stage::Plain, ..tensor }),
                value @ Value::Number { .. } => value,
                _ => Value::Unknown,
            },
            (Effect::Reduces, _) => match arguments.all().find(|value| value.holds_device()) {
                Some(value) => value.clone(),
                None => Value::Number { known: None, sized: arguments.all().all(Value::is_sized) },
            },
            (Effect::Dictionary, first) => dictionary_of(first, arguments),
            (Effect::GetsAttribute, owner) => self.named_attribute(owner, arguments.positional.get(1)),
            (effect, _) => effect.value().unwrap_or(Value::Unknown),
        }
    }

    /// `getattr(owner, name)`.
    fn named_attribute(&mut self, owner: Value, name: Option<&Value>) -> Value {
        match (name, owner) {
            (Some(Value::Text(Some(name))), Value::Instance(class) | Value::Model(Some(class))) => {
                self.member(class, name).unwrap_or(Value::Unknown)
            }
            // `getattr(metrics, name)`: one of the file's functions.
            (_, Value::Module(file)) => self.one_of(file),
            // `getattr(np, name)(values)` is some function of numpy.
            (Some(Value::Text(_)), Value::External(library)) => Value::External(format!("{library}.getattr")),
            _ => Value::Unknown,
        }
    }

    fn torch_call(&mut self, node: &'a ExprCall, rest: &str, last: &str, arguments: &Arguments<'a>) -> Value {
        if let Some(value) = self.distribution(node, rest, last, arguments) {
            return value;
        }
        let effect = Owner::Torch.effect(rest).or_else(|| Owner::Torch.effect(last));
        let answers = || api::torch_function(rest).is_some_and(api::Row::answers);
        if effect == Effect::Other && (Role::Question.fits(last) || answers()) {
            return Value::Bool(None);
        }
        match (effect.or_else(|| Owner::Torch.effect_of_part(rest)), arguments.first()) {
            (Effect::MakesLoader, _) => self.make_loader(node, arguments),
            (Effect::Splits, dataset) => match arguments.get(Role::LengthsOption.word(), 1) {
                Some(Value::Tuple(cuts)) => Value::tuple(vec![dataset; cuts.len()]),
                _ => Value::list(dataset),
            },
            // A dataset of device tensors counts as a device tensor; otherwise it is a dataset like any other.
            (Effect::TensorDataset, _) if arguments.all().any(Value::holds_device) => Value::DEVICE,
            (Effect::TensorDataset, _) => Value::External(Role::TensorDataset.word().to_string()),
            (Effect::MakesOptimizer, _) => Value::Optimizer(Some(self.make_site(node))),
            (Effect::MakesScaler, _) => Value::Scaler(Some(self.make_site(node))),
            (Effect::Wraps, Value::Unknown) => {
                arguments.keyword(Role::ModuleOption.word()).cloned().unwrap_or(Value::Model(None))
            }
            // Modules in a list keep their class.
            (Effect::ModuleList, Value::List(element)) if matches!(*element, Value::Model(Some(_))) => {
                Value::List(element)
            }
            (Effect::ModuleList, _) => Value::Model(None),
            // The host, selected by name.
            (Effect::DeviceName, Value::Text(Some(name))) if Role::HostDevice.fits(&name) => Value::Text(Some(name)),
            (Effect::HostData, _) => self.host_data_to_tensor(node, arguments),
            (Effect::TypedTensor, _) => self.typed_tensor(node, rest, arguments),
            (Effect::ModelOrTensor, _) => self.model_or_tensor(last, arguments),
            (Effect::TensorOf, _) => self.tensor_of(arguments),
            // Once wrapped a tensor, now returns it.
            (Effect::Same, Value::Unknown) => self.tensor_function(node, last, arguments),
            (Effect::Wraps | Effect::Same | Effect::First, first) => first,
            (effect, _) => match effect.value() {
                Some(value) => value,
                None if is_factory(rest) => self.factory(node, rest, arguments),
                None => self.tensor_function(node, last, arguments),
            },
        }
    }

    /// `Beta(a, a).sample()`: with plain numbers as parameters, it draws on the host.
    fn distribution(&mut self, node: &'a ExprCall, rest: &str, last: &str, arguments: &Arguments<'a>) -> Option<Value> {
        let name = Role::Distributions.rest_of(rest)?;
        if name.starts_with(DRAWN) && Role::DrawsSample.fits(last) {
            return Some(Value::Tensor(Tensor { origin: Origin::Factory(node.range()), ..Tensor::ON_HOST }));
        }
        let is_class = last.starts_with(|first: char| first.is_ascii_uppercase());
        let is_host = |value: &Value| {
            let is_there = |tensor: &Tensor| tensor.placement == Placement::Host && !tensor.is_assumed();
            value.is_sized() || value.tensor().is_some_and(is_there)
        };
        let of_numbers = is_class && arguments.all().next().is_some() && arguments.all().all(is_host);
        of_numbers.then(|| Value::External(format!("torch.{}{DRAWN}", Role::Distributions.word())))
    }

    fn tensor_function(&mut self, node: &'a ExprCall, last: &str, arguments: &Arguments<'a>) -> Value {
        let subject = match arguments.first() {
            Value::Unknown => arguments.keyword(Role::InputOption.word()).cloned().unwrap_or(Value::Unknown),
            value => value,
        };
        let shaped = Owner::Tensor.effect(last);
        let effect = Owner::Torch.effect(last).or_else(|| shaped);
        match (effect, &subject) {
            (Effect::Product, subject) => {
                let right = arguments.positional.get(1).cloned().unwrap_or(Value::Unknown);
                return match self.whole(node) {
                    Some(whole) => self.product(whole, subject, &right),
                    None => self.tensor_of(arguments),
                };
            }
            (Effect::Triangle | Effect::Transposes | Effect::Softmax, Value::Tensor(tensor)) => {
                return self.transformed(node, effect, tensor.clone(), &Value::Unknown);
            }
            (Effect::Like, Value::Unknown) => return Value::DEVICE,
            // Only the shape of the argument matters.
            (Effect::Like, Value::Tensor(tensor)) => {
                let constant = arguments.positional.iter().skip(1).all(Value::is_sized);
                let origin = if constant { Origin::Constant(node.range()) } else { Origin::Data };
                let boolean = super::factories::makes_mask(node);
                return Value::Tensor(Tensor { placement: tensor.placement, origin, boolean, ..Tensor::ON_DEVICE });
            }
            (Effect::Joins, subject) => return self.joined(node, subject, arguments),
            (Effect::Chooses, _) => {
                let is_scores = |tensor: &&Tensor| matches!(tensor.stage, Stage::Scores(_));
                let kept = arguments.all().filter_map(Value::tensor).find(is_scores);
                if let (Some(kept), Value::Tensor(tensor)) =
                    (kept.map(|tensor| tensor.stage), self.tensor_of(arguments))
                {
                    return Value::Tensor(Tensor { stage: kept, ..tensor });
                }
            }
            (Effect::Einsum, _) => {
                if let Some(value) = self.einsum(node, arguments) {
                    return value;
                }
            }
            (Effect::Keeps, Value::Tensor(_)) if shaped == Effect::Other => return subject,
            _ => {}
        }
        self.function_of_tensors(last, &subject, arguments)
    }

    /// `torch.cat([a, b])`: new memory, even if its parts are pinned.
    fn joined(&mut self, node: &'a ExprCall, parts: &Value, arguments: &Arguments<'a>) -> Value {
        match self.element_of(parts) {
            Value::Tensor(tensor) => {
                let placement = tensor.placement.max(Placement::Host);
                let origin = match tensor.origin {
                    Origin::Data if placement == Placement::Host => self.made_part(node).unwrap_or(Origin::Data),
                    origin => origin,
                };
                self.tensor(Tensor { stage: Stage::Plain, placement, origin, ..tensor })
            }
            Value::Number { .. } => Value::HOST,
            _ => self.tensor_of(arguments),
        }
    }

    /// The result of any other function.
    fn function_of_tensors(&mut self, last: &str, subject: &Value, arguments: &Arguments<'a>) -> Value {
        let boolean = is_boolean_operation(last);
        if let Value::Tensor(tensor) = subject
            && matches!(tensor.origin, Origin::Constant(_))
            && arguments.all().all(Value::is_sized)
        {
            return Value::Tensor(Tensor { boolean, ..tensor.clone() });
        }
        match self.tensor_of(arguments) {
            Value::Tensor(tensor) => {
                let origin = made_of(arguments.all().filter_map(Value::tensor));
                Value::Tensor(Tensor { boolean, origin, graph: tensor.graph && !boolean, ..tensor })
            }
            // torch functions of unknown values: the result is where the model is.
            Value::Unknown if arguments.all().any(|value| *value == Value::Unknown) => {
                self.tensor(Tensor { boolean, ..Tensor::WITH_GRAPH })
            }
            other => other,
        }
    }

    /// `einsum("bhid,bhjd->bhij", q, k)` gives scores, `einsum("bhij,bhjd->bhid", weights, v)` applies the weights.
    fn einsum(&mut self, node: &'a ExprCall, arguments: &Arguments<'a>) -> Option<Value> {
        let [Value::Text(Some(equation)), left, right] = arguments.positional.as_slice() else { return None };
        let (inputs, output) = equation.split_once("->")?;
        let (first, second) = inputs.split_once(',')?;
        // `bct,bcs->bts`: one index is summed over, and each operand has one index of its own.
        let own = |of: &str, other: &str| {
            of.chars().any(|index| index.is_alphabetic() && !other.contains(index) && output.contains(index))
        };
        let summed: Vec<char> =
            first.chars().filter(|index| second.contains(*index) && !output.contains(*index)).collect();
        let is_between = summed.len() == 1 && own(first, second) && own(second, first);
        let right = match right {
            // Both operands carry the summed index, so the second counts as transposed.
            Value::Tensor(tensor) if is_between => Value::Tensor(Tensor { stage: Stage::Transposed, ..tensor.clone() }),
            Value::Tensor(tensor) => Value::Tensor(Tensor { stage: Stage::Plain, ..tensor.clone() }),
            _ => return None,
        };
        let whole = self.whole(node)?;
        Some(self.product(whole, left, &right))
    }

    pub(super) fn softmax(&mut self, tensor: Tensor, node: &'a ExprCall) -> Value {
        let stage = match tensor.stage {
            Stage::Scores(scores) => Stage::Weights(scores.cover(node.range())),
            _ => Stage::Plain,
        };
        Value::Tensor(Tensor { stage, boolean: false, origin: Origin::Data, ..tensor })
    }

    /// The call as an expression of the tree, found through the current statement.
    pub(super) fn whole(&self, node: &'a ExprCall) -> Option<&'a Expr> {
        find_expression(self.statement?, node.range())
    }
}

/// `dict(other, key=value, **more)`.
fn dictionary_of(first: Value, arguments: &Arguments) -> Value {
    let mut entries = match first {
        Value::Dict { entries, .. } => entries,
        _ => Entries::new(),
    };
    let mut element = Value::Unknown;
    for (keyword, value) in &arguments.keywords {
        match (keyword, value) {
            (Some(keyword), value) => drop(entries.insert(keyword.to_string(), value.clone())),
            (None, Value::Dict { entries: more, .. }) => entries.extend(more.clone()),
            (None, value) => element = element.join(value),
        }
    }
    Value::dict(entries, element)
}

fn tensors_in(value: &Value) -> Vec<&Tensor> {
    match value {
        Value::Tensor(tensor) => vec![tensor],
        Value::Tuple(elements) => elements.iter().flat_map(tensors_in).collect(),
        Value::List(element) => tensors_in(element),
        _ => Vec::new(),
    }
}
