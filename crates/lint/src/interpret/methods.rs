//! Methods of values: mainly tensors, then containers, modules, optimizers, loaders.

use ruff_python_ast::{Expr, ExprCall};
use ruff_text_size::Ranged;

use super::Interpreter;
use super::arguments::Arguments;
use super::operations::{self, is_boolean_operation};
use super::placement::placement_named;
use crate::value::{Evidence, Origin, Placement, Role, Tensor, Value};

impl<'p, 'a> Interpreter<'p, 'a> {
    pub(super) fn method_call(
        &mut self,
        node: &'a ExprCall,
        receiver: &Value,
        name: &str,
        arguments: &Arguments<'a>,
    ) -> Value {
        if super::names::is_question(name) {
            return Value::Bool(None);
        }
        if name == "backward" {
            self.note_backward(node, receiver);
        }
        match receiver {
            Value::Tensor(tensor) => self.tensor_method(node, tensor.clone(), name, arguments),
            Value::List(_) | Value::Dict { .. } | Value::Tuple(_) => {
                self.container_method(node, receiver, name, arguments)
            }
            Value::Model(class) => self.model_method(*class, name, receiver, arguments),
            Value::Parameters { .. } => receiver.clone(),
            Value::Numpy => match name {
                "item" | "mean" | "sum" | "std" | "tolist" => Value::NUMBER,
                _ => Value::Numpy,
            },
            Value::Optimizer(_) if name == "step" => Value::Unknown,
            Value::Scaler(_) if name == "scale" => arguments.first(),
            Value::Loader(id) => match name {
                "__iter__" | "batch" | "shuffle" | "unbatched" => Value::Loader(*id),
                "__next__" | "next" | "next_batch" => self.element_of(receiver),
                _ => Value::Unknown,
            },
            Value::Text(_) => {
                if name == "format" {
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
        let Expr::Attribute(method) = &*node.func else { return };
        let Expr::Name(loss) = &*method.value else { return };
        // `engine.backward(loss)`: the gradients are those of its argument.
        if !node.arguments.args.is_empty() {
            return;
        }
        let known = match receiver {
            Value::Tensor(tensor) if tensor.is_assumed() => {
                Value::Tensor(Tensor { evidence: Evidence::Seen, ..tensor.clone() })
            }
            Value::Unknown if self.names.contains_key(loss.id.as_str()) => Value::DEVICE,
            _ => return,
        };
        self.names.insert(loss.id.as_str(), known);
    }

    fn tensor_method(&mut self, node: &'a ExprCall, tensor: Tensor, name: &str, arguments: &Arguments<'a>) -> Value {
        // A value that is moved to a device, or has methods that only tensors have, is a tensor.
        let is_known = operations::is_tensor_method(name) || matches!(name, "to" | "cuda");
        let tensor = Tensor { evidence: if is_known { Evidence::Seen } else { tensor.evidence }, ..tensor };
        match name {
            "item" => Value::NUMBER,
            "tolist" => Value::list(Value::NUMBER),
            "numpy" => Value::Numpy,
            "cpu" => Value::Tensor(Tensor { placement: Placement::Host, ..tensor }),
            "cuda" => Value::Tensor(tensor.moved_to(Placement::Device)),
            "to" => match self.moves_to(node, arguments) {
                Some(Placement::Device) => Value::Tensor(tensor.moved_to(Placement::Device)),
                Some(placement) => Value::Tensor(Tensor { placement, ..tensor }),
                // `torch.zeros(n, 1).to(x)`: moves to wherever `x` is.
                None if is_made_here(&tensor) && follows_another(node, arguments) => {
                    Value::Tensor(tensor.moved_to(Placement::Device))
                }
                None => Value::Tensor(Tensor { boolean: false, ..tensor }),
            },
            "type_as" => match arguments.first().tensor().map_or(tensor.placement, |other| other.placement) {
                Placement::Device => Value::Tensor(tensor.moved_to(Placement::Device)),
                placement => Value::Tensor(Tensor { placement, ..tensor }),
            },
            // `.type(torch.cuda.FloatTensor)`
            "type" if matches!(arguments.first(), Value::External(name) if name.contains(".cuda.")) => {
                Value::Tensor(Tensor { boolean: false, ..tensor.moved_to(Placement::Device) })
            }
            // `.type(torch.FloatTensor)`: a host type.
            "type" if matches!(arguments.first(), Value::External(name) if is_host_type(&name)) => {
                Value::Tensor(Tensor { placement: Placement::Host, boolean: false, ..tensor })
            }
            "pin_memory" => Value::Tensor(Tensor { placement: Placement::Pinned, origin: Origin::Data, ..tensor }),
            "detach" | "detach_" => Value::Tensor(Tensor { graph: false, ..tensor }),
            "size" | "stride" => {
                if arguments.positional.is_empty() && name == "size" {
                    Value::list(Value::SIZE)
                } else {
                    Value::SIZE
                }
            }
            "dim" | "numel" | "nelement" | "ndimension" | "element_size" | "get_device" | "storage_offset" => {
                Value::SIZE
            }
            // Without an argument it returns the type's name, which tells where the tensor is: `.type(x.type())` moves
            // there.
            "type"
                if arguments.positional.is_empty()
                    && arguments.keywords.is_empty()
                    && tensor.placement == Placement::Device =>
            {
                Value::External("torch.cuda.FloatTensor".to_string())
            }
            "type" if arguments.positional.is_empty() && arguments.keywords.is_empty() => Value::Text(None),
            "backward" | "register_hook" => Value::Nothing,
            "is_floating_point" | "is_contiguous" | "is_complex" | "is_pinned" | "equal" => Value::Bool(None),
            "startswith" | "endswith" | "isdigit" => Value::Bool(None),
            "lower" | "upper" | "strip" | "replace" | "format" | "join" | "capitalize" => Value::Text(None),
            "keys" => Value::list(Value::Text(None)),
            "items" => Value::list(Value::tuple(vec![Value::Text(None), Value::Tensor(tensor)])),
            "values" | "tuple" | "to_tuple" => Value::list(Value::Tensor(tensor)),
            "transpose" | "permute" | "t" | "swapaxes" | "transpose_" => {
                Value::Tensor(Tensor { role: Role::Transposed, ..tensor })
            }
            "softmax" => self.softmax(tensor, node),
            "matmul" | "bmm" | "mm" => {
                let right = arguments.first();
                match self.whole(node) {
                    Some(whole) => self.product(whole, &Value::Tensor(tensor), &right),
                    None => Value::Tensor(tensor),
                }
            }
            "triu" | "tril" | "triu_" | "tril_" => {
                let origin = match tensor.origin {
                    Origin::Constant(_) => Origin::Constant(node.range()),
                    _ => Origin::Data,
                };
                Value::Tensor(Tensor { origin, ..tensor })
            }
            "masked_fill" | "masked_fill_" | "div" | "div_" | "mul" | "mul_" | "add" | "add_" | "sub" | "clamp"
            | "clamp_" => {
                let constant = arguments.all().all(Value::is_sized);
                let device = arguments.all().any(Value::is_on_device);
                let graph = tensor.graph || arguments.all().any(Value::carries_graph);
                let placement = if device { Placement::Device } else { tensor.placement };
                let origin = if constant { tensor.origin } else { Origin::Data };
                let role = if tensor.role == Role::Parameter { Role::Plain } else { tensor.role };
                self.tensor(Tensor { placement, graph, origin, role, ..tensor })
            }
            "new_zeros" | "new_ones" | "new_full" | "new_tensor" | "new_empty" => {
                let constant = arguments.positional.iter().all(Value::is_sized)
                    && matches!(name, "new_full" | "new_ones" | "new_zeros");
                let origin = if constant { Origin::Constant(node.range()) } else { Origin::Data };
                Value::Tensor(Tensor { placement: tensor.placement, origin, ..Tensor::ON_DEVICE })
            }
            // Shape changes keep the tensor's role.
            "view" | "reshape" | "unsqueeze" | "squeeze" | "expand" | "contiguous" | "clone" | "repeat" | "flatten"
            | "expand_as" | "view_as" | "reshape_as" | "chunk" | "split" | "float" | "half" | "bfloat16" | "double"
            | "long" | "int" | "type" | "unbind" | "narrow" => {
                let role = match tensor.role {
                    Role::Transposed
                        if matches!(name, "view" | "reshape" | "expand" | "flatten" | "chunk" | "split") =>
                    {
                        Role::Plain
                    }
                    role => role,
                };
                let boolean =
                    tensor.boolean && !matches!(name, "float" | "half" | "long" | "int" | "double" | "bfloat16");
                Value::Tensor(Tensor { role, boolean, ..tensor })
            }
            "bool" => Value::Tensor(Tensor { boolean: true, graph: false, ..tensor }),
            // Overwrites the old contents.
            "fill_" | "zero_"
                if matches!(tensor.origin, Origin::Factory(_) | Origin::Constant(_))
                    && arguments.all().all(Value::is_sized) =>
            {
                Value::Tensor(Tensor { origin: Origin::Constant(node.range()), ..tensor })
            }
            _ => {
                // An in-place operation on a mask gives a mask.
                let keeps = operations::keeps_masks(name) || name.ends_with('_');
                let boolean = is_boolean_operation(name) || tensor.boolean && keeps;
                let device = tensor.placement == Placement::Device || arguments.all().any(Value::is_on_device);
                // The result is new, and not pinned.
                let placement = if device { Placement::Device } else { Placement::Host };
                // Filled in place with random numbers, the tensor keeps the origin of its storage.
                let is_drawn = matches!(name, "normal_" | "uniform_" | "random_" | "bernoulli_" | "exponential_");
                let constant = arguments.all().all(Value::is_sized) || is_drawn;
                let origin = match tensor.origin {
                    _ if !constant => Origin::Data,
                    Origin::Constant(made) if is_drawn => Origin::Factory(made),
                    origin => origin,
                };
                let graph = (tensor.graph || arguments.all().any(Value::carries_graph)) && !boolean;
                let evidence = match operations::may_be_tensor_method(name) {
                    true => tensor.evidence,
                    false => Evidence::Assumed,
                };
                self.tensor(Tensor { placement, graph, boolean, origin, role: Role::Plain, evidence })
            }
        }
    }

    /// Where `.to(…)` moves the tensor; `None` where it only changes the type.
    pub(super) fn moves_to(&self, node: &'a ExprCall, arguments: &Arguments) -> Option<Placement> {
        let argument = node.arguments.find_argument_value("device", 0)?;
        let value = arguments.keyword("device").or_else(|| arguments.positional.first());
        placement_named(argument, value)
    }

    fn container_method(
        &mut self,
        node: &'a ExprCall,
        receiver: &Value,
        name: &str,
        arguments: &Arguments<'a>,
    ) -> Value {
        match (receiver, name) {
            (Value::List(_), "append" | "add" | "insert" | "appendleft") => {
                let added = arguments.positional.last().cloned().unwrap_or(Value::Unknown);
                self.hold(node, receiver, Value::list(added));
                Value::Nothing
            }
            (Value::List(_), "extend") => {
                let added = self.element_of(&arguments.first());
                self.hold(node, receiver, Value::list(added));
                Value::Nothing
            }
            (Value::List(element), "parameters") if matches!(**element, Value::Model(_)) => {
                Value::Parameters { named: false }
            }
            (Value::List(element), "pop") => (**element).clone(),
            (Value::List(element), "numel" | "count" | "index") if **element == Value::SIZE => Value::SIZE,
            (Value::Dict { entries, element }, "update" | "setdefault") => {
                let mut entries = entries.clone();
                let mut element = (**element).clone();
                let added = arguments
                    .keywords
                    .iter()
                    .filter_map(|(keyword, value)| Some(((*keyword)?.to_string(), value.clone())));
                entries.extend(added);
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
            (Value::Dict { entries, element }, _) => {
                let all = Value::any_of(entries.iter().map(|(_, value)| value).chain([&**element])).reading();
                match name {
                    "items" => Value::list(Value::tuple(vec![Value::Text(None), all])),
                    "values" => Value::list(all),
                    "get" | "pop" => match arguments.first() {
                        Value::Text(Some(key)) => {
                            entries.iter().find(|(known, _)| *known == key).map_or(all, |(_, value)| value.clone())
                        }
                        _ => all,
                    },
                    "copy" => receiver.clone(),
                    "to" => Value::dict(Vec::new(), Value::DEVICE),
                    _ => Value::Unknown,
                }
            }
            (_, "copy") => receiver.clone(),
            _ => Value::Unknown,
        }
    }

    /// Adds to a container's contents, by its name or as an attribute of one of the given classes.
    fn hold(&mut self, node: &'a ExprCall, container: &Value, added: Value) {
        if let Some(owner) = owner_of(node) {
            let held = self.names.get(owner).unwrap_or(container).join(&added);
            self.names.insert(owner, held);
            return;
        }
        let Expr::Attribute(method) = &*node.func else { return };
        let Expr::Attribute(attribute) = &*method.value else { return };
        self.hold_as(attribute, added);
    }

    /// Like [`Self::hold`], for an attribute.
    pub(super) fn hold_as(&mut self, attribute: &'a ruff_python_ast::ExprAttribute, added: Value) {
        if let Value::Instance(class) | Value::Model(Some(class)) =
            self.quietly(|quiet| quiet.evaluate(&attribute.value))
        {
            self.outcome.store(class, attribute.attr.as_str(), added);
        }
    }

    fn model_method(&mut self, class: Option<usize>, name: &str, receiver: &Value, arguments: &Arguments<'a>) -> Value {
        match name {
            "parameters" => Value::Parameters { named: false },
            "named_parameters" => Value::Parameters { named: true },
            "to" | "cuda" | "cpu" | "train" | "eval" | "half" | "float" | "bfloat16" | "requires_grad_" | "compile"
            | "apply" => receiver.clone(),
            "state_dict" | "named_modules" | "named_buffers" => Value::Unknown,
            "modules" | "children" | "named_children" => Value::list(Value::Model(None)),
            "buffers" => Value::list(Value::DEVICE),
            "register_buffer" => {
                if let (Some(class), Some(Value::Text(Some(attribute)))) = (class, arguments.positional.first()) {
                    let key = self.attribute_key(class, attribute);
                    if let Some(key) = key {
                        self.outcome.store(class, key, Value::DEVICE);
                    }
                }
                Value::Nothing
            }
            "log" | "log_dict" | "zero_grad" | "load_state_dict" | "register_parameter" => Value::Nothing,
            "optimizers" => Value::Optimizer(None),
            "manual_backward" => Value::Nothing,
            "step" | "backward" => Value::Unknown,
            // `model.loss_and_metrics(batch)`: perhaps numbers besides the loss.
            _ if name.split('_').any(|word| word.starts_with("metric")) => self.tensor(Tensor::GUESS),
            _ if arguments.all().any(Value::holds_device) || arguments.all().any(|value| value.tensor().is_some()) => {
                self.tensor(Tensor::WITH_GRAPH)
            }
            _ => Value::Unknown,
        }
    }

    /// The attribute's name as a slice of the file's text, so that it lives as long as the tree.
    fn attribute_key(&self, class: usize, attribute: &str) -> Option<&'a str> {
        let definition = self.program.sources.symbols.classes[class].definition;
        let file = &self.program.sources.files[self.program.sources.symbols.classes[class].file];
        let text: &'a str = file.slice(definition.range());
        text.find(attribute).map(|at| &text[at..at + attribute.len()])
    }

    fn unknown_method(&mut self, node: &'a ExprCall, name: &str, arguments: &Arguments<'a>) -> Value {
        match name {
            "parameters" => Value::Parameters { named: false },
            "named_parameters" => Value::Parameters { named: true },
            "param_groups" => Value::Unknown,
            "size" => {
                if arguments.positional.is_empty() {
                    Value::list(Value::SIZE)
                } else {
                    Value::SIZE
                }
            }
            "dim" | "numel" => Value::SIZE,
            "item" => Value::NUMBER,
            "numpy" => Value::Numpy,
            "to" | "cuda" | "cpu" if is_made_by_factory(node) => Value::Model(None),
            "cpu" => Value::HOST,
            "cuda" => Value::DEVICE,
            "to" => match self.moves_to(node, arguments) {
                Some(Placement::Device) => Value::DEVICE,
                Some(_) => Value::HOST,
                None => Value::Unknown,
            },
            // accelerate and fabric return their arguments, ready to use.
            "prepare" | "setup" | "setup_dataloaders" | "prepare_data_loader" | "prepare_model" => {
                match arguments.positional.as_slice() {
                    [one] => one.clone(),
                    several => Value::tuple(several.to_vec()),
                }
            }
            "unwrap_model" => arguments.first(),
            "keys" | "state_dict" | "log" | "add_scalar" | "update" | "append" | "write" | "info" | "debug" => {
                Value::Unknown
            }
            "items" => Value::list(Value::tuple(vec![Value::Text(None), Value::Unknown])),
            "sample" | "get_batch" | "next_batch" => Value::Unknown,
            _ => self.unknown_call(name, arguments),
        }
    }
}

/// The name that a method is called on.
fn owner_of(node: &ExprCall) -> Option<&str> {
    let Expr::Attribute(method) = &*node.func else { return None };
    match &*method.value {
        Expr::Name(owner) => Some(owner.id.as_str()),
        _ => None,
    }
}

/// Whether a factory made the tensor on the host.
fn is_made_here(tensor: &Tensor) -> bool {
    tensor.placement == Placement::Host && matches!(tensor.origin, Origin::Constant(_) | Origin::Factory(_))
}

/// Whether the only argument is an unknown name that does not denote a type.
fn follows_another(node: &ExprCall, arguments: &Arguments) -> bool {
    let is_other = |name: &str| !name.to_ascii_lowercase().contains("type");
    match (&*node.arguments.args, arguments.positional.as_slice()) {
        ([Expr::Name(other)], [Value::Unknown]) => node.arguments.keywords.is_empty() && is_other(other.id.as_str()),
        _ => false,
    }
}

/// `build_loss(options).to(device)`: functions with such names make modules.
fn is_made_by_factory(node: &ExprCall) -> bool {
    let Expr::Attribute(method) = &*node.func else { return false };
    let Expr::Call(made) = &*method.value else { return false };
    let name = match &*made.func {
        Expr::Name(name) => name.id.as_str(),
        Expr::Attribute(attribute) => attribute.attr.as_str(),
        _ => return false,
    };
    // `library.Model(options).to(device)`, but not a batch of tensors.
    if name.starts_with(|first: char| first.is_ascii_uppercase()) {
        return !["Tensor", "Data", "Batch", "Graph", "Dict", "Encoding", "Input", "Inputs"]
            .iter()
            .any(|container| name.ends_with(container));
    }
    let what = ["build_", "create_", "make_", "get_", "load_"].iter().find_map(|verb| name.strip_prefix(verb));
    what.is_some_and(|what| {
        super::names::is_model_name(what) || super::names::is_criterion_name(what) || what.ends_with("loss")
    })
}

/// `torch.FloatTensor`.
fn is_host_type(name: &str) -> bool {
    let last = name.strip_prefix("torch.").unwrap_or_default();
    last.ends_with("Tensor") && last.len() > "Tensor".len() && !last.contains('.')
}
