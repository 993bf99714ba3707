//! `non-blocking-copies`: copies of pinned batches do not make the host wait.

use super::edit::{At, Edit, Value};
use super::{Class, Remedy, remedy};

pub const REMEDY: Remedy = remedy!(
    "non_blocking_copies",
    "non-blocking-copies",
    Class::Same,
    "copies of pinned batches do not make the host wait",
    answers ["host-copies"],
    by_hand "copy batches to the device with `non_blocking=True`",
    edits [
        Edit::Argument { at: At::Copy, name: "non_blocking", value: Value::Is("True"), position: None },
    ]
);
