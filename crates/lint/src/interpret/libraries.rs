//! Return values of library functions, mainly torch's.

use ruff_python_ast::ExprCall;
use ruff_text_size::Ranged;

use super::Interpreter;
use super::arguments::Arguments;
use super::expressions::made_of;
use super::factories::is_factory;
use super::operations::is_boolean_operation;
use crate::api;
use crate::value::{Origin, Placement, Role, Tensor, Value};
use crate::vocabulary;

/// Marks a distribution whose parameters are plain numbers.
const DRAWN: &str = "of_numbers";

impl<'p, 'a> Interpreter<'p, 'a> {
    pub(super) fn library_call(&mut self, node: &'a ExprCall, dotted: &str, arguments: &Arguments<'a>) -> Value {
        let (library, rest) = dotted.split_once('.').unwrap_or((dotted, ""));
        let last = dotted.rsplit('.').next().unwrap_or(dotted);
        match library {
            "builtins" => self.builtin_call(last, arguments),
            "torch" => self.torch_call(node, rest, last, arguments),
            "numpy" => match arguments.first() {
                _ if matches!(last, "prod" | "sqrt" | "log" | "ceil" | "floor")
                    && arguments.all().all(Value::is_sized) =>
                {
                    Value::SIZE
                }
                _ => Value::Numpy,
            },
            "math" => Value::Number { known: None, sized: arguments.all().all(Value::is_sized) },
            "time" => match last {
                "time" | "perf_counter" | "monotonic" | "process_time" | "time_ns" => Value::Clock,
                _ => Value::Nothing,
            },
            "timeit" if last == "default_timer" => Value::Clock,
            "datetime" if last == "now" => Value::Clock,
            "os" if last == "cpu_count" => Value::SIZE,
            "random" => Value::NUMBER,
            "tqdm" | "rich" => arguments.first(),
            "itertools" => match arguments.first() {
                _ if last == "product" => Value::Unknown,
                Value::Loader(id) => Value::Loader(id),
                Value::Parameters { named } => Value::Parameters { named },
                other => Value::list(self.element_of(&other)),
            },
            "copy" => arguments.first(),
            "functools" if last == "partial" => self.partial(arguments),
            "deepspeed" if last == "initialize" => {
                let model = arguments.keyword("model").cloned().unwrap_or(Value::Model(None));
                let model = if model == Value::Unknown { Value::Model(None) } else { model };
                Value::Tuple(vec![model, Value::Optimizer(None), Value::Loader(None), Value::Scheduler])
            }
            "einops" | "torch_scatter" | "torch_sparse" | "xformers" | "flash_attn" => self.tensor_of(arguments),
            "timm" if last == "create_model" => Value::Model(None),
            "torchvision" if rest.starts_with("models") => Value::Model(None),
            "transformers" if last.starts_with("get_") && last.contains("schedule") => Value::Scheduler,
            "transformers" if rest.contains("AdamW") || last.contains("Adafactor") => Value::Optimizer(None),
            "torch_geometric" if last == "DataLoader" => self.make_loader(node, arguments),
            "torch_geometric" if last.contains("Loader") => Value::Loader(None),
            "torch_geometric" if rest.starts_with("nn.") => self.model_or_tensor(last, arguments),
            _ if last == "from_pretrained" || last == "from_config" => {
                let is_model = !["Token", "Processor", "Config", "Extractor", "Scheduler", "Pipeline"]
                    .iter()
                    .any(|part| dotted.contains(part));
                if is_model { Value::Model(None) } else { Value::Unknown }
            }
            _ if vocabulary::is(vocabulary::Role::HostLibrary, library) => Value::Unknown,
            _ if last == "tqdm" || last == "trange" => arguments.first(),
            _ => self.unknown_call(last, arguments),
        }
    }

    fn model_or_tensor(&mut self, last: &str, arguments: &Arguments) -> Value {
        let is_class = last.starts_with(|first: char| first.is_ascii_uppercase());
        if is_class { Value::Model(None) } else { self.tensor_of(arguments) }
    }

    /// A tensor in the same place as the arguments' tensors.
    pub(super) fn tensor_of(&mut self, arguments: &Arguments) -> Value {
        let all = || arguments.all().flat_map(tensors_in);
        let placement = match all().any(|tensor| tensor.placement == Placement::Device) {
            true => Placement::Device,
            false if all().next().is_some() => Placement::Host,
            false => return Value::Unknown,
        };
        self.tensor(Tensor { placement, graph: all().any(|tensor| tensor.graph), ..Tensor::ON_DEVICE })
    }

