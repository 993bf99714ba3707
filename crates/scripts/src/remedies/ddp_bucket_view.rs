//! `ddp-bucket-view`: gradients are views of DistributedDataParallel's buckets.

use super::edit::{At, Edit, Value};
use super::{Class, Remedy, remedy};

pub const REMEDY: Remedy = remedy!(
    "ddp_bucket_view",
    "ddp-bucket-view",
    Class::Same,
    "gradients are views of DistributedDataParallel's buckets",
    answers ["communication-exposed"],
    by_hand "give DistributedDataParallel `gradient_as_bucket_view=True`",
    edits [
        Edit::Argument { at: At::Distributed, name: "gradient_as_bucket_view", value: Value::Is("True"), position: None },
    ]
);
