//! Results of calls and attributes by name, each once: rows of `tables/effects.tsv`.
//!
//! A row says whose name it is and what it gives. A star at the end or the begin of a name stands for the rest of it; a
//! whole name comes before a part, and a longer part before a shorter one.

use std::sync::LazyLock;

use rustc_hash::FxHashMap;

use super::rows::{self, named};
use super::value::{Tensor, Value};

const ROWS: &str = include_str!("tables/effects.tsv");

named! {
    /// The owner of a method, an attribute or a function.
    Owner {
        Annotation, Array, ArrayAttribute, BaseClass, Builtin, Dict, List, Loader, Module, ModuleAttribute, Tensor,
        TensorAttribute, Unknown, UnknownAttribute,
        /// Functions of other libraries: the library and the last part of the name.
        Library,
        /// Functions that print or record what they are given.
        LoggingCall,
        /// Functions that read the number in a tensor.
        ReadingCall,
        /// Methods that move the axes of queries and keys.
        Reshaping,
        // Names that an `if` asks: functions, texts, constants for a phase.
        TestedCall, TestedPhase, TestedText,
        /// Functions and classes of torch, without `torch.`.
        Torch,
    }
}

named! {
    /// The result of a name.
    Effect {
        // Values of that kind, whatever the arguments are.
        Array, Bool, Capability, Clock, DeviceName, Dtype, LoaderObject, Model, Models, NamedParameters, Nothing,
        Number, Numbers, OnDevice, OptimizerObject, Parameter, Parameters, SchedulerObject, Size, SizeList, Text,
        Texts, Unresolved, Unresolveds, WithGraph,
        // Results that depend on the owner and the arguments.
        CallbackClass, Casts, Chooses, Compares, DatasetClass, Deepspeed, Detaches, Dictionary, Einsum, Element,
        Enumerates, EvaluationUnless, Extends, FallbackIf, FallbackUnless, Fills, Filters, First, FollowsOther, Gets, GetsOrAdds,
        GetsAttribute, Gradient, GradientClass, HostData, Integer, Items, Iterates, Joins, Keeps, LightningClass,
        MakesLoader, MakesOptimizer, MakesScaler, ModelOrTensor, ModuleList, Moves, New, NewConstant, OnceIf,
        OnceUnless, OptInIf, Partial, Permutes, Pins, Product, ReadsEach, ReadsScalar, ReadsTruth, Reduces,
        RegistersBuffer, Reshapes, Retypes, Rounds, Same, Shows, SizedArray, Sizes, Softmax, Splits, TensorDataset,
        TensorOf, ToDevice, ToHost, Torch, TrainerClass, Transposes, Triangle, TypedTensor, Updates, Values,
        Wraps, Zips,
        /// A tensor changed by numbers, such as a sum, which is still a constant if both are.
        Adjusts,
        /// Adds to a list.
        Appends,
        /// Python's own functions.
        Builtins,
        /// A list of the elements.
        Collects,
        /// A branch for evaluation where the test holds, or where it does not.
        EvaluationIf,
        /// A new tensor of the argument's shape.
        Like,
        /// Returns its arguments, ready to use.
        Prepares,
        /// A model, unless the name says otherwise.
        Pretrained,
        /// A number that is a size where the arguments are.
        Sized,
        /// Nothing is known of the name.
        Other,
    }
}