    fn builtin_call(&mut self, name: &str, arguments: &Arguments<'a>) -> Value {
        let first = arguments.first();
        match name {
            "len" => Value::SIZE,
            "int" | "float" | "round" | "abs" | "pow" => match first {
                Value::Number { known, sized } if name == "int" => Value::Number { known, sized },
                Value::Tensor(tensor) if matches!(name, "abs" | "pow" | "round") => Value::Tensor(tensor),
                value => Value::Number { known: None, sized: value.is_sized() },
            },
            "bool" | "isinstance" | "hasattr" | "any" | "all" | "callable" => {
                if name == "hasattr" {
                    Value::Capability
                } else {
                    Value::Bool(None)
                }
            }
            "str" | "repr" | "format" | "type" => Value::Text(None),
            "range" => Value::list(Value::NUMBER),
            "enumerate" => {
                let element = self.element_of(&first);
                Value::list(Value::tuple(vec![Value::NUMBER, element]))
            }
            "zip" => {
                let elements = arguments.positional.iter().map(|value| self.element_of(value)).collect();
                Value::list(Value::tuple(elements))
            }
            "list" | "tuple" | "set" | "sorted" | "reversed" | "iter" => match first {
                Value::Loader(id) if name == "iter" => Value::Loader(id),
                value @ (Value::Parameters { .. } | Value::Tuple(_)) => value,
                value => {
                    let element = self.element_of(&value);
                    Value::list(element)
                }
            },
            "next" => self.element_of(&first),
            "filter" => match arguments.positional.get(1) {
                Some(value @ Value::Parameters { .. }) => value.clone(),
                Some(value) => Value::list(self.element_of(value)),
                None => Value::Unknown,
            },
            "map" => Value::list(Value::Unknown),
            "sum" | "max" | "min" => match arguments.positional.len() {
                1 => match self.element_of(&first) {
                    Value::Tensor(tensor) => Value::Tensor(Tensor { role: Role::Plain, ..tensor }),
                    value @ Value::Number { .. } => value,
                    _ => Value::Unknown,
                },
                _ => {
                    let sized = arguments.all().all(Value::is_sized);
                    match arguments.all().find(|value| value.holds_device()) {
                        Some(value) => value.clone(),
                        None => Value::Number { known: None, sized },
                    }
                }
            },
            "dict" => {
                let mut entries: Vec<(String, Value)> = match first {
                    Value::Dict { entries, .. } => entries,
                    _ => Vec::new(),
                };
                let mut element = Value::Unknown;
                for (keyword, value) in &arguments.keywords {
                    match (keyword, value) {
                        (Some(keyword), value) => entries.push((keyword.to_string(), value.clone())),
                        (None, Value::Dict { entries: more, .. }) => entries.extend(more.clone()),
                        (None, value) => element = element.join(value),
                    }
                }
                Value::dict(entries, element)
            }
            "open" | "print" => Value::Unknown,
            "getattr" => match (&arguments.positional.get(1), first) {
                (Some(Value::Text(Some(name))), Value::Instance(class) | Value::Model(Some(class))) => {
                    self.member(class, name).unwrap_or(Value::Unknown)
                }
                // `getattr(metrics, name)`: one of the file's functions.
                (_, Value::Module(file)) => self.one_of(file),
                // `getattr(np, name)(values)` is some function of numpy.
                (Some(Value::Text(_)), Value::External(library)) => Value::External(format!("{library}.getattr")),
                _ => Value::Unknown,
            },
            _ => Value::Unknown,
        }
    }

