//! `loader-pinning`: DataLoaders hand out batches in pinned memory.

use super::edit::{At, Edit, Value};
use super::{Class, Remedy, remedy};

pub const REMEDY: Remedy = remedy!(
    "loader_pinning",
    "loader-pinning",
    Class::Same,
    "DataLoaders hand out batches in pinned memory",
    answers ["host-copies"],
    by_hand "give the DataLoader `pin_memory=True`",
    edits [
        Edit::Argument { at: At::Loader, name: "pin_memory", value: Value::Pinned, position: Some(7) },
        Edit::TrainerArgument { instead_of: At::Loader, name: "dataloader_pin_memory", value: Value::Pinned },
    ]
);
