//! Calls: resolves the function, passes its arguments, returns its result.

use super::*;
use crate::topics;

enum Target {
    /// A value that is called itself.
    Called(Value),
    /// A class's function called on an instance: `self` is bound.
    Bound(usize),
    /// A method of a value that is not an instance of a given class.
    Method(Value),
}

impl<'p, 'a> Interpreter<'p, 'a> {
    pub(super) fn call(&mut self, node: &'a ExprCall) -> Value {
        // `warnings.warn(…)`, `logger.error(…)`: called when something is wrong, not at every step.
        if method_of(node).is_some_and(|(_, name)| Role::Warns.fits(name)) {
            return self.within(Frame::Guard(Guard::Once), node.range(), |inside| inside.run_call(node));
        }
        self.run_call(node)
    }

    /// The argument of this function that a call hands on, moved: `x.cuda()`.
    pub(super) fn moved_argument(&self, node: &'a ExprCall, value: &Value) -> Option<Value> {
        let (owner, method) = method_of(node)?;
        let Some(Value::Argument { index, .. }) = self.names.get(name_of(owner)?) else { return None };
        let placed = match Owner::Tensor.effect(method) {
            Effect::ToDevice => Placement::Device,
            Effect::ToHost => Placement::Host,
            Effect::Moves => placement_named(device_argument(node)?, None)?,
            _ => return None,
        };
        Some(Value::Argument { index: *index, placed: Some(placed), known: Box::new(value.clone()) })
    }

    fn run_call(&mut self, node: &'a ExprCall) -> Value {
        let (target, receiver, name) = self.target(node);
        if Role::BackwardCall.fits(name) {
            self.note_trained(node);
        }
        let arguments = self.arguments(node);
        if matches!(target, Target::Called(_)) {
            self.merge_dictionaries(node, &arguments);
        }
        let mut others = Vec::new();
        let (callee, result) = match target {
            Target::Bound(function) => {
                let bound = usize::from(!self.program.is_decorated(function, Role::StaticMethod));
                self.call_function(function, &arguments, bound)
            }
            Target::Called(Value::Function(function)) => {
                self.call_function(function, &arguments, self.bound_by(node, function))
            }
            Target::Called(Value::Functions(all)) => {
                others = all[1..].to_vec();
                (Callee::Function(all[0]), self.call_any(node, &receiver, &all, &arguments))
            }
            Target::Called(Value::Class(class)) => (Callee::Class(class), self.construct(node, class, &arguments)),
            Target::Called(Value::Model(Some(class))) => self.call_instance(class, Role::Forward, &arguments),
            Target::Called(Value::Instance(class)) => self.call_instance(class, Role::CallMethod, &arguments),
            Target::Called(Value::Model(None)) => (Callee::Value, self.layer_call(node, name, &arguments)),
            Target::Called(Value::External(dotted)) => {
                let result = self.library_call(node, &dotted, &arguments);
                (Callee::External(dotted), result)
            }
            Target::Called(_) => (Callee::Value, self.unknown_call(name, &arguments)),
            Target::Method(value) => (Callee::Method, self.method_call(node, &value, name, &arguments)),
        };
        for value in arguments.all() {
            self.outcome.handed_over.extend(value.functions());
        }
        if let Some(statement) = self.noted() {
            let call = Call {
                node,
                statement,
                context: self.context,
                callee,
                name,
                receiver,
                arguments: arguments.positional,
                keywords: arguments.keywords,
                result: result.clone().reading(),
            };
            for function in others {
                self.program.notes.calls.push(Call { callee: Callee::Function(function), ..call.clone() });
            }
            self.program.notes.calls.push(call);
        }
        result
    }

    fn call_function(&mut self, function: FunctionId, arguments: &Arguments<'a>, bound: usize) -> (Callee, Value) {
        self.pass(function, arguments, bound);
        (Callee::Function(function), self.returned(function, arguments, bound))
    }

    /// Calls one of several functions.
    fn call_any(&mut self, node: &'a ExprCall, receiver: &Value, all: &[usize], arguments: &Arguments<'a>) -> Value {
        let is_attribute = node.func.is_attribute_expr();
        // Matched by name only, they may be someone else's methods, so this does not prove that they are called.
        let is_told = matches!(receiver, Value::Unknown | Value::Model(None))
            && is_attribute
            && (all.len() > 1 || *receiver == Value::Unknown);
        let mut results = Vec::with_capacity(all.len());
        for function in all {
            let is_method = self.program.symbol(*function).class.is_some();
            let bound = match receiver {
                Value::Instances(_) | Value::Instance(_) | Value::Model(_) | Value::Unknown
                    if is_method && is_attribute =>
                {
                    usize::from(!self.program.is_decorated(*function, Role::StaticMethod))
                }
                _ => self.bound_by(node, *function),
            };
            if is_told {
                self.pass_values(*function, arguments, bound)
            } else {
                self.pass(*function, arguments, bound)
            }
            results.push(self.returned(*function, arguments, bound));
        }
        let result = Value::any_of(&results);
        self.note_either(&result);
        result
    }

