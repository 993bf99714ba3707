//! The kind of a class, from its base classes, and the values its attributes hold.

use rustc_hash::FxHashMap;

use ruff_python_ast::{Expr, Stmt};

use super::syntax::{dotted_name, name_of};

use super::effects::{Effect, Owner};
use super::resolve::{ModuleIndex, Resolver, Symbol};
use super::symbols::{ClassId, Function, FunctionId, Symbols};
use super::value::Value;
use super::vocabulary::Role;

pub struct ClassFacts<'a> {
    pub kind: ClassKind,
    /// Base classes among the given files.
    pub bases: Vec<ClassId>,
    pub attributes: FxHashMap<&'a str, Value>,
    /// Methods of derived classes, by name.
    pub below: FxHashMap<&'a str, Vec<FunctionId>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClassKind {
    /// A torch module. Lightning modules are separate because their trainer moves the data and batches the logs.
    Module,
    Lightning,
    Dataset,
    Optimizer,
    /// `torch.autograd.Function`.
    Gradient,
    Loader,
    /// A subclass of a library's trainer, which calls `training_step` and `compute_loss` at every step.
    Trainer,
    /// Something that such a trainer or a runner calls at every step.
    Callback,
    Other,
}

impl ClassKind {
    pub fn is_module(self) -> bool {
        matches!(self, ClassKind::Module | ClassKind::Lightning)
    }
}

pub fn classify<'a>(symbols: &Symbols<'a>, index: &ModuleIndex) -> Vec<ClassFacts<'a>> {
    let bases: Vec<Vec<Base>> = (0..symbols.classes.len()).map(|class| bases_of(symbols, index, class)).collect();
    let mut classes: Vec<ClassFacts> = (0..symbols.classes.len())
        .map(|class| ClassFacts {
            kind: kind_of(&bases, class, 8),
            bases: bases[class].iter().filter_map(Base::class).collect(),
            attributes: FxHashMap::default(),
            below: FxHashMap::default(),
        })
        .collect();
    for (class, symbol) in symbols.classes.iter().enumerate() {
        for base in lineage(&classes, class).into_iter().skip(1) {
            for (name, method) in symbol.methods.iter().filter(|(name, _)| !Role::Dunder.fits(name)) {
                classes[base].below.entry(*name).or_default().push(*method);
            }
        }
    }
    // Hash maps have no stable order, and findings must not depend on it.
    for methods in classes.iter_mut().flat_map(|class| class.below.values_mut()) {
        methods.sort_unstable();
    }
    classes
}

/// Methods whose name only modules, or only one family of classes, define.
pub struct OnlyMethods {
    pub methods: Vec<FunctionId>,
    /// Whether all their classes derive from one another or from one class: then the name identifies them even on an
    /// unknown object.
    pub is_of_family: bool,
}

/// A name with more definitions than this is ambiguous.
const MOST_DEFINITIONS: usize = 6;

