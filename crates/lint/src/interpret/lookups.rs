//! Looks up the values of names and attributes.

use super::*;
use crate::resolve::{Resolver, Symbol};

impl<'p, 'a> Interpreter<'p, 'a> {
    pub(super) fn name_value(&mut self, name: &str) -> Value {
        if let Some(value) = self.names.get(name) {
            return value.clone();
        }
        let mut outer = self.program.symbol(self.function).parent;
        while let Some(function) = outer {
            self.depends_on(Fact::local(function, name));
            if let Some(value) = self.program.functions[function].locals.get(name) {
                return value.clone();
            }
            outer = self.program.symbol(function).parent;
        }
        let file = self.file();
        self.global_value(file, name)
    }

    pub(super) fn global_value(&self, file: usize, name: &str) -> Value {
        let symbols = &self.program.sources.symbols;
        let is_assigned = || symbols.files[file].constants.contains_key(name);
        match Resolver::new(symbols, &self.program.sources.index).name(file, name) {
            Some(Symbol::Function(function)) => Value::Function(function),
            Some(Symbol::Class(class)) => Value::Class(class),
            // `import model`, then `model = model.Net()`.
            Some(Symbol::Module(module)) if is_assigned() => self.at_top(file, name).unwrap_or(Value::Module(module)),
            Some(Symbol::Module(module)) => Value::Module(module),
            // A star import does not hide Python's builtins: `from torch.distributed import *`.
            Some(Symbol::External(dotted)) if Role::Builtin.fits(name) && api::is_of_torch(&dotted) => {
                Value::External(format!("builtins.{name}"))
            }
            Some(Symbol::External(dotted)) => {
                let is_capability = is_assigned() && self.at_top(file, name) == Some(Value::Capability);
                if is_capability { Value::Capability } else { Value::External(dotted) }
            }
            Some(Symbol::Constant(owner, _)) => self.at_top(owner, name).unwrap_or(Value::Unknown),
            None if Role::Builtin.fits(name) => {
                self.at_top(file, name).unwrap_or_else(|| Value::External(format!("builtins.{name}")))
            }
            None => self.at_top(file, name).unwrap_or(Value::Unknown),
        }
    }

    /// The value of a name at the end of a file.
    fn at_top(&self, file: usize, name: &str) -> Option<Value> {
        let body = self.program.sources.symbols.files[file].body;
        self.depends_on(Fact::local(body, name));
        self.program.functions[body].locals.get(name).cloned().map(Value::reading)
    }

    pub(super) fn attribute_value(&mut self, attribute: &'a ExprAttribute) -> Value {
        let owner = self.evaluate(&attribute.value);
        let name = attribute.attr.as_str();
        if matches!(owner, Value::Unknown | Value::Optimizer(_) | Value::Number { .. })
            && let Some(default) = self.option_default(name)
        {
            return default;
        }
        match owner {
            Value::External(dotted) if api::is_of_torch(&dotted) && Role::Dtype.fits(name) => Value::Dtype,
            Value::External(dotted) => Value::External(format!("{dotted}.{name}")),
            Value::Module(file) => self.global_value(file, name),
            Value::Tensor(tensor) => tensor_attribute(tensor, name),
            Value::Model(Some(class)) | Value::Instance(class) => self.attribute_of_class(class, name),
            Value::Model(None) => Owner::ModuleAttribute.effect(name).value().unwrap_or_else(|| names::by_name(name)),
            Value::Class(class) => self.member(class, name).unwrap_or(Value::Unknown),
            Value::Numpy => Owner::ArrayAttribute.effect(name).value().unwrap_or(Value::Numpy),
            Value::Number { .. } => owner,
            Value::Optimizer(_) if Role::ParameterGroups.fits(name) => {
                let parameters = (Role::GroupParameters.word().to_string(), Value::Parameters { named: false });
                Value::list(Value::dict([parameters].into(), Value::NUMBER))
            }
            Value::Optimizer(_) => Value::Unknown,
            Value::Device => Value::Text(None),
            _ => self.attribute_of_unknown(attribute),
        }
    }