    fn torch_call(&mut self, node: &'a ExprCall, rest: &str, last: &str, arguments: &Arguments<'a>) -> Value {
        if rest == "utils.data.DataLoader" || rest == "utils.data.dataloader.DataLoader" {
            return self.make_loader(node, arguments);
        }
        match rest {
            "utils.data.random_split" | "utils.data.dataset.random_split" => {
                let (dataset, cuts) = (arguments.first(), arguments.get("lengths", 1).cloned());
                return match cuts {
                    Some(Value::Tuple(cuts)) => Value::tuple(vec![dataset; cuts.len()]),
                    _ => Value::list(dataset),
                };
            }
            "utils.data.Subset" | "utils.data.dataset.Subset" => return arguments.first(),
            // A dataset of device tensors counts as a device tensor; otherwise it is a dataset like any other.
            "utils.data.TensorDataset" | "utils.data.dataset.TensorDataset"
                if arguments.all().any(Value::holds_device) =>
            {
                return Value::DEVICE;
            }
            "utils.data.TensorDataset" | "utils.data.dataset.TensorDataset" => {
                return Value::External("torch.utils.data.TensorDataset".to_string());
            }
            _ if rest.starts_with("utils.data.") => return Value::Unknown,
            _ => {}
        }
        // `Beta(a, a).sample()`: with plain numbers as parameters, it draws on the host.
        if let Some(name) = rest.strip_prefix("distributions.") {
            if name.starts_with(DRAWN) && matches!(last, "sample" | "rsample") {
                let origin = Origin::Factory(node.range());
                return Value::Tensor(Tensor { origin, ..Tensor::ON_HOST });
            }
            let is_class = last.starts_with(|first: char| first.is_ascii_uppercase());
            let is_host = |value: &Value| {
                value.is_sized()
                    || matches!(value, Value::Tensor(tensor) if tensor.placement == Placement::Host && !tensor.is_assumed())
            };
            if is_class && arguments.all().next().is_some() && arguments.all().all(is_host) {
                return Value::External(format!("torch.distributions.{DRAWN}"));
            }
        }
        if rest.starts_with("optim.lr_scheduler") {
            return Value::Scheduler;
        }
        if rest.starts_with("optim.") && !rest.contains("swa_utils") {
            return Value::Optimizer(Some(self.make_site(node)));
        }
        let answers = || api::torch_function(rest).is_some_and(|row| row.returns == api::Kinds::BOOL);
        if super::names::is_question(last) || answers() {
            return Value::Bool(None);
        }
        match last {
            "GradScaler" | "ShardedGradScaler" => return Value::Scaler(Some(self.make_site(node))),
            "DistributedDataParallel"
            | "DataParallel"
            | "FullyShardedDataParallel"
            | "compile"
            | "convert_sync_batchnorm"
            | "script"
            | "AveragedModel"
            | "checkpoint_wrapper" => {
                return match arguments.first() {
                    Value::Unknown => arguments.keyword("module").cloned().unwrap_or(Value::Model(None)),
                    value => value,
                };
            }
            // Modules in a list keep their class.
            "ModuleList" => {
                if let Value::List(element) = arguments.first()
                    && matches!(*element, Value::Model(Some(_)))
                {
                    return Value::List(element);
                }
            }
            // The host, selected by name.
            "device" if matches!(arguments.first(), Value::Text(Some(name)) if name == "cpu") => {
                return arguments.first();
            }
            "device" => return Value::Device,
            // Once wrapped a tensor, now returns it.
            "Variable" if rest == "autograd.Variable" => {
                return match arguments.first() {
                    Value::Unknown => self.tensor_function(node, last, arguments),
                    value => value,
                };
            }
            "Parameter" => return Value::Tensor(Tensor::PARAMETER),
            "tensor" | "as_tensor" | "from_numpy" | "frombuffer" => {
                return self.host_data_to_tensor(node, arguments);
            }
            "Tensor" | "FloatTensor" | "LongTensor" | "IntTensor" | "BoolTensor" | "ByteTensor" | "HalfTensor"
            | "DoubleTensor" => {
                return self.typed_tensor(node, rest, arguments);
            }
            "Size" => return Value::list(Value::SIZE),
            "load" | "hub" | "finfo" | "iinfo" | "get_default_dtype" | "Generator" => return Value::Unknown,
            _ => {}
        }
        if rest.starts_with("cuda.") || rest.starts_with("distributed.get_") || rest.starts_with("backends") {
            return Value::NUMBER;
        }
        if rest.starts_with("nn.") && !rest.starts_with("nn.functional") && !rest.starts_with("nn.utils") {
            return self.model_or_tensor(last, arguments);
        }
        if rest.starts_with("nn.utils") {
            return match last {
                "clip_grad_norm_" | "get_total_norm" | "clip_grad_norm" => Value::DEVICE,
                "parameters_to_vector" => Value::DEVICE,
                _ => arguments.first(),
            };
        }
        if is_factory(rest) {
            return self.factory(node, rest, arguments);
        }
        self.tensor_function(node, last, arguments)
    }

