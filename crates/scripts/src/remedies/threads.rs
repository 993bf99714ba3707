//! `threads`: uses as many threads as the process has cores, close to its GPU.

use super::edit::{Edit, Given, Value};
use super::{Class, Remedy, remedy};

pub const REMEDY: Remedy = remedy!(
    "threads",
    "threads",
    Class::Rounding,
    "as many threads as the process has cores, near its GPU",
    answers ["cpu-bound-op"],
    by_hand "call `torch.set_num_threads` with the number of cores that the process has",
    edits [
        Edit::Setting {
            given: &[Given::Called("torch.set_num_threads")],
            also: &[],
            line: "torch.set_num_threads({value})",
            value: Value::Threads,
            newer: None,
        },
        Edit::ByHandWhere {
            did: "threads keep to",
            words: "start the script on the cores of its GPU's node: `numactl --cpunodebind NODE --membind NODE`",
        },
    ]
);
