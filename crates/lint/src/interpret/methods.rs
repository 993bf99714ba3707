//! Methods of values: mainly tensors, then containers, modules, optimizers, loaders.

use super::names::may_be_tensor_method;
use super::*;

impl<'p, 'a> Interpreter<'p, 'a> {
    pub(super) fn method_call(
        &mut self,
        node: &'a ExprCall,
        receiver: &Value,
        name: &str,
        arguments: &Arguments<'a>,
    ) -> Value {
        if Role::Question.fits(name) {
            return Value::Bool(None);
        }
        if Role::Backward.fits(name) {
            self.note_backward(node, receiver);
        }
        match receiver {
            Value::Tensor(tensor) => self.tensor_method(node, tensor.clone(), name, arguments),
            Value::List(element) => self.list_method(node, element, name, arguments),
            Value::Dict { entries, element } => self.dict_method(node, entries, element, name, arguments),
            Value::Tuple(_) => Value::Unknown,
            Value::Model(class) => self.model_method(*class, name, receiver, arguments),
            Value::Parameters { .. } => receiver.clone(),
            Value::Numpy => Owner::Array.effect(name).value().unwrap_or(Value::Numpy),
            Value::Optimizer(_) if Role::StepMethod.fits(name) => Value::Unknown,
            Value::Scaler(_) if Role::Scales.fits(name) => arguments.first(),
            Value::Loader(_) => match Owner::Loader.effect(name) {
                Effect::Same => receiver.clone(),
                Effect::Element => self.element_of(receiver),
                _ => Value::Unknown,
            },
            Value::Text(_) => {
                if Role::Formats.fits(name) {
                    self.note_format(node, arguments);
                }
                Value::Text(None)
            }
            Value::Device | Value::Number { .. } | Value::Clock => receiver.clone(),
            // `(predicted == labels).sum()`: a value with methods is a tensor or an array, not a Python bool.
            _ => self.unknown_method(node, name, arguments),
        }
    }

    /// Records each device value formatted into the text.
    fn note_format(&mut self, node: &'a ExprCall, arguments: &Arguments<'a>) {
        let positional = node.arguments.args.iter().zip(&arguments.positional);
        let keywords = node.arguments.keywords.iter().zip(&arguments.keywords);
        let all = positional.chain(keywords.map(|(keyword, (_, value))| (&keyword.value, value)));
        for (expression, _) in all.filter(|(_, value)| value.surely_holds_device()) {
            self.note_shown(expression, Value::DEVICE);
        }
    }

    /// Marks a name whose `backward` is called as a tensor from here on.
    fn note_backward(&mut self, node: &'a ExprCall, receiver: &Value) {
        // `engine.backward(loss)`: the gradients are those of its argument.
        let Some(loss) = owner_of(node).filter(|_| node.arguments.args.is_empty()) else { return };
        let known = match receiver {
            Value::Tensor(tensor) if tensor.is_assumed() => {
                Value::Tensor(Tensor { evidence: Evidence::Seen, ..tensor.clone() })
            }
            Value::Unknown if self.names.contains_key(loss) => Value::DEVICE,
            _ => return,
        };
        self.names.insert(loss, known);
    }

    fn tensor_method(&mut self, node: &'a ExprCall, tensor: Tensor, name: &str, arguments: &Arguments<'a>) -> Value {
        let effect = Owner::Tensor.effect(name);
        // A value that is moved to a device, or has methods that only tensors have, is a tensor.
        let is_known = Role::TensorMethod.fits(name) || matches!(effect, Effect::Moves | Effect::ToDevice);
        let tensor = Tensor { evidence: if is_known { Evidence::Seen } else { tensor.evidence }, ..tensor };
        if let Some(value) = effect.value() {
            return value;
        }
        match effect {
            Effect::Sizes if arguments.positional.is_empty() => Value::list(Value::SIZE),
            Effect::Sizes => Value::SIZE,
            Effect::Detaches => Value::Tensor(Tensor { graph: false, ..tensor }),
            Effect::Items => Value::list(Value::tuple(vec![Value::Text(None), Value::Tensor(tensor)])),
            Effect::Values => Value::list(Value::Tensor(tensor)),
            Effect::Product | Effect::Triangle | Effect::Transposes | Effect::Softmax => {
                self.transformed(node, effect, tensor, &arguments.first())
            }
            Effect::Adjusts => self.adjusted(tensor, arguments),
            Effect::New | Effect::NewConstant => {
                let constant = effect == Effect::NewConstant && arguments.positional.iter().all(Value::is_sized);
                let origin = if constant { Origin::Constant(node.range()) } else { Origin::Data };
                Value::Tensor(Tensor { placement: tensor.placement, origin, ..Tensor::ON_DEVICE })
            }
            // Shape changes keep the tensor's stage.
            Effect::Reshapes if tensor.stage == Stage::Transposed => {
                Value::Tensor(Tensor { stage: Stage::Plain, ..tensor })
            }
            Effect::Reshapes | Effect::Keeps => Value::Tensor(tensor),
            Effect::Casts => Value::Tensor(Tensor { boolean: false, ..tensor }),
            // Overwrites the old contents.
            Effect::Fills
                if matches!(tensor.origin, Origin::Factory(_) | Origin::Constant(_))
                    && arguments.all().all(Value::is_sized) =>
            {
                Value::Tensor(Tensor { origin: Origin::Constant(node.range()), ..tensor })
            }
            Effect::ToHost | Effect::ToDevice | Effect::Moves | Effect::FollowsOther | Effect::Pins => {
                self.moved(node, effect, tensor, arguments)
            }
            Effect::Retypes => self.retyped(node, tensor, arguments),
            _ => self.computed(tensor, name, arguments),
        }
    }

