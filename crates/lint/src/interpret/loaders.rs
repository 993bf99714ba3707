//! Loaders as they are made: torch's own, and classes that derive from it.

use ruff_python_ast::ExprCall;
use ruff_text_size::Ranged;

use super::Interpreter;
use super::arguments::Arguments;
use crate::program::Loader;
use crate::settings::literal;
use crate::symbols::ClassId;
use crate::value::Value;

/// What rules ask of a loader.
struct Options {
    workers: Option<Value>,
    pin_memory: Option<Value>,
    persistent: Option<Value>,
    has_unknown: bool,
}

impl<'p, 'a> Interpreter<'p, 'a> {
    pub(super) fn make_loader(&mut self, node: &'a ExprCall, arguments: &Arguments<'a>) -> Value {
        let loader = Options {
            workers: arguments.get("num_workers", 5).cloned(),
            pin_memory: arguments.get("pin_memory", 7).cloned(),
            persistent: arguments.get("persistent_workers", usize::MAX).cloned(),
            has_unknown: arguments.has_unknown,
        };
        let batch_size = arguments.get("batch_size", 1).cloned();
        self.note_loader(node, arguments, loader, batch_size)
    }

    /// A loader of a class of the project's own: what its `__init__` does not name, it hands on or leaves as it is.
    pub(super) fn make_derived_loader(
        &mut self,
        node: &'a ExprCall,
        class: ClassId,
        arguments: &Arguments<'a>,
    ) -> Value {
        let own = self.program.sources.symbols.classes[class].methods.get("__init__").copied();
        let Some(definition) = own.and_then(|own| self.program.sources.symbols.functions[own].definition) else {
            return self.make_loader(node, arguments);
        };
        let parameters = &definition.parameters;
        let get = |name: &str| {
            let default = || parameters.find(name).and_then(|parameter| parameter.default()).map(literal);
            arguments.get(name, usize::MAX).cloned().or_else(default)
        };
        let (workers, pin_memory) = (get("num_workers"), get("pin_memory"));
        // Without room for more, it may set whatever it likes itself.
        let is_closed = parameters.kwarg.is_none() && (workers.is_none() || pin_memory.is_none());
        let has_unknown = arguments.has_unknown || is_closed;
        let options = Options { workers, pin_memory, persistent: get("persistent_workers"), has_unknown };
        let batch_size = get("batch_size");
        self.note_loader(node, arguments, options, batch_size)
    }

    fn note_loader(
        &mut self,
        node: &'a ExprCall,
        arguments: &Arguments<'a>,
        options: Options,
        batch_size: Option<Value>,
    ) -> Value {
        let key = (self.file(), node.range().start());
        let known = self.program.made.loader_ids.get(&key).copied();
        let Some(statement) = self.statement.filter(|_| self.is_recording) else { return Value::Loader(known) };
        let get = |name: &str, position: usize| arguments.get(name, position).cloned();
        let loader = Loader {
            node,
            statement,
            context: self.context,
            workers: options.workers,
            pin_memory: options.pin_memory,
            persistent: options.persistent,
            batch_size,
            dataset: get("dataset", 0).unwrap_or(Value::Unknown),
            collate: get("collate_fn", 6).unwrap_or(Value::Unknown),
            has_unknown_keywords: options.has_unknown,
        };
        // Numbers stay the same from round to round: parameters of the last one may still hold them.
        let id = match known {
            Some(id) => {
                self.program.made.loaders[id] = loader;
                id
            }
            None => {
                self.program.made.loaders.push(loader);
                self.program.made.loader_ids.insert(key, self.program.made.loaders.len() - 1);
                self.program.made.loaders.len() - 1
            }
        };
        Value::Loader(Some(id))
    }
}