    fn attribute_of_class(&mut self, class: usize, name: &str) -> Value {
        let is_model = self.program.is_module(class);
        match self.member(class, name) {
            Some(Value::Function(function)) if self.program.is_decorated(function, Role::Property) => {
                self.property(function)
            }
            Some(value) if value != Value::Unknown => value,
            _ => self.field(class, name).unwrap_or_else(|| match Owner::ModuleAttribute.effect(name) {
                Effect::Model if is_model => Value::Model(Some(class)),
                _ if Role::Settings.fits(name) => Value::Unknown,
                _ => names::by_name(name),
            }),
        }
    }

    /// The default of `args.num_workers`.
    fn option_default(&self, name: &str) -> Option<Value> {
        if !Role::LoaderOption.fits_any_case(name) {
            return None;
        }
        let default = self.program.sources.settings.default_of(self.file(), name)?;
        (default.known_integer().is_some() || default.known_bool().is_some()).then(|| default.clone())
    }

    fn attribute_of_unknown(&self, attribute: &ExprAttribute) -> Value {
        let name = attribute.attr.as_str();
        let owner = last_name(&attribute.value).unwrap_or_default();
        match (Owner::UnknownAttribute.effect(name), names::by_name(name)) {
            (Effect::Gradient, _) => Value::Tensor(Tensor { graph: false, ..Tensor::PARAMETER }),
            (effect, guess) => effect.value().unwrap_or(match guess {
                guess @ (Value::Device | Value::Dtype) => guess,
                _ if Role::Settings.fits(owner) => Value::SIZE,
                guess => guess,
            }),
        }
    }

    /// Records a property read, which runs the property.
    fn property(&mut self, function: usize) -> Value {
        self.outcome.called.insert(function);
        if self.is_recording && self.keeps_notes {
            self.program.notes.property_reads.push((self.context, function));
        }
        self.depends_on(Fact::Returned(function));
        self.program.functions[function].returns.clone().unwrap_or(Value::Unknown).reading()
    }

    /// An attribute or method of one of the given classes, including its bases.
    pub(super) fn member(&self, class: usize, name: &str) -> Option<Value> {
        lineage(&self.program.sources.classes, class).into_iter().find_map(|class| {
            self.program.method(class, name).map(Value::Function).or_else(|| {
                self.depends_on(Fact::attribute(class, name));
                self.program.sources.classes[class].attributes.get(name).cloned()
            })
        })
    }
}

impl Interpreter<'_, '_> {
    /// The value of `getattr(file, name)`: the file's only class, or any of its functions.
    pub(super) fn one_of(&self, file: usize) -> Value {
        let symbols = &self.program.sources.symbols.files[file];
        let mut functions: Vec<usize> = symbols.functions.values().copied().collect();
        functions.sort_unstable();
        let mut classes = symbols.classes.values();
        match (functions.as_slice(), classes.next(), classes.next()) {
            ([], Some(class), None) => Value::Class(*class),
            ([only], None, None) => Value::Function(*only),
            ([], ..) => Value::Unknown,
            _ => Value::any_of(functions.into_iter().map(Value::Function)).reading(),
        }
    }

    /// The value that a field's annotation in the class states: `width: int = 64`.
    fn field(&self, class: usize, name: &str) -> Option<Value> {
        lineage(&self.program.sources.classes, class).into_iter().find_map(|class| {
            let body = &self.program.sources.symbols.classes[class].definition.body;
            body.iter().find_map(|statement| match statement {
                Stmt::AnnAssign(field) if name_of(&field.target) == Some(name) => {
                    self.annotated(Some(&field.annotation))
                }
                _ => None,
            })
        })
    }
}

fn tensor_attribute(tensor: Tensor, name: &str) -> Value {
    let effect = Owner::TensorAttribute.effect(name);
    effect.value().unwrap_or(Value::Tensor(match effect {
        Effect::Detaches => Tensor { graph: false, ..tensor },
        Effect::Transposes => Tensor { stage: Stage::Transposed, ..tensor },
        // `out.loss`, `out.logits`: models return tensors by name. Other attributes may be anything.
        Effect::Same => tensor,
        _ => Tensor { evidence: Evidence::Assumed, ..tensor },
    }))
}
