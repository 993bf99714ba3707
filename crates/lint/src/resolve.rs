//! Resolves where a name comes from: a definition in the given files, or a library by its dotted name.

use rustc_hash::FxHashMap;

use ruff_python_ast::Expr;

use super::api;
use super::symbols::{ClassId, FileId, FunctionId, Symbols};
use super::vocabulary::Role;

/// Re-exports are followed this many hops.
const MOST_HOPS: usize = 6;

#[derive(Clone, Debug, PartialEq)]
pub enum Symbol<'a> {
    Function(FunctionId),
    Class(ClassId),
    Module(FileId),
    Constant(FileId, &'a Expr),
    External(String),
}

/// Files by the last part of their module's name.
#[derive(Default)]
pub struct ModuleIndex {
    by_last_part: FxHashMap<String, Vec<FileId>>,
    modules: Vec<Vec<String>>,
}

impl ModuleIndex {
    /// Indexes files by the parts of their modules' names.
    pub fn new(modules: Vec<Vec<String>>) -> ModuleIndex {
        let mut by_last_part: FxHashMap<String, Vec<FileId>> = FxHashMap::default();
        for (id, module) in modules.iter().enumerate() {
            if let Some(last) = module.last() {
                by_last_part.entry(last.clone()).or_default().push(id);
            }
        }
        ModuleIndex { by_last_part, modules }
    }

    /// The file meant by `a.b.c`, or by the module that `c` is imported from.
    pub fn find_dotted(&self, from: FileId, dotted: &str) -> Option<FileId> {
        let parts: Vec<&str> = dotted.split('.').collect();
        self.find(from, &parts).or_else(|| self.find(from, &parts[..parts.len() - 1]))
    }

    /// The file that `import parts` in `from` means: its path ends with the name, and the nearest one wins.
    pub fn find(&self, from: FileId, parts: &[&str]) -> Option<FileId> {
        if parts.first().is_none_or(|first| Role::Foreign.fits(first)) {
            return None;
        }
        let here = &self.modules[from];
        let ends_like = |id: &&FileId| {
            let module = &self.modules[**id];
            module.len() >= parts.len() && module[module.len() - parts.len()..].iter().zip(parts).all(|(a, b)| a == b)
        };
        let common = |id: &FileId| here.iter().zip(&self.modules[*id]).take_while(|(a, b)| a == b).count();
        let candidates = self.by_last_part.get(*parts.last()?)?.iter().filter(ends_like).filter(|id| **id != from);
        candidates.max_by_key(|id| (common(id), std::cmp::Reverse(self.modules[**id].len()))).copied()
    }
}

/// Looks names up in the given files.
#[derive(Clone, Copy)]
pub struct Resolver<'r, 'a> {
    symbols: &'r Symbols<'a>,
    index: &'r ModuleIndex,
    /// Re-exports that are still followed.
    hops: usize,
}

impl<'r, 'a> Resolver<'r, 'a> {
    pub fn new(symbols: &'r Symbols<'a>, index: &'r ModuleIndex) -> Resolver<'r, 'a> {
        Resolver { symbols, index, hops: MOST_HOPS }
    }

    fn after_hop(self) -> Option<Resolver<'r, 'a>> {
        Some(Resolver { hops: self.hops.checked_sub(1)?, ..self })
    }

    /// The symbol that `name` at the top level of `file` stands for.
    pub fn name(self, file: FileId, name: &str) -> Option<Symbol<'a>> {
        let here = &self.symbols.files[file];
        if let Some(class) = here.classes.get(name) {
            return Some(Symbol::Class(*class));
        }
        if let Some(function) = here.functions.get(name) {
            return Some(Symbol::Function(*function));
        }
        if let Some(dotted) = here.imports.get(name) {
            return Some(self.after_hop()?.dotted(file, dotted));
        }
        if let Some(value) = here.constants.get(name) {
            return Some(Symbol::Constant(file, value));
        }
        for module in &here.star_imports {
            let parts: Vec<&str> = module.split('.').collect();
            match self.index.find(file, &parts) {
                Some(other) => {
                    let found = self.after_hop()?.name(other, name);
                    if found.is_some() {
                        return found;
                    }
                }
                None if api::is_of_torch(module) => return Some(Symbol::External(format!("{module}.{name}"))),
                None => {}
            }
        }
        None
    }

    /// The symbol that a dotted name written in `file` stands for.
    pub fn dotted(self, file: FileId, dotted: &str) -> Symbol<'a> {
        let external = || Symbol::External(dotted.to_string());
        let parts: Vec<&str> = dotted.split('.').collect();
        let (Some(next), Some((name, module))) = (self.after_hop(), parts.split_last()) else { return external() };
        if let Some(module) = self.index.find(file, &parts) {
            return Symbol::Module(module);
        }
        let other = self.index.find(file, module);
        other.and_then(|other| next.name(other, name)).unwrap_or_else(external)
    }
}
