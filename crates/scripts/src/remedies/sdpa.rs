//! `sdpa`: attention keeps its scores out of memory.

use super::edit::{At, Edit, Value};
use super::{Class, Remedy, remedy};

pub const REMEDY: Remedy = remedy!(
    "sdpa",
    "sdpa",
    Class::Rounding,
    "attention keeps its scores out of memory",
    answers ["attention-materialised"],
    by_hand "call `.set_attn_implementation(\"sdpa\")` on the model, or `nn.MultiheadAttention` with `need_weights=False`",
    edits [
        Edit::PerEagerModel { statement: "{module}.set_attn_implementation(\"sdpa\")" },
        Edit::Argument { at: At::Attention, name: "need_weights", value: Value::Is("False"), position: Some(4) },
    ]
);
