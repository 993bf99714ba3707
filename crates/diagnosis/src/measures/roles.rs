//! Roles of PyTorch's operators in what the measures look for: the rows of `roles.tsv`.

use std::sync::LazyLock;

use hashbrown::HashMap;
use serde::Deserialize;

use crate::table;

/// The head of the table says what each means.
#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    Factory,
    Shaper,
    Arithmetic,
    Maker,
    OverLists,
    BesideLists,
    Forward,
    Test,
    AfterTest,
    ReadBack,
    Copy,
}

static ROLES: LazyLock<HashMap<&'static str, Vec<Role>>> = LazyLock::new(|| {
    let role = |name: &str| serde_json::from_value(name.into()).expect("the table names roles");
    table::rows(include_str!("roles.tsv")).map(|[name, roles]| (name, roles.split(' ').map(role).collect())).collect()
});

impl Role {
    /// Whether the operator has this role: `aten::item` reads back.
    pub fn is_of(self, operator: &str) -> bool {
        operator.strip_prefix("aten::").is_some_and(|name| self.is_of_plain(name))
    }

    /// The same by the name without its library.
    pub fn is_of_plain(self, name: &str) -> bool {
        ROLES.get(name).is_some_and(|roles| roles.contains(&self))
    }
}

/// Operators that only a GPU has, and PyTorch functions that only a run on a GPU calls.
pub fn is_for_a_device(name: &str) -> bool {
    let operator = name.strip_prefix("aten::");
    let of_gpu = |name: &str| {
        name.starts_with("cudnn_")
            || name.starts_with("_cudnn_")
            || name.starts_with("miopen_")
            || matches!(
                name,
                "_scaled_dot_product_flash_attention"
                    | "_scaled_dot_product_efficient_attention"
                    | "_scaled_dot_product_cudnn_attention"
            )
    };
    operator.is_some_and(of_gpu) || name.contains("torch/cuda/__init__.py") && name.ends_with(": synchronize")
}