    /// The number of parameters bound before the call: `step = self.step; step(batch)`.
    fn bound_by(&self, node: &ExprCall, function: usize) -> usize {
        let of_instance = !matches!(&*node.func, Expr::Attribute(_))
            && self.program.symbol(function).class.is_some()
            && !self.program.is_decorated(function, Role::StaticMethod);
        usize::from(of_instance || self.program.is_decorated(function, Role::ClassMethod))
    }

    /// `partial(f, a)`: the function with some arguments already bound.
    pub(super) fn partial(&mut self, arguments: &Arguments<'a>) -> Value {
        let Some((given @ Value::Function(function), rest)) = arguments.positional.split_first() else {
            return Value::Unknown;
        };
        let is_method =
            self.program.symbol(*function).class.is_some() && !self.program.is_decorated(*function, Role::StaticMethod);
        let rest = Arguments { positional: rest.to_vec(), keywords: arguments.keywords.clone(), has_unknown: true };
        self.pass(*function, &rest, usize::from(is_method));
        given.clone()
    }

    /// `accumulate(logs, {"loss": loss})`: a function given two dictionaries adds the second to the first.
    fn merge_dictionaries(&mut self, node: &'a ExprCall, arguments: &Arguments<'a>) {
        let (
            [Expr::Name(into), _, ..],
            [Value::Dict { entries, element }, Value::Dict { entries: more, element: other }, ..],
        ) = (&*node.arguments.args, arguments.positional.as_slice())
        else {
            return;
        };
        let mut entries = entries.clone();
        entries.extend(more.clone());
        let merged = Value::dict(entries, element.join(other));
        self.names.insert(into.id.as_str(), merged);
    }

    fn target(&mut self, node: &'a ExprCall) -> (Target, Value, &'a str) {
        let Expr::Attribute(attribute) = &*node.func else {
            let name = last_name(&node.func).unwrap_or_default();
            let value = self.evaluate(&node.func);
            let value = match value {
                Value::Unknown if Role::Criterion.fits_any_case(name) || is_model_name(name) => Value::Model(None),
                value => value,
            };
            return (Target::Called(value), Value::Unknown, name);
        };
        let name = attribute.attr.as_str();
        let receiver = self.evaluate(&attribute.value);
        if let Some(function) = self.above(&attribute.value, name) {
            return (Target::Bound(function), receiver, name);
        }
        let target = match &receiver {
            Value::External(dotted) => Target::Called(Value::External(format!("{dotted}.{name}"))),
            Value::Module(file) => Target::Called(self.global_value(*file, name)),
            Value::Class(class) => match self.member(*class, name) {
                Some(value) => Target::Called(value),
                None => Target::Method(receiver.clone()),
            },
            Value::Instance(class) | Value::Model(Some(class)) => match self.member(*class, name) {
                Some(Value::Function(function)) if self.program.symbol(function).class.is_some() => {
                    Target::Bound(function)
                }
                Some(value) if value != Value::Unknown => Target::Called(value),
                // Only derived classes define it.
                None if self.program.sources.classes[*class].below.contains_key(name) => {
                    Target::Called(Value::Functions(self.program.sources.classes[*class].below[name].clone()))
                }
                _ if Role::Criterion.fits_any_case(name) || (is_model_name(name) && !Role::Getter.fits(name)) => {
                    Target::Called(Value::Model(None))
                }
                _ => Target::Method(receiver.clone()),
            },
            Value::Instances(classes) => {
                let found = classes.iter().filter_map(|class| self.member(*class, name));
                let methods: Vec<usize> = found.flat_map(|member| member.functions().to_vec()).collect();
                match methods.is_empty() {
                    true => Target::Method(receiver.clone()),
                    false => Target::Called(Value::Functions(methods)),
                }
            }
            Value::Model(None) if is_model_name(name) || Role::Criterion.fits_any_case(name) => {
                Target::Called(Value::Model(None))
            }
            _ => match self.own_methods(&receiver, name) {
                Some(methods) => Target::Called(Value::Functions(methods)),
                None => Target::Method(receiver.clone()),
            },
        };
        (target, receiver, name)
    }

