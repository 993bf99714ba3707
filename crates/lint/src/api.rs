//! Calls of libraries, with their return values, changes and waits: `tables/api.tsv`, which `bench/api_table.py` writes.

use std::sync::LazyLock;

use rustc_hash::FxHashMap;

use super::rows;

const TABLE: &str = include_str!("tables/api.tsv");

/// A call, as its row says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// The kinds of values that it may return: `tensor`, `mask`, `tensors`, `bool`.
    returns: &'static str,
    /// Where its result is: `arguments`, `device-argument`.
    place: &'static str,
    /// Whether it changes the tensor that it is called on.
    pub in_place: bool,
    /// Whether the contents differ from call to call: drawn at random, or left as they were in memory.
    pub draws: bool,
    /// Whether the host waits for the device in a call: `yes`, `some` (for some arguments), `size` (for the size of the
    /// result), `no`, `not-measured`.
    waits: &'static str,
}

impl Row {
    fn read(line: &'static str) -> Option<(&'static str, Row)> {
        let mut fields = line.split('\t');
        let mut next = || fields.next();
        let (name, returns, in_place, draws, place, waits) = (next()?, next()?, next()?, next()?, next()?, next()?);
        let is_so = |field: &str| field == "yes";
        Some((name, Row { returns, place, in_place: is_so(in_place), draws: is_so(draws), waits }))
    }

    /// Whether it returns a tensor of truth values.
    pub fn makes_mask(&self) -> bool {
        self.returns == "mask"
    }

    /// Whether it returns a truth value of Python's.
    pub fn answers(&self) -> bool {
        self.returns == "bool"
    }

    /// Whether its result is where `device=` says, else on the host.
    pub fn takes_device(&self) -> bool {
        self.place == "device-argument"
    }

    /// Whether the size of the result depends on the contents of a tensor, so that the host has to wait for it.
    pub fn sizes_by_value(&self) -> bool {
        let is_tensor = self.returns.split('|').all(|kind| kind == "tensor" || kind == "tensors");
        is_tensor && self.place == "arguments" && self.waits == "size"
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
        let is = |name: &str| function(name).map(|row| (row.takes_device(), row.draws));
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
            assert!(function(name).is_some_and(Row::answers), "{name}");
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
        // An inverse waits to know whether there is one, and not for its size.
        for (name, waits) in [("repeat_interleave", "some"), ("item", "yes"), ("inverse", "yes"), ("add", "no")] {
            assert_eq!(
                function(&format!("torch.{name}")).or(tensor_method(name)).expect("a row").waits,
                waits,
                "{name}"
            );
        }
        assert!(!function("torch.inverse").is_some_and(Row::sizes_by_value));
        assert_eq!(function("torch.nothing_of_this_name"), None);
        assert_eq!(function("numpy.sqrt").expect("a row").waits, "no");
    }
}
