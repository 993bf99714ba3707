//! Records loaders where they are constructed: torch's own, and classes that derive from it.

use super::*;
use crate::program::Options;

impl<'p, 'a> Interpreter<'p, 'a> {
    pub(super) fn make_loader(&mut self, node: &'a ExprCall, arguments: &Arguments<'a>) -> Value {
        let get = |option: Role, position: usize| arguments.get(option.word(), position).cloned();
        self.note_loader(node, arguments, get, arguments.has_unknown)
    }

    /// A loader of one of the project's own classes: options that its `__init__` does not name are passed on or keep
    /// their default.
    pub(super) fn make_derived_loader(
        &mut self,
        node: &'a ExprCall,
        class: ClassId,
        arguments: &Arguments<'a>,
    ) -> Value {
        let own = self.program.method(class, Role::Constructor.word());
        let Some(definition) = own.and_then(|own| self.program.symbol(own).definition) else {
            return self.make_loader(node, arguments);
        };
        let parameters = &definition.parameters;
        let get = |option: Role, _: usize| {
            let default = || parameters.find(option.word()).and_then(|parameter| parameter.default()).map(literal);
            arguments.get(option.word(), usize::MAX).cloned().or_else(default)
        };
        // Without `**kwargs`, it may set these options itself.
        let is_unsaid = [Role::WorkersOption, Role::PinOption].iter().any(|option| get(*option, 0).is_none());
        let has_unknown = arguments.has_unknown || parameters.kwarg.is_none() && is_unsaid;
        self.note_loader(node, arguments, get, has_unknown)
    }

    fn note_loader(
        &mut self,
        node: &'a ExprCall,
        arguments: &Arguments<'a>,
        get: impl Fn(Role, usize) -> Option<Value>,
        has_unknown: bool,
    ) -> Value {
        let given = |option: Role, at: usize| arguments.get(option.word(), at).cloned().unwrap_or(Value::Unknown);
        let options = Options {
            workers: get(Role::WorkersOption, 5),
            pin_memory: get(Role::PinOption, 7),
            persistent: get(Role::PersistentOption, usize::MAX),
            batch_size: get(Role::BatchSizeOption, 1),
            dataset: given(Role::DatasetOption, 0),
            collate: given(Role::CollateOption, 6),
            has_unknown,
        };
        let key = (self.file(), node.range().start());
        let constructed = &mut self.program.constructed;
        // Ids stay the same from visit to visit: parameters may still hold them.
        let known = constructed.loader_ids.get(&key).copied();
        let Some(statement) = self.statement.filter(|_| self.is_recording) else { return Value::Loader(known) };
        constructed.has_news |= known.is_none_or(|id| constructed.loaders[id].options != options);
        let id = *constructed.loader_ids.entry(key).or_insert(constructed.loaders.len());
        let loader = Loader { id, node, statement, context: self.context, options };
        match known {
            Some(id) => constructed.loaders[id] = loader,
            None => constructed.loaders.push(loader),
        }
        Value::Loader(Some(id))
    }

    /// `self.loader = loader` in a trainer that several scripts construct: the attribute stands for all loaders they
    /// pass.
    pub(super) fn note_alike(&mut self, targets: &[Expr], value: &Expr) {
        let ([Expr::Attribute(_)], Expr::Name(name)) = (targets, value) else { return };
        if let Some([first, rest @ ..]) =
            self.program.functions[self.function].loaders.get(name.id.as_str()).map(Vec::as_slice)
            && !rest.is_empty()
        {
            let all: Vec<LoaderId> = std::iter::once(first).chain(rest).copied().collect();
            for id in &all {
                self.stand_for(*id, &all);
            }
        }
    }

    /// Merges loaders of several branches or returns: the first stands for all.
    pub(super) fn note_either(&mut self, either: &Value) {
        if let Value::Tuple(elements) = either {
            elements.iter().for_each(|element| self.note_either(element));
        }
        let mut all = either.loader_members();
        if let [first, second, ..] = all[..] {
            all.extend(self.program.constructed.alike.get(&second).into_iter().flatten());
            self.stand_for(first, &all);
        }
    }

    /// Joins the names of two branches.
    pub(super) fn join_branches(&mut self, one: Bindings<'a>, other: Bindings<'a>) -> Bindings<'a> {
        let mut joined = one;
        joined.add_all(&other);
        if !self.program.constructed.loaders.is_empty() {
            joined.values().for_each(|value| self.note_either(value));
        }
        joined
    }

    fn stand_for(&mut self, id: LoaderId, others: &[LoaderId]) {
        let known = self.program.constructed.alike.entry(id).or_default();
        for other in others {
            if !known.contains(other) {
                known.push(*other);
            }
        }
    }

    /// The loaders that `enumerate(loader)`, `tqdm(loader)`, `zip(one, other)` or `loaders[phase]` iterates over.
    pub(super) fn loaders_in(&mut self, iterated: &'a Expr) -> Vec<LoaderId> {
        match iterated {
            _ if self.program.constructed.loaders.is_empty() => Vec::new(),
            Expr::Call(call) => {
                let keywords = call.arguments.keywords.iter().map(|keyword| &keyword.value);
                let mut all = Vec::new();
                for argument in call.arguments.args.iter().chain(keywords) {
                    all.extend(self.loaders_in(argument));
                }
                // `for batch in data.load():`
                if all.is_empty()
                    && let Expr::Attribute(method) = &*call.func
                    && let Value::Instance(_) = self.quietly(|quiet| quiet.evaluate(&method.value))
                    && let Value::Instance(class) = self.quietly(|quiet| quiet.evaluate(iterated))
                {
                    all = self.handed_out_by(class);
                }
                all
            }
            Expr::Name(name) if self.passes_over.contains_key(name.id.as_str()) => {
                self.passes_over.get(name.id.as_str()).cloned().unwrap_or_default()
            }
            Expr::Name(_) | Expr::Attribute(_) => match self.quietly(|quiet| quiet.evaluate(iterated)) {
                Value::Loader(Some(id)) => vec![id],
                Value::Instance(class) => self.handed_out_by(class),
                _ => Vec::new(),
            },
            // `zip(*loaders)`
            Expr::Starred(starred) => self.quietly(|quiet| quiet.evaluate(&starred.value)).loaders(),
            Expr::Subscript(subscript) => {
                let (base, index) =
                    self.quietly(|quiet| (quiet.evaluate(&subscript.value), quiet.evaluate(&subscript.slice)));
                match (&base, &index) {
                    (Value::Dict { .. }, Value::Text(Some(_)))
                    | (Value::Tuple(_), Value::Number { known: Some(_), .. }) => {
                        self.quietly(|quiet| quiet.evaluate(iterated)).loaders()
                    }
                    _ => base.loaders(),
                }
            }
            _ => Vec::new(),
        }
    }

    /// The loaders that iterating over an object with its own `__iter__` goes through.
    fn handed_out_by(&self, class: ClassId) -> Vec<LoaderId> {
        self.depends_on(Fact::Attributes(class));
        if self.member(class, Role::IterMethod.word()).is_none() {
            return Vec::new();
        }
        let lineage = lineage(&self.program.sources.classes, class);
        let mut all: Vec<LoaderId> = lineage
            .into_iter()
            .flat_map(|class| self.program.sources.classes[class].attributes.values())
            .filter_map(|value| match value {
                Value::Loader(Some(id)) => Some(*id),
                _ => None,
            })
            .collect();
        all.sort_unstable();
        all.dedup();
        all
    }
}