    /// The methods that a call on an unknown object runs, by name alone: only modules or one family define it.
    fn own_methods(&self, receiver: &Value, name: &str) -> Option<Vec<usize>> {
        let own = self.program.sources.only_methods.get(name)?;
        let is_meant = *receiver == Value::Model(None) || *receiver == Value::Unknown && own.is_of_family;
        is_meant.then(|| own.methods.clone())
    }

    /// The method that `super().name` means.
    fn above(&self, receiver: &Expr, name: &str) -> Option<usize> {
        let Expr::Call(call) = receiver else { return None };
        let is_super = matches!(&*call.func, Expr::Name(function) if Role::Super.fits(function.id.as_str()));
        let class = self.program.symbol(self.function).class.filter(|_| is_super)?;
        let mut bases = lineage(&self.program.sources.classes, class).into_iter().skip(1);
        bases.find_map(|base| self.program.method(base, name))
    }

    /// The function's result in terms of its arguments, for the arguments of one call.
    fn summary(&self, function: usize, arguments: &Arguments<'a>, bound: usize) -> Value {
        self.depends_on(Fact::Returned(function));
        let returns = self.program.functions[function].returns.clone().unwrap_or(Value::Unknown);
        self.with_arguments(returns, function, arguments, bound)
    }

    fn with_arguments(&self, value: Value, function: usize, arguments: &Arguments<'a>, bound: usize) -> Value {
        match value {
            Value::Argument { index, placed, known } => {
                match (self.argument_at(function, index, arguments, bound), placed) {
                    (None | Some(Value::Unknown), _) => *known,
                    (Some(given), Some(placed)) => given.moved_to(placed),
                    (Some(given), None) => given,
                }
            }
            value => value.map_inside(&|inside| self.with_arguments(inside, function, arguments, bound)),
        }
    }

    fn returned(&self, function: usize, arguments: &Arguments<'a>, bound: usize) -> Value {
        let all = std::iter::once(&function).chain(self.program.written_below(function));
        let kind = self.program.functions[function].kind;
        let is_tensor_code = matches!(kind, FunctionKind::Step | FunctionKind::Loss);
        let value = Value::any_of(all.map(|function| self.summary(*function, arguments, bound))).reading();
        match value {
            Value::Unknown if is_tensor_code => self.tensor(Tensor::WITH_GRAPH),
            // A generator yields from its argument: `for batch in log_every(loader)`.
            Value::Unknown | Value::List(_) => arguments
                .all()
                .find(|given| matches!(given, Value::Loader(_)))
                .filter(|_| is_generator(self, function))
                .cloned()
                .unwrap_or(value),
            value => self.as_here(value),
        }
    }

    /// A returned tensor, without its graph where none is recorded.
    fn as_here(&self, value: Value) -> Value {
        match value {
            Value::Tensor(tensor) => self.tensor(tensor),
            Value::Tuple(elements) => Value::Tuple(elements.into_iter().map(|element| self.as_here(element)).collect()),
            value => value,
        }
    }

    fn construct(&mut self, node: &'a ExprCall, class: ClassId, arguments: &Arguments<'a>) -> Value {
        if let Some(Value::Function(function)) = self.member(class, Role::Constructor.word()) {
            self.pass(function, arguments, 1);
        }
        match self.program.sources.classes[class].kind {
            ClassKind::Optimizer => Value::Optimizer(None),
            ClassKind::Loader => self.make_derived_loader(node, class, arguments),
            _ => self.instance(class),
        }
    }

    fn call_instance(&mut self, class: ClassId, method: Role, arguments: &Arguments<'a>) -> (Callee, Value) {
        match self.member(class, method.word()) {
            Some(Value::Function(function)) => {
                self.pass(function, arguments, 1);
                let returned = self.summary(function, arguments, 1).reading();
                let result = match method {
                    Role::Forward => self.as_here(tensors_for_unknown(returned)),
                    _ => returned,
                };
                (Callee::Function(function), result)
            }
            _ if method == Role::Forward => (Callee::Value, self.tensor(Tensor::WITH_GRAPH)),
            _ => (Callee::Value, self.unknown_call("", arguments)),
        }
    }