    fn moved(&mut self, node: &'a ExprCall, effect: Effect, tensor: Tensor, arguments: &Arguments<'a>) -> Value {
        let placement = match effect {
            Effect::ToHost => Some(Placement::Host),
            Effect::ToDevice => Some(Placement::Device),
            Effect::Pins => {
                return Value::Tensor(Tensor { placement: Placement::Pinned, origin: Origin::Data, ..tensor });
            }
            Effect::FollowsOther => Some(arguments.first().tensor().map_or(tensor.placement, |other| other.placement)),
            _ => self.moves_to(node, arguments),
        };
        match placement {
            Some(placement) => Value::Tensor(tensor.moved_to(placement)),
            // `torch.zeros(n, 1).to(x)`: moves to wherever `x` is.
            None if is_made_here(&tensor) && follows_another(node, arguments) => {
                Value::Tensor(tensor.moved_to(Placement::Device))
            }
            None => Value::Tensor(Tensor { boolean: false, ..tensor }),
        }
    }

    /// `.type(torch.cuda.FloatTensor)`, which also moves.
    fn retyped(&mut self, node: &'a ExprCall, tensor: Tensor, arguments: &Arguments<'a>) -> Value {
        let is_asked = node.arguments.is_empty();
        match arguments.first() {
            // Without an argument it returns the type's name, which tells where the tensor is: `.type(x.type())` moves
            // there.
            _ if is_asked && tensor.placement == Placement::Device => {
                Value::External(Role::TypeOnDevice.word().to_string())
            }
            _ if is_asked => Value::Text(None),
            Value::External(name) if Role::DeviceType.fits(&name) => {
                Value::Tensor(Tensor { boolean: false, ..tensor.moved_to(Placement::Device) })
            }
            // `.type(torch.FloatTensor)`
            Value::External(name)
                if api::torch_name(&name).is_some_and(|name| Owner::Torch.effect(name) == Effect::TypedTensor) =>
            {
                Value::Tensor(Tensor { placement: Placement::Host, boolean: false, ..tensor })
            }
            _ => Value::Tensor(tensor),
        }
    }

    /// `q @ k`, `triu(x)`, `k.transpose(-2, -1)`, `softmax(scores)`: methods and functions alike.
    pub(super) fn transformed(&mut self, node: &'a ExprCall, effect: Effect, tensor: Tensor, other: &Value) -> Value {
        match effect {
            Effect::Product => match self.whole(node) {
                Some(whole) => self.product(whole, &Value::Tensor(tensor), other),
                None => Value::Tensor(tensor),
            },
            Effect::Triangle => {
                let origin = match tensor.origin {
                    Origin::Constant(_) => Origin::Constant(node.range()),
                    _ => Origin::Data,
                };
                Value::Tensor(Tensor { origin, ..tensor })
            }
            Effect::Transposes => Value::Tensor(Tensor { stage: Stage::Transposed, ..tensor }),
            _ => self.softmax(tensor, node),
        }
    }

    fn adjusted(&mut self, tensor: Tensor, arguments: &Arguments<'a>) -> Value {
        let constant = arguments.all().all(Value::is_sized);
        let device = arguments.all().any(Value::is_on_device);
        let graph = tensor.graph || arguments.all().any(Value::carries_graph);
        let placement = if device { Placement::Device } else { tensor.placement };
        let origin = if constant { tensor.origin } else { Origin::Data };
        let stage = if tensor.stage == Stage::Parameter { Stage::Plain } else { tensor.stage };
        self.tensor(Tensor { placement, graph, origin, stage, ..tensor })
    }

