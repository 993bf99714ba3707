//! The lattice of values: a value is a set of what it may be, and paths that meet join to the union of their sets.
//!
//! Members of one kind are one member where they differ only in facts that have an order of their own (a number's
//! value, a tensor's graph, a list's element); others stay apart by place, class, function. "Not resolved" is a member
//! like any other. A set with too many members is [`Value::Anything`], which absorbs the rest.
//!
//! Code that follows one value takes a set by its [reading](Value::reading), a function of the whole set: it does not
//! depend on the order in which paths met.

use std::borrow::Borrow;

use super::api;
use super::value::{Evidence, MOST_ENTRIES, Origin, Placement, Stage, Tensor, Value};
use super::vocabulary::Role;

/// Sets with more members are not followed.
const MOST_MEMBERS: usize = 24;

/// The difference between members of a set: their kind, then their place, class, function or name.
type Key<'v> = (u8, usize, &'v str);

impl Value {
    /// The union of what either may be.
    pub fn join(&self, other: &Value) -> Value {
        if self == other {
            return self.clone();
        }
        let mut all: Vec<Value> = Vec::new();
        for member in self.members().into_iter().chain(other.members()) {
            match all.binary_search_by(|known| known.key().cmp(&member.key())) {
                Ok(at) if all[at] == member => {}
                Ok(at) => all[at] = all[at].merged(&member),
                Err(at) => all.insert(at, member),
            }
        }
        if all.len() > MOST_MEMBERS || all.contains(&Value::Anything) {
            return Value::Anything;
        }
        if all.len() == 1 { all.remove(0) } else { Value::OneOf(all) }
    }

    /// The union of what each may be; not resolved where there are none.
    pub fn any_of(values: impl IntoIterator<Item: Borrow<Value>>) -> Value {
        let join = |all: Option<Value>, one: &Value| Some(all.map_or_else(|| one.clone(), |all| all.join(one)));
        values.into_iter().fold(None, |all, one| join(all, one.borrow())).unwrap_or(Value::Unknown)
    }

    fn members(&self) -> Vec<Value> {
        match self {
            Value::OneOf(members) => members.clone(),
            Value::Functions(all) => all.iter().map(|function| Value::Function(*function)).collect(),
            Value::Instances(all) => all.iter().map(|class| Value::Instance(*class)).collect(),
            one => vec![one.clone()],
        }
    }

