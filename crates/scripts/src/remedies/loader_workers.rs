//! `loader-workers`: DataLoaders get persistent workers that prefetch.

use super::edit::{At, Edit, Value};
use super::{Class, Remedy, remedy};

pub const REMEDY: Remedy = remedy!(
    "loader_workers",
    "loader-workers",
    Class::Same,
    "DataLoaders get persistent workers that prefetch",
    answers ["data-loading"],
    by_hand "give the DataLoader `num_workers`, and `persistent_workers=True`; with two workers or fewer, also `prefetch_factor=4`",
    edits [
        Edit::Argument { at: At::Loader, name: "num_workers", value: Value::Workers, position: Some(5) },
        Edit::Argument { at: At::Loader, name: "persistent_workers", value: Value::Persistent, position: None },
        Edit::Argument { at: At::Loader, name: "prefetch_factor", value: Value::Prefetch, position: None },
        Edit::TrainerArgument { instead_of: At::Loader, name: "dataloader_num_workers", value: Value::Workers },
        Edit::TrainerArgument { instead_of: At::Loader, name: "dataloader_persistent_workers", value: Value::Persistent },
        Edit::TrainerArgument { instead_of: At::Loader, name: "dataloader_prefetch_factor", value: Value::Prefetch },
    ]
);
