//! Static facts about a value: whether it is a tensor, where it is, what it derives from.

use ruff_text_size::TextRange;

use super::ids::{ClassId, FileId, FunctionId};

/// Beyond this many functions, they are not tracked separately.
pub const MOST_FUNCTIONS: usize = 12;

/// Containers nest at most this deep; deeper contents are unknown.
const MOST_NESTING: usize = 4;

#[derive(Clone, Debug, PartialEq, Hash)]
pub enum Value {
    Unknown,
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
        entries: Vec<(String, Value)>,
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

#[derive(Clone, Debug, PartialEq, Hash)]
pub struct Tensor {
    pub home: Home,
    /// Whether it carries the graph that produced it.
    pub graph: bool,
    pub boolean: bool,
    pub origin: Origin,
    pub role: Role,
    /// Assumed to be a tensor without better evidence: an argument of a `forward`, or the result of an unknown function
    /// of one. Reads that any value allows (`if x`, `float(x)`, f-strings) need more evidence.
    pub guessed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Home {
    Device,
    /// On the host, from a loader that pins its batches.
    Pinned,
    Host,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Origin {
    Data,
    /// A factory whose arguments depend on sizes only: the same tensor at every step with the same shapes.
    Constant(TextRange),
    /// Another factory (`randn`).
    Factory(TextRange),
    /// `torch.tensor(...)`, `from_numpy`.
    HostData(TextRange),
}

/// A tensor's role in hand-written attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
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
        home: Home::Device,
        graph: false,
        boolean: false,
        origin: Origin::Data,
        role: Role::Plain,
        guessed: false,
    };
    pub const WITH_GRAPH: Tensor = Tensor { graph: true, ..Tensor::ON_DEVICE };
    pub const ON_HOST: Tensor = Tensor { home: Home::Host, ..Tensor::ON_DEVICE };
    pub const GUESS: Tensor = Tensor { guessed: true, ..Tensor::WITH_GRAPH };
    pub const PARAMETER: Tensor = Tensor { role: Role::Parameter, ..Tensor::WITH_GRAPH };
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
        if element.nesting() >= MOST_NESTING { Value::Unknown } else { Value::List(Box::new(element)) }
    }

    pub fn tuple(elements: Vec<Value>) -> Value {
        let deep = elements.iter().any(|element| element.nesting() >= MOST_NESTING);
        if deep || elements.len() > 64 { Value::Unknown } else { Value::Tuple(elements) }
    }

    pub fn dict(entries: Vec<(String, Value)>, element: Value) -> Value {
        let deep = entries.iter().any(|(_, value)| value.nesting() >= MOST_NESTING);
        if deep || element.nesting() >= MOST_NESTING || entries.len() > 256 {
            return Value::Unknown;
        }
        Value::Dict { entries, element: Box::new(element) }
    }

    fn nesting(&self) -> usize {
        match self {
            Value::Tuple(elements) => 1 + elements.iter().map(Value::nesting).max().unwrap_or(0),
            Value::List(element) => 1 + element.nesting(),
            Value::Dict { entries, element } => {
                1 + entries.iter().map(|(_, value)| value.nesting()).max().unwrap_or(0).max(element.nesting())
            }
            _ => 0,
        }
    }

    pub fn tensor(&self) -> Option<&Tensor> {
        match self {
            Value::Tensor(tensor) => Some(tensor),
            _ => None,
        }
    }

    pub fn is_on_device(&self) -> bool {
        self.tensor().is_some_and(|tensor| tensor.home == Home::Device)
    }

    /// Whether there is evidence that it is a tensor on the device.
    pub fn is_surely_on_device(&self) -> bool {
        self.tensor().is_some_and(|tensor| tensor.home == Home::Device && !tensor.guessed)
    }

    /// The same value, marked as a guess.
    pub fn guessed(self) -> Value {
        match self {
            Value::Tensor(tensor) => Value::Tensor(Tensor { guessed: true, ..tensor }),
            Value::Tuple(elements) => Value::Tuple(elements.into_iter().map(Value::guessed).collect()),
            Value::List(element) => Value::List(Box::new(element.guessed())),
            value => value,
        }
    }

    /// Whether there is evidence that it is on the device, or contains something that is.
    pub fn surely_holds_device(&self) -> bool {
        match self {
            Value::Tensor(tensor) => tensor.home == Home::Device && !tensor.guessed,
            Value::Tuple(elements) => elements.iter().any(Value::surely_holds_device),
            Value::List(element) => element.surely_holds_device(),
            Value::Dict { entries, element } => {
                element.surely_holds_device() || entries.iter().any(|(_, value)| value.surely_holds_device())
            }
            Value::Parameters { .. } => true,
            _ => false,
        }
    }