    /// The result of any other method.
    fn computed(&mut self, tensor: Tensor, name: &str, arguments: &Arguments<'a>) -> Value {
        // An in-place operation on a mask gives a mask.
        let keeps = Role::MaskToMask.fits(name) || name.ends_with('_');
        let boolean = is_boolean_operation(name) || tensor.boolean && keeps;
        let device = tensor.placement == Placement::Device || arguments.all().any(Value::is_on_device);
        // The result is new, and not pinned.
        let placement = if device { Placement::Device } else { Placement::Host };
        // Filled in place with random numbers, the tensor keeps the origin of its storage.
        let is_drawn = api::tensor_method(name).is_some_and(|row| row.draws && row.in_place);
        let constant = arguments.all().all(Value::is_sized) || is_drawn;
        let origin = match tensor.origin {
            _ if !constant => Origin::Data,
            Origin::Constant(made) if is_drawn => Origin::Factory(made),
            origin => origin,
        };
        let graph = (tensor.graph || arguments.all().any(Value::carries_graph)) && !boolean;
        let evidence = if may_be_tensor_method(name) { tensor.evidence } else { Evidence::Assumed };
        self.tensor(Tensor { placement, graph, boolean, origin, stage: Stage::Plain, evidence })
    }

    /// Where `.to(…)` moves the tensor; `None` where it only changes the type.
    pub(super) fn moves_to(&self, node: &'a ExprCall, arguments: &Arguments) -> Option<Placement> {
        placement_named(device_argument(node)?, arguments.get(Role::DeviceOption.word(), 0))
    }

    fn list_method(&mut self, node: &'a ExprCall, element: &Value, name: &str, arguments: &Arguments<'a>) -> Value {
        let list = || Value::list(element.clone());
        match Owner::List.effect(name) {
            effect @ (Effect::Appends | Effect::Extends) => {
                let added = match effect {
                    Effect::Appends => arguments.positional.last().cloned().unwrap_or(Value::Unknown),
                    _ => self.element_of(&arguments.first()),
                };
                self.hold(node, &list(), Value::list(added));
                Value::Nothing
            }
            Effect::Parameters if matches!(element, Value::Model(_)) => Value::Parameters { named: false },
            Effect::Element => element.clone(),
            Effect::Size if *element == Value::SIZE => Value::SIZE,
            Effect::Same => list(),
            _ => Value::Unknown,
        }
    }

    fn dict_method(
        &mut self,
        node: &'a ExprCall,
        entries: &Entries,
        element: &Value,
        name: &str,
        arguments: &Arguments<'a>,
    ) -> Value {
        let all = || Value::any_of(entries.values().chain([element])).reading();
        match Owner::Dict.effect(name) {
            Effect::Updates => {
                let (mut entries, mut element) = (entries.clone(), element.clone());
                let added = arguments.keywords.iter();
                entries.extend(added.filter_map(|(keyword, value)| Some(((*keyword)?.to_string(), value.clone()))));
                match arguments.first() {
                    Value::Dict { entries: more, element: other } => {
                        entries.extend(more);
                        element = element.join(&other);
                    }
                    Value::Unknown if arguments.keywords.is_empty() => element = element.join(&Value::Unknown),
                    _ => {}
                }
                if let Some(owner) = owner_of(node) {
                    self.names.insert(owner, Value::dict(entries, element));
                }
                Value::Nothing
            }
            Effect::GetsOrAdds => {
                let added = arguments.positional.get(1).cloned().unwrap_or(Value::Nothing);
                let before = Value::dict(entries.clone(), element.clone());
                self.hold(node, &before, Value::dict(Entries::new(), added.clone()));
                all().join(&added)
            }
            Effect::Items => Value::list(Value::tuple(vec![Value::Text(None), all()])),
            Effect::Values => Value::list(all()),
            Effect::Gets => match arguments.first() {
                Value::Text(Some(key)) => entries.get(&key).cloned().unwrap_or_else(all),
                _ => all(),
            },
            Effect::Same => Value::dict(entries.clone(), element.clone()),
            Effect::ToDevice => Value::dict(Entries::new(), Value::DEVICE),
            _ => Value::Unknown,
        }
    }

    /// Adds to a container's contents, by its name or as an attribute of one of the given classes.
    fn hold(&mut self, node: &'a ExprCall, container: &Value, added: Value) {
        if let Some(owner) = owner_of(node) {
            let held = self.names.get(owner).unwrap_or(container).join(&added);
            self.names.insert(owner, held);
        } else if let Some((Expr::Attribute(attribute), _)) = method_of(node) {
            self.hold_as(attribute, added);
        }
    }