/// Methods that their name alone identifies: `compute_scores`, `get_pairs`. Short and common names may belong to a
/// library.
pub fn only_methods<'a>(symbols: &Symbols<'a>, classes: &[ClassFacts<'a>]) -> FxHashMap<&'a str, OnlyMethods> {
    let mut found: FxHashMap<&str, Vec<(ClassId, FunctionId)>> = FxHashMap::default();
    for (class, symbol) in symbols.classes.iter().enumerate() {
        for (name, method) in &symbol.methods {
            found.entry(name).or_default().push((class, *method));
        }
    }
    // `show_gradients`: called only now and then.
    let shows = |name: &str| name.split('_').next().is_some_and(|first| Role::Shows.fits(first));
    let is_own = |name: &str| {
        let is_plain = name.len() > 5 && name.contains('_') && !name.starts_with('_');
        is_plain && !Role::CommonMethod.fits(name) && !shows(name)
    };
    let root = |class: ClassId| lineage(classes, class).last().copied();
    let told = |(name, mut all): (&'a str, Vec<(ClassId, FunctionId)>)| {
        all.sort_unstable();
        let is_of_modules = all.iter().all(|(class, _)| classes[*class].kind.is_module());
        let is_plain = all.iter().all(|(class, _)| classes[*class].kind == ClassKind::Other);
        let is_of_family = (is_plain || is_of_modules) && all.iter().all(|(class, _)| root(*class) == root(all[0].0));
        let is_told = all.len() <= MOST_DEFINITIONS && (is_of_modules || is_of_family);
        let methods = all.into_iter().map(|(_, method)| method).collect();
        is_told.then_some((name, OnlyMethods { methods, is_of_family }))
    };
    found.into_iter().filter(|(name, _)| is_own(name)).filter_map(told).collect()
}

/// Whether the method's body does nothing, so that derived classes must override it.
pub fn is_left_open(function: &Function) -> bool {
    let does_nothing = |statement: &Stmt| match statement {
        Stmt::Pass(_) | Stmt::Raise(_) => true,
        Stmt::Expr(inner) => matches!(&*inner.value, Expr::StringLiteral(_) | Expr::EllipsisLiteral(_)),
        Stmt::Return(inner) => inner.value.as_deref().is_none_or(|value| value.is_none_literal_expr()),
        _ => false,
    };
    function.class.is_some() && function.body.iter().all(does_nothing)
}

/// Lookup order of attributes and methods: the class, then its bases among the given files, each once.
pub fn lineage(classes: &[ClassFacts], class: ClassId) -> Vec<ClassId> {
    let mut order = vec![class];
    let mut at = 0;
    while at < order.len() && order.len() < 32 {
        for base in &classes[order[at]].bases {
            if !order.contains(base) {
                order.push(*base);
            }
        }
        at += 1;
    }
    order
}

enum Base {
    Class(ClassId),
    External(String),
}

impl Base {
    fn class(&self) -> Option<ClassId> {
        match self {
            Base::Class(class) => Some(*class),
            Base::External(_) => None,
        }
    }
}

fn bases_of(symbols: &Symbols, index: &ModuleIndex, class: ClassId) -> Vec<Base> {
    let definition = &symbols.classes[class];
    let Some(arguments) = &definition.definition.arguments else { return Vec::new() };
    let resolver = Resolver::new(symbols, index);
    let resolve = |expression: &Expr| {
        let dotted = dotted_name(expression)?;
        let (first, rest) = dotted.split_once('.').unwrap_or((dotted.as_str(), ""));
        let symbol = match resolver.name(definition.file, first) {
            Some(Symbol::Class(found)) if rest.is_empty() && found != class => return Some(Base::Class(found)),
            Some(Symbol::External(name)) if rest.is_empty() => name,
            Some(Symbol::External(name)) => format!("{name}.{rest}"),
            Some(Symbol::Module(file)) => match resolver.name(file, rest) {
                Some(Symbol::Class(found)) if found != class => return Some(Base::Class(found)),
                _ => dotted,
            },
            _ => dotted,
        };
        match resolver.dotted(definition.file, &symbol) {
            Symbol::Class(found) if found != class => Some(Base::Class(found)),
            _ => Some(Base::External(symbol)),
        }
    };
    arguments.args.iter().filter_map(resolve).collect()
}

fn kind_of(bases: &[Vec<Base>], class: ClassId, depth: usize) -> ClassKind {
    let kinds = bases[class].iter().map(|base| match base {
        Base::Class(base) if depth > 0 => kind_of(bases, *base, depth - 1),
        Base::Class(_) => ClassKind::Other,
        Base::External(name) => kind_by_name(name),
    });
    kinds.into_iter().find(|kind| *kind != ClassKind::Other).unwrap_or(ClassKind::Other)
}

fn kind_by_name(dotted: &str) -> ClassKind {
    let last = dotted.rsplit('.').next().unwrap_or(dotted);
    let effect = Owner::BaseClass.effect(last).or_else(|| Owner::BaseClass.effect_of_part(last));
    match effect.or_else(|| Owner::BaseClass.effect_of_part(dotted)) {
        Effect::LightningClass => ClassKind::Lightning,
        Effect::GradientClass if Role::Autograd.fits(dotted) => ClassKind::Gradient,
        Effect::OptimizerObject => ClassKind::Optimizer,
        Effect::LoaderObject => ClassKind::Loader,
        Effect::TrainerClass => ClassKind::Trainer,
        Effect::CallbackClass => ClassKind::Callback,
        Effect::DatasetClass => ClassKind::Dataset,
        Effect::Model => ClassKind::Module,
        Effect::Pretrained if Role::PretrainedLibrary.fits(dotted) => ClassKind::Module,
        _ => ClassKind::Other,
    }
}

/// `name` in `self.name`.
pub fn attribute_of_self(expression: &Expr) -> Option<&str> {
    let attribute = expression.as_attribute_expr()?;
    let is_own = name_of(&attribute.value).is_some_and(|owner| Role::SelfName.fits(owner));
    is_own.then(|| attribute.attr.as_str())
}