    /// Whether it is on the device, or contains something that is.
    pub fn holds_device(&self) -> bool {
        match self {
            Value::Tensor(tensor) => tensor.home == Home::Device,
            Value::Tuple(elements) => elements.iter().any(Value::holds_device),
            Value::List(element) => element.holds_device(),
            Value::Dict { entries, element } => {
                element.holds_device() || entries.iter().any(|(_, value)| value.holds_device())
            }
            Value::Parameters { .. } => true,
            _ => false,
        }
    }

    pub fn carries_graph(&self) -> bool {
        self.tensor().is_some_and(|tensor| tensor.graph && !tensor.guessed)
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
            Value::Tuple(elements) => elements.iter().fold(Value::Unknown, |all, one| all.join(one)),
            Value::List(element) => (**element).clone(),
            Value::Dict { .. } => Value::Text(None),
            Value::Parameters { named: true } => {
                Value::Tuple(vec![Value::Text(None), Value::Tensor(Tensor::PARAMETER)])
            }
            Value::Parameters { named: false } => Value::Tensor(Tensor::PARAMETER),
            Value::Tensor(tensor) => Value::Tensor(Tensor { role: Role::Plain, ..tensor.clone() }),
            Value::Numpy => Value::Numpy,
            Value::Text(_) => Value::Text(None),
            _ => Value::Unknown,
        }
    }

    /// The loader or loaders that it is or contains.
    pub fn loaders(&self) -> Vec<LoaderId> {
        match self {
            Value::Loader(Some(id)) => vec![*id],
            Value::Tuple(elements) => elements.iter().flat_map(Value::loaders).collect(),
            Value::List(element) => element.loaders(),
            Value::Dict { entries, element } => {
                entries.iter().flat_map(|(_, value)| value.loaders()).chain(element.loaders()).collect()
            }
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

    /// Joins the values of two paths where they meet. A device tensor wins over a number: `total = 0.0`, then `total +=
    /// loss`.
    pub fn join(&self, other: &Value) -> Value {
        use Value::{Bool, Dict, List, Nothing, Number, Text, Tuple, Unknown};
        match (self, other) {
            (left, right) if left == right => left.clone(),
            (Unknown | Nothing, value) | (value, Unknown | Nothing) => value.clone(),
            (Value::Tensor(left), Value::Tensor(right)) => Value::Tensor(left.join(right)),
            (Value::Tensor(tensor), Number { .. } | Bool(_)) | (Number { .. } | Bool(_), Value::Tensor(tensor)) => {
                Value::Tensor(tensor.clone())
            }
            (Number { sized: left, .. }, Number { sized: right, .. }) => Number { known: None, sized: *left && *right },
            (Bool(_), Bool(_)) => Bool(None),
            (Text(_), Text(_)) => Text(None),
            (Tuple(left), Tuple(right)) if left.len() == right.len() => {
                Value::tuple(left.iter().zip(right).map(|(left, right)| left.join(right)).collect())
            }
            (List(left), List(right)) => Value::list(left.join(right)),
            (Dict { entries: left, element: one }, Dict { entries: right, element: two }) => {
                let mut entries = left.clone();
                for (key, value) in right {
                    match entries.iter_mut().find(|(known, _)| known == key) {
                        Some((_, known)) => *known = known.join(value),
                        None => entries.push((key.clone(), value.clone())),
                    }
                }
                Value::dict(entries, one.join(two))
            }
            // A module, or an object that wraps one and is called like it.
            (Value::Model(_), wrapper @ Value::Instance(_)) | (wrapper @ Value::Instance(_), Value::Model(_)) => {
                wrapper.clone()
            }
            // An unknown wrapper stands for the model it wraps.
            (Value::Model(one), Value::Model(None)) | (Value::Model(None), Value::Model(one)) => Value::Model(*one),
            (Value::Model(_), Value::Model(_)) => Value::Model(None),
            // The first stands for both: they are constructed alike.
            (Value::Loader(one), Value::Loader(other)) => Value::Loader(one.iter().chain(other).min().copied()),
            // Two loaders for training, one for a test run.
            (several @ Tuple(elements), Value::Loader(_)) | (Value::Loader(_), several @ Tuple(elements))
                if elements.iter().any(|element| matches!(element, Value::Loader(_))) =>
            {
                several.clone()
            }
            (Value::Optimizer(_), Value::Optimizer(_)) => Value::Optimizer(None),
            // Model outputs that are accessed by name elsewhere.
            (Value::Tensor(tensor), Dict { entries, element }) | (Dict { entries, element }, Value::Tensor(tensor)) => {
                let element = element.join(&Value::Tensor(tensor.clone()));
                Value::dict(entries.clone(), element)
            }
            (Value::Device, Text(_)) | (Text(_), Value::Device) => Value::Device,
            (Value::External(one), Value::External(other)) => {
                same_on_device(one, other).map_or(Unknown, Value::External)
            }
            (one, other) if !one.classes().is_empty() && !other.classes().is_empty() => {
                let mut all = [one.classes(), other.classes()].concat();
                all.sort_unstable();
                all.dedup();
                if all.len() > MOST_FUNCTIONS { Unknown } else { Value::Instances(all) }
            }
            (one, other) if !one.functions().is_empty() && !other.functions().is_empty() => {
                let mut all = [one.functions(), other.functions()].concat();
                all.sort_unstable();
                all.dedup();
                if all.len() > MOST_FUNCTIONS { Unknown } else { Value::Functions(all) }
            }
            (left, right) if left.holds_device() || right.holds_device() => Value::Tensor(Tensor::GUESS),
            _ => Unknown,
        }
    }
}

impl Tensor {
    fn join(&self, other: &Tensor) -> Tensor {
        let home = match (self.home, other.home) {
            (Home::Device, _) | (_, Home::Device) => Home::Device,
            (Home::Pinned, Home::Pinned) => Home::Pinned,
            _ => Home::Host,
        };
        Tensor {
            home,
            graph: self.graph || other.graph,
            boolean: self.boolean && other.boolean,
            origin: self.origin.join(other.origin),
            role: if self.role == other.role { self.role } else { Role::Plain },
            guessed: self.guessed || other.guessed,
        }
    }
}

impl Origin {
    /// Two origins made here stay made here: the first stands for both.
    fn join(self, other: Origin) -> Origin {
        match (self, other) {
            (one, other) if one == other => one,
            (one @ Origin::Constant(_), Origin::Constant(_)) => one,
            (Origin::Constant(one) | Origin::Factory(one), Origin::Constant(_) | Origin::Factory(_)) => {
                Origin::Factory(one)
            }
            _ => Origin::Data,
        }
    }
}

/// `torch.cuda.FloatTensor if cuda else torch.FloatTensor`: the same type, on the device.
fn same_on_device(one: &str, other: &str) -> Option<String> {
    let last = |name: &str| name.rsplit('.').next().unwrap_or_default().to_string();
    let is_same = last(one) == last(other) && one.starts_with("torch.") && other.starts_with("torch.");
    is_same.then(|| if one.contains(".cuda.") { one.to_string() } else { other.to_string() })
}

/// Library names for fixed values: `torch.float32`, `math.inf`.
fn is_constant_name(name: &str) -> bool {
    let last = name.rsplit('.').next().unwrap_or(name);
    matches!(last, "inf" | "pi" | "nan" | "e") || is_dtype_name(last)
}

pub fn is_dtype_name(last: &str) -> bool {
    const DTYPES: &[&str] = &[
        "float",
        "float16",
        "float32",
        "float64",
        "bfloat16",
        "half",
        "double",
        "int",
        "int8",
        "int16",
        "int32",
        "int64",
        "long",
        "short",
        "bool",
        "uint8",
        "cfloat",
        "complex64",
        "complex128",
    ];
    DTYPES.contains(&last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_tensor_survives_a_join_with_a_number() {
        assert!(Value::number(0).join(&Value::DEVICE).is_on_device());
        assert!(Value::HOST.join(&Value::DEVICE).is_on_device());
        assert_eq!(Value::number(0).join(&Value::number(4)), Value::SIZE);
    }

    #[test]
    fn dictionaries_join_to_the_union_of_their_keys() {
        let one = Value::dict(vec![("num_workers".to_string(), Value::number(2))], Value::Unknown);
        let joined = Value::dict(vec![], Value::Unknown).join(&one);
        let Value::Dict { entries, .. } = joined else { panic!("{joined:?}") };
        assert_eq!(entries[0].0, "num_workers");
    }

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

    #[test]
    fn containers_stop_growing() {
        let mut value = Value::DEVICE;
        for _ in 0..100 {
            value = Value::list(value);
        }
        assert!(value.nesting() <= MOST_NESTING);
    }
}