    fn key(&self) -> Key<'_> {
        let of = |id: &Option<usize>| id.map_or(0, |id| id + 1);
        let (kind, id) = match self {
            Value::External(name) => return (0, 0, name),
            Value::Unknown => (1, 0),
            Value::Nothing => (2, 0),
            Value::Number { .. } => (3, 0),
            Value::Bool(_) => (4, 0),
            Value::Text(_) => (5, 0),
            Value::Cadence => (6, 0),
            Value::Capability => (7, 0),
            Value::Clock => (8, 0),
            Value::Numpy => (9, 0),
            Value::Tensor(tensor) => (10, tensor.placement as usize * 2 + tensor.evidence as usize),
            Value::Parameters { named } => (11, usize::from(*named)),
            Value::Model(class) => (12, of(class)),
            Value::Instance(class) => (13, *class),
            Value::Optimizer(site) => (14, of(site)),
            Value::Scaler(site) => (15, of(site)),
            Value::Scheduler => (16, 0),
            Value::Meter => (17, 0),
            Value::Loader(loader) => (18, of(loader)),
            Value::Device => (19, 0),
            Value::Dtype => (20, 0),
            Value::Tuple(elements) => (21, elements.len()),
            Value::List(_) => (22, 0),
            Value::Dict { .. } => (23, 0),
            Value::Function(function) => (24, *function),
            Value::Class(class) => (25, *class),
            Value::Module(file) => (26, *file),
            Value::Argument { index, placed, .. } => (27, index * 4 + placed.map_or(0, |placed| placed as usize + 1)),
            Value::Anything => (28, 0),
            // A member is never one of these.
            Value::OneOf(_) | Value::Functions(_) | Value::Instances(_) => (29, 0),
        };
        (kind, id, "")
    }

    /// Two members with one key as one.
    fn merged(&self, other: &Value) -> Value {
        match (self, other) {
            (Value::Number { sized: one, .. }, Value::Number { sized: two, .. }) => {
                Value::Number { known: None, sized: *one && *two }
            }
            (Value::Bool(_), _) => Value::Bool(None),
            (Value::Text(_), _) => Value::Text(None),
            (Value::Tensor(one), Value::Tensor(two)) => Value::Tensor(one.join(two)),
            (Value::Tuple(one), Value::Tuple(two)) => {
                Value::Tuple(one.iter().zip(two).map(|(one, two)| one.join(two)).collect())
            }
            (Value::List(one), Value::List(two)) => Value::List(Box::new(one.join(two))),
            (Value::Dict { entries: one, element }, Value::Dict { entries: two, element: other }) => {
                let mut entries = one.clone();
                for (key, value) in two {
                    let joined = entries.get(key).map_or_else(|| value.clone(), |known| known.join(value));
                    entries.insert(key.clone(), joined);
                }
                match entries.len() > MOST_ENTRIES {
                    true => Value::Anything,
                    false => Value::Dict { entries, element: Box::new(element.join(other)) },
                }
            }
            (Value::Argument { index, placed, known }, Value::Argument { known: other, .. }) => {
                Value::Argument { index: *index, placed: *placed, known: Box::new(known.join(other)) }
            }
            // The key says it all.
            _ => self.clone(),
        }
    }

    /// The set as one value, for code that follows one. A member that is not resolved, or nothing, yields to what is known; a
    /// tensor yields to no number (`total = 0.0`, then `total += loss`); kinds that do not go together are not resolved,
    /// or assumed to be a tensor where one of them may be on the device.
    pub fn reading(self) -> Value {
        match self {
            _ if self.is_read() => self,
            Value::OneOf(members) => {
                let members: Vec<Value> = members.into_iter().map(Value::without_arguments).collect();
                match Value::any_of(&members) {
                    Value::OneOf(members) => read(members).reading(),
                    one => one.reading(),
                }
            }
            Value::Anything => Value::Unknown,
            Value::Argument { known, .. } => known.reading(),
            container => container.map_inside(&Value::reading),
        }
    }

    /// Whether it is its own reading.
    fn is_read(&self) -> bool {
        match self {
            Value::OneOf(_) | Value::Anything | Value::Argument { .. } => false,
            Value::Tuple(elements) => elements.iter().all(Value::is_read),
            Value::List(element) => element.is_read(),
            Value::Dict { entries, element } => element.is_read() && entries.values().all(Value::is_read),
            _ => true,
        }
    }

    /// The reading of what several callers pass: a tensor is only assumed where others pass something else.
    pub fn reading_of_callers(self) -> Value {
        let is_other = |member: &Value| !matches!(member, Value::Tensor(_) | Value::Unknown | Value::Nothing);
        let is_mixed = matches!(&self, Value::OneOf(members)
            if members.iter().any(is_other) && members.iter().any(|member| member.tensor().is_some()));
        match self.reading() {
            Value::Tensor(tensor) if is_mixed => Value::Tensor(Tensor { evidence: Evidence::Assumed, ..tensor }),
            reading => reading,
        }
    }

    /// The value as it is known without saying which call it belongs to.
    pub fn without_arguments(self) -> Value {
        match self {
            Value::Argument { known, .. } => known.without_arguments(),
            value => value.map_inside(&Value::without_arguments),
        }
    }

    /// The value with `change` applied to whatever is directly inside it.
    pub fn map_inside(self, change: &dyn Fn(Value) -> Value) -> Value {
        match self {
            Value::OneOf(members) => Value::any_of(members.into_iter().map(change)),
            Value::Tuple(elements) => Value::Tuple(elements.into_iter().map(change).collect()),
            Value::List(element) => Value::List(Box::new(change(*element))),
            Value::Dict { entries, element } => {
                let entries = entries.into_iter().map(|(key, value)| (key, change(value))).collect();
                Value::Dict { entries, element: Box::new(change(*element)) }
            }
            value => value,
        }
    }

    /// The value after a move, which only tensors and what holds them take part in.
    pub fn moved_to(self, placement: Placement) -> Value {
        match self {
            Value::Tensor(tensor) => Value::Tensor(Tensor { evidence: Evidence::Seen, ..tensor.moved_to(placement) }),
            value => value.map_inside(&|inside| inside.moved_to(placement)),
        }
    }

    /// Containers nested deeper than `levels` hold what is not resolved: without it, a list that holds itself would grow
    /// with every visit.
    pub(super) fn cut(self, levels: usize) -> Value {
        match self {
            Value::List(_) | Value::Tuple(_) | Value::Dict { .. } if levels == 0 => Value::Unknown,
            Value::List(_) | Value::Tuple(_) | Value::Dict { .. } => self.map_inside(&|inside| inside.cut(levels - 1)),
            Value::OneOf(_) => self.map_inside(&|member| member.cut(levels)),
            Value::Argument { index, placed, known } => {
                Value::Argument { index, placed, known: Box::new(known.cut(levels)) }
            }
            value => value,
        }
    }
}

