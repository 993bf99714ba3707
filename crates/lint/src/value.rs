//! Static facts about a value: whether it is a tensor, where it is, what it derives from. How values of several paths
//! are joined is in [`super::lattice`].

use std::collections::BTreeMap;

use ruff_text_size::TextRange;

use super::ids::{ClassId, FileId, FunctionId};
use super::vocabulary::Role;

/// Containers nest at most this deep; deeper contents are unknown.
pub const MOST_NESTING: usize = 4;

/// A tuple with more elements, or a dictionary with more keys, is not followed.
const MOST_ELEMENTS: usize = 64;
pub const MOST_ENTRIES: usize = 256;

#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Not resolved: nothing is known about it.
    Unknown,
    /// One of several: what paths that meet here leave behind. Two or more members in a fixed order.
    OneOf(Vec<Value>),
    /// More different values than are followed.
    Anything,
    /// The value that the caller passes at this position, perhaps moved: in a function's result it stands for the argument of
    /// each call. `known` is what all visible callers together pass.
    Argument {
        index: usize,
        placed: Option<Placement>,
        known: Box<Value>,
    },
    Nothing,
    /// A Python number. `sized` means that it depends on sizes, literals and settings only.
    Number {
        known: Option<i64>,
        sized: bool,
    },
    Bool(Option<bool>),
    Text(Option<String>),
    /// A test that is true only at some steps, bound to a name: `log_now = step % 10 == 0`.
    Cadence,
    /// True where a newer library is installed: `hasattr(torch, "compile")`.
    Capability,
    /// Seconds from a clock.
    Clock,
    Numpy,
    Tensor(Tensor),
    /// `model.parameters()` and lists of them; with names, `(name, parameter)` pairs.
    Parameters {
        named: bool,
    },
    /// A module: of a given class, or of another.
    Model(Option<ClassId>),
    Instance(ClassId),
    /// An object of one of several given classes.
    Instances(Vec<ClassId>),
    Optimizer(Option<SiteId>),
    Scaler(Option<SiteId>),
    Scheduler,
    /// An object that averages its inputs: `AverageMeter()`.
    Meter,
    Loader(Option<LoaderId>),
    Device,
    Dtype,
    Tuple(Vec<Value>),
    List(Box<Value>),
    Dict {
        entries: Entries,
        element: Box<Value>,
    },
    Function(FunctionId),
    /// One of several: `table[name]`, `slow if exact else fast`.
    Functions(Vec<FunctionId>),
    Class(ClassId),
    Module(FileId),
    /// A name of another library, dotted: `torch.nn.functional.relu`.
    External(String),
}

/// The call that constructs an optimizer or a scaler, as an index into the program's calls of that kind.
pub type SiteId = usize;
pub type LoaderId = usize;
/// Values of a dictionary under keys that are known.
pub type Entries = BTreeMap<String, Value>;

#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    pub placement: Placement,
    /// Whether it carries the graph that produced it.
    pub graph: bool,
    pub boolean: bool,
    pub origin: Origin,
    pub stage: Stage,
    pub evidence: Evidence,
}

/// How a value is known to be a tensor; the weakest evidence first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Evidence {
    /// An argument of a `forward`, or the result of an unknown function of one. Reads that any value allows (`if x`,
    /// `float(x)`, f-strings) need more evidence.
    Assumed,
    /// Its making or its use says so.
    Seen,
}

/// Where a tensor is. Of two paths, the later one here decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Placement {
    /// On the host, from a loader that pins its batches.
    Pinned,
    Host,
    Device,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    Data,
    /// A factory whose arguments depend on sizes only: the same tensor at every step with the same shapes.
    Constant(TextRange),
    /// Another factory (`randn`).
    Factory(TextRange),
    /// `torch.tensor(...)`, `from_numpy`.
    HostData(TextRange),
}

/// A tensor's stage of hand-written attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    Plain,
    Transposed,
    /// `q · kᵀ`, scaled or masked.
    Scores(TextRange),
    /// Softmax of scores, with the place where the scores are computed.
    Weights(TextRange),
    Parameter,
}

