//! `ddp-static-graph`: DistributedDataParallel assumes that all steps have the first step's graph.

use super::edit::{At, Edit, Value};
use super::{Class, Remedy, remedy};

pub const REMEDY: Remedy = remedy!(
    "ddp_static_graph",
    "ddp-static-graph",
    Class::Same,
    "DistributedDataParallel assumes that all steps have the first step's graph",
    answers ["communication-exposed"],
    by_hand "give DistributedDataParallel `static_graph=True`",
    edits [
        Edit::Argument { at: At::Distributed, name: "static_graph", value: Value::Is("True"), position: None },
    ]
);
