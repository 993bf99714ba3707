//! `ddp-static-graph`: DistributedDataParallel takes the first step's graph for that of all.

use super::edit::{At, Edit, Value};
use super::{Class, Remedy, remedy};

pub const REMEDY: Remedy = remedy!(
    "ddp_static_graph",
    "ddp-static-graph",
    Class::Same,
    "DistributedDataParallel takes the first step's graph for that of all",
    answers ["communication-exposed"],
    by_hand "give DistributedDataParallel `static_graph=True`",
    edits [
        Edit::Argument { at: At::Distributed, name: "static_graph", value: Value::Is("True"), position: None },
    ]
);
