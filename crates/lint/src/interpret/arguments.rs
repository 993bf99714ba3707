//! Passes a call's arguments to the called function.

use super::*;

/// The argument values of a call, in source order.
pub(super) struct Arguments<'a> {
    pub positional: Vec<Value>,
    pub keywords: Vec<(Option<&'a str>, Value)>,
    /// `*rest`, or a `**rest` that could not be followed.
    pub has_unknown: bool,
}

impl Arguments<'_> {
    pub fn all(&self) -> impl Iterator<Item = &Value> {
        self.positional.iter().chain(self.keywords.iter().map(|(_, value)| value))
    }

    pub fn keyword(&self, name: &str) -> Option<&Value> {
        self.keywords.iter().find(|(keyword, _)| *keyword == Some(name)).map(|(_, value)| value)
    }

    /// The argument called `name` or at `position`, including entries of expanded dictionaries.
    pub fn get(&self, name: &str, position: usize) -> Option<&Value> {
        self.keyword(name).or_else(|| self.positional.get(position)).or_else(|| {
            self.keywords.iter().filter(|(keyword, _)| keyword.is_none()).find_map(|(_, value)| match value {
                Value::Dict { entries, .. } => entries.get(name),
                _ => None,
            })
        })
    }

    pub fn first(&self) -> Value {
        self.positional.first().cloned().unwrap_or(Value::Unknown)
    }
}

impl<'p, 'a> Interpreter<'p, 'a> {
    pub(super) fn arguments(&mut self, node: &'a ExprCall) -> Arguments<'a> {
        let mut has_unknown = false;
        let mut positional = Vec::with_capacity(node.arguments.args.len());
        for argument in &node.arguments.args {
            match argument {
                Expr::Starred(starred) => match self.evaluate(&starred.value) {
                    Value::Tuple(elements) => positional.extend(elements),
                    value => {
                        has_unknown = true;
                        positional.push(self.element_of(&value));
                    }
                },
                other => positional.push(self.evaluate(other)),
            }
        }
        let mut keywords = Vec::with_capacity(node.arguments.keywords.len());
        for keyword in &node.arguments.keywords {
            let value = self.evaluate(&keyword.value);
            if keyword.arg.is_none() && !matches!(value, Value::Dict { .. }) {
                has_unknown = true;
            }
            keywords.push((keyword.arg.as_ref().map(|name| name.as_str()), value));
        }
        Arguments { positional, keywords, has_unknown }
    }

    /// Records what `callee` is called with; its first `bound` parameters are already bound (`self`).
    pub(super) fn pass(&mut self, callee: FunctionId, arguments: &Arguments<'a>, bound: usize) {
        self.run_by(callee).into_iter().for_each(|function| self.note_call(function));
        self.pass_values(callee, arguments, bound);
    }

    fn note_call(&mut self, callee: FunctionId) {
        // A file that does not train only tries out its definitions, which says nothing about other callers.
        let caller = self.program.symbol(self.function);
        let tries = caller.definition.is_none()
            && !Role::TrainingText.fits(&self.program.sources.files[caller.file].text)
            && self.program.functions[callee].kind == FunctionKind::Loss;
        if !tries {
            self.outcome.called.insert(callee);
        }
    }

    /// Like [`Self::pass`], for a function that may be another's: it is not known to be called.
    pub(super) fn pass_values(&mut self, callee: FunctionId, arguments: &Arguments<'a>, bound: usize) {
        self.run_by(callee).into_iter().for_each(|function| self.pass_to(function, arguments, bound));
    }

    /// The functions that a call may run: the callee, and overrides of one that only declares itself.
    fn run_by(&self, callee: FunctionId) -> Vec<FunctionId> {
        self.program.written_below(callee).iter().copied().chain([callee]).collect()
    }

    /// The argument for a parameter, by its position; `None` where the call leaves it out or hides it.
    pub(super) fn argument_at(
        &self,
        callee: FunctionId,
        index: usize,
        arguments: &Arguments<'a>,
        bound: usize,
    ) -> Option<Value> {
        let definition = self.program.symbol(callee).definition?;
        let parameters = &definition.parameters;
        let parameter = parameters.iter_non_variadic_params().nth(index)?;
        let is_by_position = index < parameters.posonlyargs.len() + parameters.args.len();
        let position = if is_by_position { index.checked_sub(bound)? } else { usize::MAX };
        let given = arguments.get(parameter.parameter.name.as_str(), position).cloned();
        given.or_else(|| parameter.default().filter(|_| !arguments.has_unknown).map(literal))
    }

    fn pass_to(&mut self, callee: FunctionId, arguments: &Arguments<'a>, bound: usize) {
        let Some(definition) = self.program.symbol(callee).definition else { return };
        let outcome = &mut self.outcome;
        let mut gather = |name: &'a str, value: Value| outcome.pass(callee, name, value);
        let parameters = &definition.parameters;
        let by_position = parameters.posonlyargs.len() + parameters.args.len();
        for (at, parameter) in parameters.iter_non_variadic_params().enumerate().skip(bound) {
            let name = parameter.parameter.name.as_str();
            let positional = arguments.positional.get(at - bound).filter(|_| at < by_position);
            match positional.or_else(|| arguments.get(name, usize::MAX)) {
                Some(value) => gather(name, value.clone()),
                None if arguments.has_unknown => gather(name, Value::Unknown),
                None => parameter.default().into_iter().for_each(|default| gather(name, literal(default))),
            }
        }
        let mut extra = Entries::new();
        let mut element = Value::Unknown;
        for (keyword, value) in &arguments.keywords {
            match (keyword, value) {
                (Some(keyword), value) if !parameters.includes(keyword) => {
                    extra.insert(keyword.to_string(), value.clone());
                }
                // `**options`, and a model's outputs by name.
                (None, Value::Dict { entries, element: others }) => {
                    extra.extend(entries.clone().into_iter().filter(|(name, _)| !parameters.includes(name)));
                    element = element.join(others);
                }
                (None, outputs @ Value::Tensor(_)) => element = element.join(outputs),
                _ => {}
            }
        }
        if let Some(rest) = &parameters.kwarg
            && (!arguments.has_unknown || element != Value::Unknown)
        {
            gather(rest.name.as_str(), Value::dict(extra, element));
        }
    }
}