    /// A library's module: dropout returns its input's kind, a softmax of scores makes weights.
    fn layer_call(&mut self, node: &'a ExprCall, name: &str, arguments: &Arguments<'a>) -> Value {
        let made = match &*node.func {
            Expr::Call(made) => names_in(&made.func).first().copied().unwrap_or_default(),
            _ => name,
        };
        let lower = made.to_ascii_lowercase();
        match arguments.first() {
            Value::Tensor(tensor) if Role::DropLayer.fits(&lower) => self.tensor(tensor),
            Value::Tensor(tensor) if Role::SoftmaxLayer.fits(&lower) => self.softmax(tensor, node),
            _ => self.tensor(Tensor::WITH_GRAPH),
        }
    }

    /// An unknown function: its inputs are assumed to flow through it.
    pub(super) fn unknown_call(&mut self, name: &str, arguments: &Arguments) -> Value {
        // A class of another library makes an object, not a tensor.
        if name.starts_with(|first: char| first.is_ascii_uppercase()) {
            return if Role::MeterClass.fits(name) { Value::Meter } else { Value::Unknown };
        }
        if let Some(loader) = arguments.all().find(|value| matches!(value, Value::Loader(_))) {
            return loader.clone();
        }
        // `exists(mask)`, `is_main_process()`: answered by the host.
        if Role::Question.fits(name) {
            return Value::Bool(None);
        }
        if arguments.all().any(Value::holds_device) {
            let graph = arguments.all().any(Value::carries_graph);
            return self.tensor(Tensor { graph, ..Tensor::GUESS });
        }
        if is_loss_function_name(name) && !name.is_empty() { self.tensor(Tensor::WITH_GRAPH) } else { Value::Unknown }
    }

    pub(super) fn make_site(&mut self, node: &'a ExprCall) -> usize {
        let file = self.file();
        let key = (file, node.range().start());
        *self.program.constructed.site_ids.entry(key).or_insert_with(|| {
            self.program.constructed.sites.push((file, node));
            self.program.constructed.sites.len() - 1
        })
    }

    /// The element that a loop over the value yields, including loaders.
    pub(super) fn element_of(&self, value: &Value) -> Value {
        match value {
            Value::Loader(id) => {
                self.depends_on(Fact::Loaders);
                let pinned = id.and_then(|id| self.program.constructed.loaders.get(id)).is_some_and(Loader::pins);
                let is_placed = topics::speak_of(self.program.sources.files[self.file()].words, topics::Topic::Placed);
                let placement = match pinned {
                    // accelerate and fabric yield batches that are already on the device.
                    _ if is_placed => Placement::Device,
                    true => Placement::Pinned,
                    false => Placement::Host,
                };
                // Besides tensors, batches hold names, numbers and indices.
                Value::Tensor(Tensor { placement, evidence: Evidence::Assumed, ..Tensor::ON_HOST })
            }
            value => value.element(),
        }
    }

    /// Whether the iterations of a loop are steps or parts of one.
    pub(super) fn loop_kind(&self, iterated: &Expr, value: &Value) -> LoopKind {
        let is_part = match value {
            Value::Parameters { .. } => return LoopKind::Parameters,
            Value::List(element) if element.is_on_device() || **element == Value::Parameters { named: false } => true,
            Value::List(element) | Value::Dict { element, .. } => {
                matches!(**element, Value::Optimizer(_) | Value::Model(_) | Value::Scheduler)
            }
            Value::Tuple(elements) => !elements.is_empty(),
            value => value.is_on_device(),
        };
        let names = names_in(iterated);
        let is = |role: Role| names.iter().any(|name| role.fits_any_case(name));
        match iterated {
            _ if is_part => LoopKind::WithinStep,
            Expr::List(_) | Expr::Tuple(_) => LoopKind::WithinStep,
            // `range(opts.epochs)`, `range(cfg.optim.max_iter)`: a count of iterations, wherever the number is stored.
            _ if is(Role::Range) && is(Role::TurnCount) => LoopKind::Plain,
            _ if is(Role::FewThings) && !names.iter().any(|name| Role::Loader.fits_any_case(name)) => {
                LoopKind::WithinStep
            }
            _ => LoopKind::Plain,
        }
    }
}

fn is_generator(interpreter: &Interpreter, function: usize) -> bool {
    let body = interpreter.program.symbol(function).body;
    ruff_python_ast::helpers::any_over_body(body, |expression| {
        matches!(expression, Expr::Yield(_) | Expr::YieldFrom(_))
    })
}

fn tensors_for_unknown(value: Value) -> Value {
    match value {
        Value::Unknown => Value::DEVICE_WITH_GRAPH,
        Value::Tuple(elements) => Value::Tuple(elements.into_iter().map(tensors_for_unknown).collect()),
        value => value,
    }
}