/// The reading of a set of two or more members.
fn read(members: Vec<Value>) -> Value {
    let is_resolved = !members.contains(&Value::Unknown);
    let tensor = members.iter().filter_map(Value::tensor).cloned().reduce(|one, other| one.join(&other));
    let has = |wanted: fn(&Value) -> bool| members.iter().any(wanted);
    let has_instance = has(|value| matches!(value, Value::Instance(_)));
    let has_dict = has(|value| matches!(value, Value::Dict { .. }));
    let has_device = has(|value| *value == Value::Device);
    // Two loaders for training, one for a test run.
    let has_loaders = has(
        |value| matches!(value, Value::Tuple(all) if all.iter().any(|element| matches!(element, Value::Loader(_)))),
    );
    let classes = members.iter().filter(|value| matches!(value, Value::Model(Some(_)))).count();
    let mut left: Vec<Value> = Vec::new();
    for member in members {
        let member = match member {
            Value::Model(Some(_)) if classes > 1 => Value::Model(None),
            member => member,
        };
        let yields = match &member {
            Value::Unknown | Value::Nothing => true,
            Value::Number { .. } | Value::Bool(_) => tensor.is_some(),
            // Model outputs that are accessed by name elsewhere.
            Value::Tensor(_) => has_dict,
            // A module, or an object that wraps one and is called like it.
            Value::Model(_) => has_instance,
            Value::Loader(_) => has_loaders,
            Value::Text(_) => has_device,
            _ => false,
        };
        if yields {
            continue;
        }
        match left.last_mut().and_then(|last| together(last, &member)) {
            Some(both) => {
                left.pop();
                left.push(both);
            }
            None => left.push(member),
        }
    }
    if let (Some(tensor), Some(Value::Dict { element, .. })) =
        (tensor, left.iter_mut().find(|value| matches!(value, Value::Dict { .. })))
    {
        **element = element.join(&Value::Tensor(tensor));
    }
    match left.as_slice() {
        [] if is_resolved => Value::Nothing,
        [] => Value::Unknown,
        [_] => left.remove(0),
        several if several.iter().any(Value::holds_device) => Value::Tensor(Tensor::GUESS),
        _ => Value::Unknown,
    }
}

/// The one value that two neighbours of a set are taken for; members of one kind are neighbours.
fn together(one: &Value, other: &Value) -> Option<Value> {
    Some(match (one, other) {
        (Value::Tensor(one), Value::Tensor(other)) => Value::Tensor(one.join(other)),
        // An unknown wrapper stands for the model it wraps. It comes first.
        (Value::Model(None), Value::Model(one)) => Value::Model(*one),
        // The first stands for all: they are constructed alike.
        (Value::Loader(one), Value::Loader(other)) => Value::Loader(one.or(*other)),
        (Value::Optimizer(_), Value::Optimizer(_)) => Value::Optimizer(None),
        (Value::Scaler(_), Value::Scaler(_)) => Value::Scaler(None),
        (Value::External(one), Value::External(other)) => Value::External(same_on_device(one, other)?),
        (one, Value::Instance(class)) if !one.classes().is_empty() => {
            Value::Instances([one.classes(), &[*class]].concat())
        }
        (one, Value::Function(function)) if !one.functions().is_empty() => {
            Value::Functions([one.functions(), &[*function]].concat())
        }
        _ => return None,
    })
}

impl Tensor {
    pub fn join(&self, other: &Tensor) -> Tensor {
        Tensor {
            placement: self.placement.max(other.placement),
            graph: self.graph || other.graph,
            boolean: self.boolean && other.boolean,
            origin: self.origin.join(other.origin),
            stage: if self.stage == other.stage { self.stage } else { Stage::Plain },
            evidence: self.evidence.min(other.evidence),
        }
    }

    /// The same tensor after a move: what was made here for the device stays so, data stays data.
    pub fn moved_to(self, placement: Placement) -> Tensor {
        let origin = match (placement, self.origin) {
            (Placement::Device, Origin::Factory(_) | Origin::HostData(_)) => Origin::Data,
            (_, origin) => origin,
        };
        Tensor { placement, origin, ..self }
    }
}

