//! `tf32`: fp32 matrix products and convolutions run on tensor cores.

use super::edit::{Edit, Given, Value};
use super::{Class, Remedy, remedy};

pub const REMEDY: Remedy = remedy!(
    "tf32",
    "tf32",
    Class::Rounding,
    "fp32 matrix products and convolutions run on tensor cores",
    answers ["no-tensor-cores"],
    by_hand "call `torch.set_float32_matmul_precision(\"high\")` before the first step",
    edits [
        Edit::Setting {
            given: &[
                Given::Assigned("torch.backends.cuda.matmul.allow_tf32", "True"),
                Given::Called("torch.set_float32_matmul_precision"),
                Given::Assigned("torch.backends.cuda.matmul.fp32_precision", "\"tf32\""),
                Given::Assigned("torch.backends.fp32_precision", "\"tf32\""),
            ],
            also: &[
                Given::Assigned("torch.backends.cudnn.allow_tf32", "True"),
                Given::Assigned("torch.backends.cudnn.conv.fp32_precision", "\"tf32\""),
                Given::Assigned("torch.backends.cudnn.fp32_precision", "\"tf32\""),
            ],
            line: "torch.set_float32_matmul_precision(\"high\")",
            value: Value::Is("\"high\""),
            newer: Some(("fp32_precision", "torch.backends.cuda.matmul.fp32_precision = \"tf32\"")),
        },
    ]
);