impl Tensor {
    pub const ON_DEVICE: Tensor = Tensor {
        placement: Placement::Device,
        graph: false,
        boolean: false,
        origin: Origin::Data,
        stage: Stage::Plain,
        evidence: Evidence::Seen,
    };
    pub const WITH_GRAPH: Tensor = Tensor { graph: true, ..Tensor::ON_DEVICE };
    pub const ON_HOST: Tensor = Tensor { placement: Placement::Host, ..Tensor::ON_DEVICE };
    pub const GUESS: Tensor = Tensor { evidence: Evidence::Assumed, ..Tensor::WITH_GRAPH };
    pub const PARAMETER: Tensor = Tensor { stage: Stage::Parameter, ..Tensor::WITH_GRAPH };

    pub fn is_assumed(&self) -> bool {
        self.evidence == Evidence::Assumed
    }

    fn may_be_on_device(&self, at_least: Evidence) -> bool {
        self.placement == Placement::Device && self.evidence >= at_least
    }
}

impl Value {
    pub const DEVICE: Value = Value::Tensor(Tensor::ON_DEVICE);
    pub const DEVICE_WITH_GRAPH: Value = Value::Tensor(Tensor::WITH_GRAPH);
    pub const HOST: Value = Value::Tensor(Tensor::ON_HOST);
    pub const NUMBER: Value = Value::Number { known: None, sized: false };
    pub const SIZE: Value = Value::Number { known: None, sized: true };

    pub fn number(known: i64) -> Value {
        Value::Number { known: Some(known), sized: true }
    }

    pub fn list(element: Value) -> Value {
        Value::List(Box::new(element.cut(MOST_NESTING - 1)))
    }

    pub fn tuple(elements: Vec<Value>) -> Value {
        match elements.len() > MOST_ELEMENTS {
            true => Value::Unknown,
            false => Value::Tuple(elements.into_iter().map(|element| element.cut(MOST_NESTING - 1)).collect()),
        }
    }

    pub fn dict(entries: Entries, element: Value) -> Value {
        if entries.len() > MOST_ENTRIES {
            return Value::Anything;
        }
        let entries = entries.into_iter().map(|(key, value)| (key, value.cut(MOST_NESTING - 1))).collect();
        Value::Dict { entries, element: Box::new(element.cut(MOST_NESTING - 1)) }
    }

    pub fn tensor(&self) -> Option<&Tensor> {
        match self {
            Value::Tensor(tensor) => Some(tensor),
            _ => None,
        }
    }

    /// Whether it may be a tensor on the device, by at least this evidence.
    pub fn may_be_on_device(&self, at_least: Evidence) -> bool {
        self.tensor().is_some_and(|tensor| tensor.may_be_on_device(at_least))
    }

    pub fn is_on_device(&self) -> bool {
        self.may_be_on_device(Evidence::Assumed)
    }

    /// Whether there is evidence that it is a tensor on the device.
    pub fn is_surely_on_device(&self) -> bool {
        self.may_be_on_device(Evidence::Seen)
    }

    /// The values directly inside it: members, elements, entries.
    fn parts(&self) -> Vec<&Value> {
        match self {
            Value::OneOf(inside) | Value::Tuple(inside) => inside.iter().collect(),
            Value::List(inside) | Value::Argument { known: inside, .. } => vec![&**inside],
            Value::Dict { entries, element } => entries.values().chain([&**element]).collect(),
            _ => Vec::new(),
        }
    }

    /// Whether it is a tensor on the device by at least this evidence, or contains one.
    fn may_hold_device(&self, at_least: Evidence) -> bool {
        match self {
            Value::Tensor(tensor) => tensor.may_be_on_device(at_least),
            Value::Parameters { .. } => true,
            _ => self.parts().into_iter().any(|part| part.may_hold_device(at_least)),
        }
    }

    /// Whether there is evidence that it is on the device, or contains something that is.
    pub fn surely_holds_device(&self) -> bool {
        self.may_hold_device(Evidence::Seen)
    }

    /// Whether it is on the device, or contains something that is.
    pub fn holds_device(&self) -> bool {
        self.may_hold_device(Evidence::Assumed)
    }

