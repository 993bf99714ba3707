//! Calls of libraries, with their return values, changes and waits: `tables/api.tsv`, which `bench/api_table.py` writes.

use std::sync::LazyLock;

use rustc_hash::FxHashMap;

use super::rows;

const TABLE: &str = include_str!("tables/api.tsv");

/// The kinds of values that a call may return, one bit each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kinds(u16);

impl Kinds {
    pub const TENSOR: Kinds = Kinds(1);
    /// A tensor of truth values.
    pub const MASK: Kinds = Kinds(1 << 1);
    /// Several tensors in a tuple or a list.
    pub const TENSORS: Kinds = Kinds(1 << 2);
    /// A truth value of Python's.
    pub const BOOL: Kinds = Kinds(1 << 3);
    /// Everything that no rule asks for by itself.
    const OTHER: Kinds = Kinds(1 << 15);

    fn read(text: &str) -> Kinds {
        text.split('|').fold(Kinds(0), |all, word| {
            let kind = match word {
                "tensor" => Kinds::TENSOR,
                "mask" => Kinds::MASK,
                "tensors" => Kinds::TENSORS,
                "bool" => Kinds::BOOL,
                _ => Kinds::OTHER,
            };
            Kinds(all.0 | kind.0)
        })
    }

    /// Whether each kind is one of the others.
    pub fn are_among(self, others: Kinds) -> bool {
        self.0 & !others.0 == 0
    }

    const fn or(self, other: Kinds) -> Kinds {
        Kinds(self.0 | other.0)
    }
}

/// Where a result is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Where the tensors among the arguments are.
    Arguments,
    /// Where `device=` says, else on the host.
    DeviceArgument,
    Other,
}

/// Whether the host waits for the device in a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waits {
    Yes,
    No,
    /// For some kinds of arguments.
    Some,
    NotMeasured,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    pub returns: Kinds,
    /// Whether it changes the tensor that it is called on.
    pub in_place: bool,
    /// Whether the contents differ from call to call: drawn at random, or left as they were in memory.
    pub draws: bool,
    pub place: Place,
    pub waits: Waits,
}

impl Row {
    fn read(line: &'static str) -> Option<(&'static str, Row)> {
        let mut fields = line.split('\t');
        let name = fields.next()?;
        let (returns, in_place, draws) = (fields.next()?, fields.next()?, fields.next()?);
        let place = match fields.next()? {
            "arguments" => Place::Arguments,
            "device-argument" => Place::DeviceArgument,
            _ => Place::Other,
        };
        let waits = match fields.next()? {
            "yes" => Waits::Yes,
            "no" => Waits::No,
            "some" => Waits::Some,
            _ => Waits::NotMeasured,
        };
        let row =
            Row { returns: Kinds::read(returns), in_place: in_place == "yes", draws: draws == "yes", place, waits };
        Some((name, row))
    }

    pub fn makes_mask(&self) -> bool {
        self.returns == Kinds::MASK
    }

    /// Whether the size of the result depends on the contents of a tensor, so that the host has to wait for it.
    pub fn sizes_by_value(&self) -> bool {
        let is_tensor = self.returns.are_among(Kinds::TENSOR.or(Kinds::TENSORS));
        is_tensor && self.place == Place::Arguments && self.waits == Waits::Yes
    }
}

/// By name: torch's functions without `torch.`, methods of tensors without `torch.Tensor.`, others in full.
struct Tables {
    torch: FxHashMap<&'static str, Row>,
    methods: FxHashMap<&'static str, Row>,
    others: FxHashMap<&'static str, Row>,
}

/// Read at the first question: a tenth of a millisecond.
static TABLES: LazyLock<Tables> = LazyLock::new(|| {
    let (mut torch, mut methods, mut others) = (FxHashMap::default(), FxHashMap::default(), FxHashMap::default());
    for (name, row) in rows::lines(TABLE).filter_map(Row::read) {
        match name.strip_prefix("torch.") {
            Some(rest) => match rest.strip_prefix("Tensor.") {
                Some(method) => methods.insert(method, row),
                None => torch.insert(rest, row),
            },
            None => others.insert(name, row),
        };
    }
    Tables { torch, methods, others }
});

