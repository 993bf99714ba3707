//! `cudnn-benchmark`: cuDNN times its algorithms and keeps the fastest.

use super::edit::{Edit, Given, Value};
use super::{Class, Remedy, remedy};

pub const REMEDY: Remedy = remedy!(
    "cudnn_benchmark",
    "cudnn-benchmark",
    Class::Rounding,
    "cuDNN times its algorithms and keeps the fastest",
    answers ["below-roof"],
    by_hand "set `torch.backends.cudnn.benchmark = True` before the first step",
    edits [
        Edit::Setting {
            given: &[Given::Assigned("torch.backends.cudnn.benchmark", "True")],
            also: &[],
            line: "torch.backends.cudnn.benchmark = True",
            value: Value::Is("True"),
            newer: None,
        },
    ]
);