#[derive(Default)]
struct Names {
    whole: FxHashMap<&'static str, Effect>,
    /// Begins and ends, longer ones first.
    begins: Vec<(&'static str, Effect)>,
    ends: Vec<(&'static str, Effect)>,
}

static NAMES: LazyLock<Vec<Names>> = LazyLock::new(|| {
    let mut all: Vec<Names> = Owner::ALL.iter().map(|_| Names::default()).collect();
    for [owner, name, effect, _] in rows::of(ROWS) {
        let (Some(owner), Some(effect)) = (Owner::named(owner), Effect::named(effect)) else { continue };
        let Names { whole, begins, ends } = &mut all[owner as usize];
        match (name.strip_suffix('*'), name.strip_prefix('*')) {
            (Some(begin), _) => begins.push((begin, effect)),
            (_, Some(end)) => ends.push((end, effect)),
            _ => {
                whole.insert(name, effect);
            }
        }
    }
    for Names { begins, ends, .. } in &mut all {
        begins.sort_by_key(|(begin, _)| std::cmp::Reverse(begin.len()));
        ends.sort_by_key(|(end, _)| std::cmp::Reverse(end.len()));
    }
    all
});

impl Owner {
    /// The effect of a whole name.
    pub fn effect(self, name: &str) -> Effect {
        NAMES[self as usize].whole.get(name).copied().unwrap_or(Effect::Other)
    }

    /// The effect of a name by how it begins or ends.
    pub fn effect_of_part(self, name: &str) -> Effect {
        let Names { begins, ends, .. } = &NAMES[self as usize];
        let begin = begins.iter().find(|(begin, _)| name.starts_with(begin));
        let found = begin.or_else(|| ends.iter().find(|(end, _)| name.ends_with(end)));
        found.map_or(Effect::Other, |(_, effect)| *effect)
    }
}

impl Effect {
    pub fn or_else(self, other: impl FnOnce() -> Effect) -> Effect {
        if self == Effect::Other { other() } else { self }
    }

    /// The value that it gives whatever the arguments are.
    pub fn value(self) -> Option<Value> {
        Some(match self {
            Effect::Array => Value::Numpy,
            Effect::Bool => Value::Bool(None),
            Effect::Capability => Value::Capability,
            Effect::Clock => Value::Clock,
            Effect::DeviceName => Value::Device,
            Effect::Dtype => Value::Dtype,
            Effect::LoaderObject => Value::Loader(None),
            Effect::Model => Value::Model(None),
            Effect::Models => Value::list(Value::Model(None)),
            Effect::NamedParameters => Value::Parameters { named: true },
            Effect::Nothing => Value::Nothing,
            Effect::Number => Value::NUMBER,
            Effect::Numbers => Value::list(Value::NUMBER),
            Effect::OnDevice => Value::DEVICE,
            Effect::OptimizerObject => Value::Optimizer(None),
            Effect::Parameter => Value::Tensor(Tensor::PARAMETER),
            Effect::Parameters => Value::Parameters { named: false },
            Effect::SchedulerObject => Value::Scheduler,
            Effect::Size => Value::SIZE,
            Effect::SizeList => Value::list(Value::SIZE),
            Effect::Text => Value::Text(None),
            Effect::Texts => Value::list(Value::Text(None)),
            Effect::Unresolved => Value::Unknown,
            Effect::Unresolveds => Value::list(Value::Unknown),
            Effect::WithGraph => Value::DEVICE_WITH_GRAPH,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_has_an_owner_and_an_effect_and_stands_once() {
        rows::check(ROWS, 2, |[owner, _, effect, _]| Owner::named(owner).is_some() && Effect::named(effect).is_some());
        let is_used = |known: &str| rows::of(ROWS).any(|[_, _, effect, _]| effect == known);
        let unused = Effect::ALL.iter().filter(|(name, effect)| *effect != Effect::Other && !is_used(name));
        assert_eq!(unused.map(|(name, _)| *name).collect::<Vec<_>>(), [""; 0]);
    }

    #[test]
    fn a_whole_name_and_its_longest_begin_decide() {
        assert_eq!(Owner::Tensor.effect("cpu"), Effect::ToHost);
        assert_eq!(Owner::Tensor.effect("no_such_method"), Effect::Other);
        assert_eq!(Owner::Torch.effect_of_part("optim.lr_scheduler.StepLR"), Effect::SchedulerObject);
        assert_eq!(Owner::Torch.effect_of_part("optim.AdamW"), Effect::MakesOptimizer);
        assert_eq!(Owner::Library.effect_of_part("transformers.AutoModel.from_pretrained"), Effect::Pretrained);
    }
}