    pub fn carries_graph(&self) -> bool {
        self.tensor().is_some_and(|tensor| tensor.graph && !tensor.is_assumed())
    }

    pub fn known_integer(&self) -> Option<i64> {
        match self {
            Value::Number { known, .. } => *known,
            Value::Bool(Some(known)) => Some(i64::from(*known)),
            _ => None,
        }
    }

    pub fn known_bool(&self) -> Option<bool> {
        match self {
            Value::Bool(known) => *known,
            Value::Nothing => Some(false),
            Value::Number { known: Some(known), .. } => Some(*known != 0),
            _ => None,
        }
    }

    /// Whether it depends on sizes, literals and settings only.
    pub fn is_sized(&self) -> bool {
        match self {
            Value::Number { sized, .. } => *sized,
            Value::Bool(_) | Value::Text(_) | Value::Nothing | Value::Device | Value::Dtype => true,
            Value::External(name) => is_constant_name(name),
            Value::Tuple(elements) => elements.iter().all(Value::is_sized),
            Value::List(element) => element.is_sized(),
            Value::Tensor(tensor) => matches!(tensor.origin, Origin::Constant(_)),
            _ => false,
        }
    }

    /// The element that a loop over the value yields.
    pub fn element(&self) -> Value {
        match self {
            Value::Tuple(elements) => Value::any_of(elements).reading(),
            Value::List(element) => (**element).clone().reading(),
            Value::Dict { .. } => Value::Text(None),
            Value::Parameters { named: true } => {
                Value::Tuple(vec![Value::Text(None), Value::Tensor(Tensor::PARAMETER)])
            }
            Value::Parameters { named: false } => Value::Tensor(Tensor::PARAMETER),
            Value::Tensor(tensor) => Value::Tensor(Tensor { stage: Stage::Plain, ..tensor.clone() }),
            Value::Numpy => Value::Numpy,
            Value::Text(_) => Value::Text(None),
            _ => Value::Unknown,
        }
    }

    /// The loader or loaders that it is or contains.
    pub fn loaders(&self) -> Vec<LoaderId> {
        match self {
            Value::Loader(Some(id)) => vec![*id],
            _ => self.parts().into_iter().flat_map(Value::loaders).collect(),
        }
    }

    /// The loaders that it itself may be.
    pub fn loader_members(&self) -> Vec<LoaderId> {
        match self {
            Value::Loader(Some(id)) => vec![*id],
            Value::OneOf(members) => members.iter().flat_map(Value::loader_members).collect(),
            Value::Argument { known, .. } => known.loader_members(),
            _ => Vec::new(),
        }
    }

    /// The given classes that it may be an instance of.
    pub fn classes(&self) -> &[ClassId] {
        match self {
            Value::Instance(class) => std::slice::from_ref(class),
            Value::Instances(all) => all,
            _ => &[],
        }
    }

    /// The functions that it may be.
    pub fn functions(&self) -> &[FunctionId] {
        match self {
            Value::Function(function) => std::slice::from_ref(function),
            Value::Functions(all) => all,
            _ => &[],
        }
    }
}

/// Library names for fixed values: `torch.float32`, `math.inf`.
fn is_constant_name(name: &str) -> bool {
    let last = name.rsplit('.').next().unwrap_or(name);
    Role::Constant.fits(last) || Role::Dtype.fits(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn truths_and_numbers_stand_for_each_other_as_in_python() {
        assert_eq!(Value::Bool(Some(false)).known_integer(), Some(0));
        assert_eq!(Value::Bool(Some(true)).known_integer(), Some(1));
        assert_eq!(Value::number(4).known_integer(), Some(4));
        for unknown in [Value::Bool(None), Value::SIZE, Value::Nothing] {
            assert_eq!(unknown.known_integer(), None, "{unknown:?}");
        }
        assert_eq!(Value::number(0).known_bool(), Some(false));
        assert_eq!(Value::number(4).known_bool(), Some(true));
        assert_eq!(Value::Nothing.known_bool(), Some(false));
        assert_eq!((Value::SIZE.known_bool(), Value::DEVICE.known_bool()), (None, None));
    }
}