    /// Like [`Self::hold`], for an attribute.
    pub(super) fn hold_as(&mut self, attribute: &'a ExprAttribute, added: Value) {
        if let Some(class) = self.class_of(&attribute.value) {
            self.outcome.store(class, attribute.attr.as_str(), added);
        }
    }

    /// The given class that the owner of an attribute is an instance of.
    pub(super) fn class_of(&mut self, owner: &'a Expr) -> Option<ClassId> {
        match self.quietly(|quiet| quiet.evaluate(owner)) {
            Value::Instance(class) | Value::Model(Some(class)) => Some(class),
            _ => None,
        }
    }

    fn model_method(&mut self, class: Option<usize>, name: &str, receiver: &Value, arguments: &Arguments<'a>) -> Value {
        let effect = Owner::Module.effect(name);
        match effect {
            Effect::Same => receiver.clone(),
            Effect::Collects => Value::list(Value::DEVICE),
            Effect::RegistersBuffer => {
                if let (Some(class), Some(Value::Text(Some(attribute)))) = (class, arguments.positional.first())
                    && let Some(key) = self.attribute_key(class, attribute)
                {
                    self.outcome.store(class, key, Value::DEVICE);
                }
                Value::Nothing
            }
            Effect::Other => {
                let takes_tensors = || arguments.all().any(|value| value.holds_device() || value.tensor().is_some());
                match Role::Metric.fits(name) {
                    // `model.loss_and_metrics(batch)`: perhaps numbers besides the loss.
                    true => self.tensor(Tensor::GUESS),
                    false if takes_tensors() => self.tensor(Tensor::WITH_GRAPH),
                    false => Value::Unknown,
                }
            }
            _ => effect.value().unwrap_or(Value::Unknown),
        }
    }

    /// The attribute's name as a slice of the file's text, so that it lives as long as the tree.
    fn attribute_key(&self, class: usize, attribute: &str) -> Option<&'a str> {
        let symbol = &self.program.sources.symbols.classes[class];
        let text: &'a str = self.program.sources.files[symbol.file].slice(symbol.definition.range());
        text.find(attribute).map(|at| &text[at..at + attribute.len()])
    }

    fn unknown_method(&mut self, node: &'a ExprCall, name: &str, arguments: &Arguments<'a>) -> Value {
        let effect = Owner::Unknown.effect(name);
        match effect {
            Effect::Sizes if arguments.positional.is_empty() => Value::list(Value::SIZE),
            Effect::Sizes => Value::SIZE,
            Effect::Moves | Effect::ToDevice | Effect::ToHost if is_made_by_factory(node) => Value::Model(None),
            Effect::ToHost => Value::HOST,
            Effect::ToDevice => Value::DEVICE,
            Effect::Moves => match self.moves_to(node, arguments) {
                Some(Placement::Device) => Value::DEVICE,
                Some(_) => Value::HOST,
                None => Value::Unknown,
            },
            // accelerate and fabric return their arguments, ready to use.
            Effect::Prepares => match arguments.positional.as_slice() {
                [one] => one.clone(),
                several => Value::tuple(several.to_vec()),
            },
            Effect::First => arguments.first(),
            Effect::Items => Value::list(Value::tuple(vec![Value::Text(None), Value::Unknown])),
            _ => effect.value().unwrap_or_else(|| self.unknown_call(name, arguments)),
        }
    }
}

/// The name that a method is called on.
fn owner_of(node: &ExprCall) -> Option<&str> {
    method_of(node).and_then(|(owner, _)| name_of(owner))
}

/// Whether a factory made the tensor on the host.
fn is_made_here(tensor: &Tensor) -> bool {
    tensor.placement == Placement::Host && matches!(tensor.origin, Origin::Constant(_) | Origin::Factory(_))
}

/// Whether the only argument is an unknown name that does not denote a type.
fn follows_another(node: &ExprCall, arguments: &Arguments) -> bool {
    match (&*node.arguments.args, arguments.positional.as_slice()) {
        ([Expr::Name(other)], [Value::Unknown]) => {
            node.arguments.keywords.is_empty() && !Role::TypeName.fits_any_case(other.id.as_str())
        }
        _ => false,
    }
}

/// `build_loss(options).to(device)`: functions with such names make modules.
fn is_made_by_factory(node: &ExprCall) -> bool {
    let Some((Expr::Call(made), _)) = method_of(node) else { return false };
    let Some(name) = last_name(&made.func) else { return false };
    // `library.Model(options).to(device)`, but not a batch of tensors.
    if name.starts_with(|first: char| first.is_ascii_uppercase()) {
        return !Role::TensorContainer.fits(name);
    }
    let made = Role::Makes.rest_of(name);
    made.is_some_and(|made| is_model_name(made) || Role::Criterion.fits_any_case(made) || is_loss_function_name(made))
}