/// The row of a function or a class by its whole name: `torch.linalg.norm`, `numpy.prod`.
pub fn function(dotted: &str) -> Option<&'static Row> {
    match dotted.strip_prefix("torch.") {
        Some(rest) => torch_function(rest),
        None => TABLES.others.get(dotted),
    }
}

/// The name of something of torch's without `torch.`.
pub fn torch_name(dotted: &str) -> Option<&str> {
    dotted.strip_prefix("torch.")
}

/// Whether the dotted name is torch itself or a part of it.
pub fn is_of_torch(dotted: &str) -> bool {
    dotted == "torch" || dotted.starts_with("torch.")
}

/// The row of a function of torch's by its name without `torch.`.
pub fn torch_function(rest: &str) -> Option<&'static Row> {
    TABLES.torch.get(rest)
}

/// The row of a tensor's method.
pub fn tensor_method(name: &str) -> Option<&'static Row> {
    TABLES.methods.get(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_read() {
        let rows = TABLE.lines().filter(|line| !line.starts_with('#')).count() - 1;
        assert_eq!(TABLES.torch.len() + TABLES.methods.len() + TABLES.others.len(), rows);
        assert!(rows > 2_000, "{rows} rows");
        assert!(TABLES.methods.len() > 500, "{} methods", TABLES.methods.len());
    }

    #[test]
    fn factories_take_a_device_and_some_of_them_draw() {
        let is = |name: &str| function(name).map(|row| (row.place == Place::DeviceArgument, row.draws));
        for name in ["torch.ones", "torch.arange", "torch.full", "torch.eye", "torch.hann_window", "torch.tril_indices"]
        {
            assert_eq!(is(name), Some((true, false)), "{name}");
        }
        for name in ["torch.rand", "torch.randn", "torch.randint", "torch.randperm", "torch.normal", "torch.empty"] {
            assert_eq!(is(name), Some((true, true)), "{name}");
        }
        assert_eq!(is("torch.ones_like"), Some((false, false)));
        assert_eq!(is("torch.matmul"), Some((false, false)));
    }

    #[test]
    fn comparisons_make_masks_and_questions_are_answered_on_the_host() {
        for name in ["eq", "ge", "greater", "not_equal", "isnan", "logical_and", "any"] {
            assert!(tensor_method(name).is_some_and(Row::makes_mask), "{name}");
        }
        // In place, the result keeps the type of the tensor.
        assert!(!tensor_method("eq_").expect("a row").makes_mask());
        assert!(tensor_method("eq_").expect("a row").in_place);
        assert!(!tensor_method("sum").expect("a row").makes_mask());
        for name in ["torch.equal", "torch.allclose", "torch.cuda.is_available", "torch.distributed.is_initialized"] {
            assert_eq!(function(name).expect("a row").returns, Kinds::BOOL, "{name}");
        }
    }

    #[test]
    fn results_sized_by_their_contents_wait() {
        for name in ["nonzero", "masked_select", "unique", "argwhere"] {
            assert!(tensor_method(name).is_some_and(Row::sizes_by_value), "{name}");
        }
        for name in ["item", "cpu", "sum", "repeat_interleave"] {
            assert!(!tensor_method(name).is_some_and(Row::sizes_by_value), "{name}");
        }
        assert_eq!(tensor_method("repeat_interleave").expect("a row").waits, Waits::Some);
        assert_eq!(tensor_method("item").expect("a row").waits, Waits::Yes);
        assert_eq!(function("torch.nothing_of_this_name"), None);
        assert_eq!(function("numpy.sqrt").expect("a row").waits, Waits::No);
    }
}