    fn tensor_function(&mut self, node: &'a ExprCall, last: &str, arguments: &Arguments<'a>) -> Value {
        let first = arguments.first();
        let subject = match &first {
            Value::Unknown => arguments.keyword("input").cloned().unwrap_or(Value::Unknown),
            value => value.clone(),
        };
        match last {
            "matmul" | "bmm" => {
                let right = arguments.positional.get(1).cloned().unwrap_or(Value::Unknown);
                let whole = self.whole(node);
                return match whole {
                    Some(whole) => self.product(whole, &subject, &right),
                    None => self.tensor_of(arguments),
                };
            }
            "triu" | "tril" => {
                if let Value::Tensor(tensor) = subject {
                    let origin = match tensor.origin {
                        Origin::Constant(_) => Origin::Constant(node.range()),
                        _ => Origin::Data,
                    };
                    return Value::Tensor(Tensor { origin, ..tensor });
                }
            }
            "ones_like" | "zeros_like" | "full_like" if subject == Value::Unknown => return Value::DEVICE,
            // Only the shape of the argument matters.
            "ones_like" | "zeros_like" | "full_like" => {
                if let Value::Tensor(tensor) = subject {
                    let constant = arguments.positional.iter().skip(1).all(Value::is_sized);
                    let origin = if constant { Origin::Constant(node.range()) } else { Origin::Data };
                    let boolean = super::factories::makes_mask(node);
                    return Value::Tensor(Tensor { placement: tensor.placement, origin, boolean, ..Tensor::ON_DEVICE });
                }
            }
            "stack" | "cat" | "concat" | "hstack" | "vstack" => {
                let element = self.element_of(&subject);
                return match element {
                    Value::Tensor(tensor) => {
                        // A tensor assembled from pinned parts is new and not pinned.
                        let placement =
                            if tensor.placement == Placement::Pinned { Placement::Host } else { tensor.placement };
                        let origin = match tensor.origin {
                            Origin::Data if placement == Placement::Host => {
                                self.made_part(node).unwrap_or(Origin::Data)
                            }
                            origin => origin,
                        };
                        self.tensor(Tensor { role: Role::Plain, placement, origin, ..tensor })
                    }
                    Value::Number { .. } => Value::HOST,
                    _ => self.tensor_of(arguments),
                };
            }
            "transpose" | "permute" | "swapaxes" => {
                if let Value::Tensor(tensor) = subject {
                    return Value::Tensor(Tensor { role: Role::Transposed, ..tensor });
                }
            }
            "softmax" | "log_softmax" => {
                if let Value::Tensor(tensor) = subject {
                    return self.softmax(tensor, node);
                }
            }
            "where" => {
                let kept =
                    arguments.all().filter_map(Value::tensor).find(|tensor| matches!(tensor.role, Role::Scores(_)));
                if let (Some(kept), Value::Tensor(tensor)) = (kept.map(|tensor| tensor.role), self.tensor_of(arguments))
                {
                    return Value::Tensor(Tensor { role: kept, ..tensor });
                }
            }
            "einsum" => {
                if let Some(value) = self.einsum(node, arguments) {
                    return value;
                }
            }
            "dropout" => {
                if let Value::Tensor(tensor) = subject {
                    return Value::Tensor(tensor);
                }
            }
            "save" | "manual_seed" | "set_default_dtype" => return Value::Nothing,
            _ => {}
        }
        let boolean = is_boolean_operation(last);
        if let Value::Tensor(tensor) = &subject
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
            Value::Tensor(tensor) if is_between => Value::Tensor(Tensor { role: Role::Transposed, ..tensor.clone() }),
            Value::Tensor(tensor) => Value::Tensor(Tensor { role: Role::Plain, ..tensor.clone() }),
            _ => return None,
        };
        let whole = self.whole(node)?;
        Some(self.product(whole, left, &right))
    }

    pub(super) fn softmax(&mut self, tensor: Tensor, node: &'a ExprCall) -> Value {
        let role = match tensor.role {
            Role::Scores(scores) => Role::Weights(scores.cover(node.range())),
            _ => Role::Plain,
        };
        Value::Tensor(Tensor { role, boolean: false, origin: Origin::Data, ..tensor })
    }

    /// The call as an expression of the tree, found through the current statement.
    pub(super) fn whole(&self, node: &'a ExprCall) -> Option<&'a ruff_python_ast::Expr> {
        crate::find_expression(self.statement?, node.range())
    }
}

fn tensors_in(value: &Value) -> Vec<&Tensor> {
    match value {
        Value::Tensor(tensor) => vec![tensor],
        Value::Tuple(elements) => elements.iter().flat_map(tensors_in).collect(),
        Value::List(element) => tensors_in(element),
        _ => Vec::new(),
    }
}