impl Origin {
    /// Two origins made here stay made here: the first in the text stands for both.
    fn join(self, other: Origin) -> Origin {
        let first = |one: ruff_text_size::TextRange, two: ruff_text_size::TextRange| {
            if (one.start(), one.end()) <= (two.start(), two.end()) { one } else { two }
        };
        match (self, other) {
            (one, other) if one == other => one,
            (Origin::Constant(one), Origin::Constant(two)) => Origin::Constant(first(one, two)),
            (Origin::Constant(one) | Origin::Factory(one), Origin::Constant(two) | Origin::Factory(two)) => {
                Origin::Factory(first(one, two))
            }
            _ => Origin::Data,
        }
    }
}

/// `torch.cuda.FloatTensor if cuda else torch.FloatTensor`: the same type, on the device.
fn same_on_device(one: &str, other: &str) -> Option<String> {
    let last = |name: &str| name.rsplit('.').next().unwrap_or_default().to_string();
    let is_same = last(one) == last(other) && api::is_of_torch(one) && api::is_of_torch(other);
    let is_on_device = Role::DeviceType.fits(one);
    is_same.then(|| if is_on_device { one.to_string() } else { other.to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::{Entries, MOST_NESTING};
    use fastrand::Rng;
    use ruff_text_size::{TextRange, TextSize};

    fn range(draws: &mut Rng) -> TextRange {
        TextRange::at(TextSize::new(draws.u32(..4)), TextSize::new(draws.u32(1..3)))
    }

    fn tensor(draws: &mut Rng) -> Tensor {
        let at = range(draws);
        Tensor {
            placement: [Placement::Pinned, Placement::Host, Placement::Device][draws.usize(..3)],
            graph: draws.bool(),
            boolean: draws.bool(),
            origin: [Origin::Data, Origin::Constant(at), Origin::Factory(at), Origin::HostData(at)][draws.usize(..4)],
            stage: [Stage::Plain, Stage::Transposed, Stage::Scores(at), Stage::Weights(at), Stage::Parameter]
                [draws.usize(..5)],
            evidence: if draws.bool() { Evidence::Seen } else { Evidence::Assumed },
        }
    }

    /// A value that the interpreter could make, drawn at random.
    fn value(draws: &mut Rng, deep: usize) -> Value {
        let id = draws.usize(..3);
        let some = draws.bool().then_some(id);
        match draws.u32(..if deep == 0 { 24 } else { 30 }) {
            0 => Value::Unknown,
            1 => Value::Nothing,
            2 => Value::Number { known: draws.bool().then_some(id as i64), sized: draws.bool() },
            3 => Value::Bool(draws.bool().then(|| draws.bool())),
            4 => Value::Text(draws.bool().then(|| format!("text {id}"))),
            5 => Value::Cadence,
            6 => Value::Capability,
            7 => Value::Clock,
            8 => Value::Numpy,
            9..=12 => Value::Tensor(tensor(draws)),
            13 => Value::Parameters { named: draws.bool() },
            14 => Value::Model(some),
            15 => Value::Instance(id),
            16 => Value::Optimizer(some),
            17 => Value::Scaler(some),
            18 => Value::Loader(some),
            19 => Value::Device,
            20 => Value::Function(id),
            21 => Value::Class(id),
            22 => Value::External(format!("torch.name{id}")),
            23 => Value::Functions(vec![id, id + 3]),
            24 => Value::tuple((0..draws.usize(..3)).map(|_| value(draws, deep - 1)).collect()),
            25 => Value::list(value(draws, deep - 1)),
            26 => {
                let count = draws.usize(..4);
                let entries = (0..count).map(|_| (format!("key {}", draws.u32(..5)), value(draws, deep - 1))).collect();
                Value::dict(entries, value(draws, deep - 1))
            }
            27 => {
                Value::Argument { index: id, placed: None, known: Box::new(value(draws, deep - 1).without_arguments()) }
            }
            _ => value(draws, deep - 1).join(&value(draws, deep - 1)),
        }
    }

    #[test]
    fn join_is_associative_commutative_and_idempotent() {
        let mut draws = Rng::with_seed(57);
        for _ in 0..20_000 {
            let (a, b, c) = (value(&mut draws, 2), value(&mut draws, 2), value(&mut draws, 2));
            assert_eq!(a.join(&b), b.join(&a), "{a:?} and {b:?}");
            assert_eq!(a.join(&b).join(&c), a.join(&b.join(&c)), "{a:?}, {b:?} and {c:?}");
            let both = a.join(&b);
            assert_eq!(both.join(&both), both, "{a:?} and {b:?}");
            assert_eq!(both.join(&a), both, "{a:?} is part of {both:?}");
        }
    }

    #[test]
    fn join_is_monotone_and_ends_in_anything() {
        let mut draws = Rng::with_seed(58);
        for _ in 0..20_000 {
            let (less, c) = (value(&mut draws, 2), value(&mut draws, 2));
            let more = less.join(&value(&mut draws, 2));
            assert_eq!(less.join(&c).join(&more.join(&c)), more.join(&c), "{less:?}, {more:?} and {c:?}");
        }
        let many: Vec<Value> = (0..=MOST_MEMBERS).map(Value::Function).collect();
        assert_eq!(Value::any_of(&many), Value::Anything);
        assert_eq!(Value::any_of(&many[1..]).reading().functions().len(), MOST_MEMBERS);
        assert_eq!(Value::Anything.join(&Value::DEVICE), Value::Anything);
    }

    #[test]
    fn a_reading_is_a_single_value_whatever_the_order() {
        let mut draws = Rng::with_seed(59);
        for _ in 0..5_000 {
            let mut all: Vec<Value> = (0..draws.usize(2..5)).map(|_| value(&mut draws, 2)).collect();
            let reading = Value::any_of(&all).reading();
            assert!(reading.is_read(), "{all:?} reads {reading:?}");
            draws.shuffle(&mut all);
            assert_eq!(Value::any_of(&all).reading(), reading, "{all:?}");
        }
    }

    #[test]
    fn what_is_known_is_read_before_what_is_not() {
        let read = |values: &[Value]| Value::any_of(values).reading();
        assert!(read(&[Value::number(0), Value::DEVICE]).is_on_device());
        assert!(read(&[Value::HOST, Value::DEVICE]).is_on_device());
        assert_eq!(read(&[Value::number(0), Value::number(4)]), Value::SIZE);
        assert_eq!(read(&[Value::Unknown, Value::Numpy, Value::Nothing]), Value::Numpy);
        assert_eq!(read(&[Value::Nothing, Value::Unknown]), Value::Unknown);
        assert_eq!(read(&[Value::Model(None), Value::Model(Some(3))]), Value::Model(Some(3)));
        assert_eq!(read(&[Value::Model(Some(1)), Value::Model(Some(2)), Value::Model(Some(3))]), Value::Model(None));
        // Kinds that do not go together stay unresolved, whatever is added.
        assert_eq!(read(&[Value::Text(None), Value::list(Value::SIZE), Value::Numpy]), Value::Unknown);
        assert_eq!(read(&[Value::Text(None), Value::Numpy, Value::DEVICE]), Value::Tensor(Tensor::GUESS));
    }

    #[test]
    fn callers_that_disagree_leave_an_assumption() {
        let passed = |values: &[Value]| Value::any_of(values).reading_of_callers();
        assert!(!passed(&[Value::DEVICE, Value::NUMBER]).is_surely_on_device());
        assert!(passed(&[Value::DEVICE, Value::Nothing, Value::Unknown]).is_surely_on_device());
    }

    #[test]
    fn dictionaries_join_to_the_union_of_their_keys() {
        let one = Value::dict([("num_workers".to_string(), Value::number(2))].into(), Value::Unknown);
        let joined = Value::dict(Entries::new(), Value::Unknown).join(&one);
        assert_eq!(joined, one);
        let of = |count: usize| {
            Value::dict((0..count).map(|key| (format!("key {key}"), Value::SIZE)).collect(), Value::Unknown)
        };
        assert!(matches!(of(MOST_ENTRIES).join(&of(3)), Value::Dict { .. }));
        assert_eq!(of(MOST_ENTRIES).join(&one), Value::Anything);
    }

    #[test]
    fn containers_stop_growing() {
        let mut value = Value::DEVICE;
        for _ in 0..100 {
            value = Value::list(value.clone()).join(&Value::tuple(vec![value]));
        }
        assert_eq!(value.clone().cut(MOST_NESTING), value);
        assert_eq!(Value::list(value.clone()).join(&Value::tuple(vec![value.clone()])), value);
    }
}
