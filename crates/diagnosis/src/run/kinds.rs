//! Model parts by a place's role and an operator's name.

use std::collections::BTreeMap;

/// The role of each kind of place, as the run's header states it: `query`, or `query+key+value` for a fused call.
#[derive(Clone, Copy)]
pub struct Roles<'t> {
    stated: &'t BTreeMap<String, String>,
}

/// Role names by module name, for runs of versions that did not state roles: all of one model family.
const BEFORE_ROLES: [(&str, &str); 11] = [
    ("q_proj", "query"),
    ("k_proj", "key"),
    ("v_proj", "value"),
    ("o_proj", "output"),
    ("self_attn", "attention"),
    ("gate_proj", "gate"),
    ("up_proj", "up"),
    ("down_proj", "down"),
    ("mlp", "activation"),
    ("lm_head", "head"),
    ("loss", "loss"),
];

impl<'t> Roles<'t> {
    pub fn new(stated: &'t BTreeMap<String, String>) -> Roles<'t> {
        Roles { stated }
    }

    /// Empty if a place is not part of a model.
    pub fn of(self, place: &str) -> String {
        if !self.stated.is_empty() {
            return self.stated.get(place).cloned().unwrap_or_default();
        }
        let leaves = place.rsplit('.').next().unwrap_or_default().split('+');
        let role = |leaf: &str| BEFORE_ROLES.iter().find(|(name, _)| *name == leaf).map(|(_, role)| *role);
        leaves.filter_map(role).collect::<Vec<_>>().join("+")
    }
}

/// Whether a role, or one of a fused call's roles, is among those wanted.
fn has(role: &str, wanted: &[&str]) -> bool {
    role.split('+').any(|one| wanted.contains(&one))
}

pub fn is_qkv(role: &str) -> bool {
    has(role, &["query", "key", "value"])
}

/// The gate and up projections; the activation between them and the down projection is [`is_activation`].
pub fn is_gate_up(role: &str) -> bool {
    has(role, &["gate", "up"])
}

/// The activation and its multiplication, fused or not.
pub fn is_activation(role: &str) -> bool {
    has(role, &["activation"])
}

/// Scores, softmax, weighted sum and rotation: attention without its projections.
pub fn is_attention(role: &str) -> bool {
    has(role, &["attention"])
}

pub fn is_in_attention(role: &str) -> bool {
    is_qkv(role) || has(role, &["head-norm", "attention", "output"])
}

pub fn is_in_feed_forward(role: &str) -> bool {
    has(role, &["gate", "up", "activation", "down"])
}

pub fn is_loss(role: &str) -> bool {
    has(role, &["head", "loss"])
}

pub fn is_softmax(name: &str) -> bool {
    name.contains("softmax")
}

pub fn is_norm(name: &str) -> bool {
    name.contains("norm")
}

pub fn is_rotation(name: &str) -> bool {
    name.starts_with("rope")
}

/// A weight GEMM, fused with others or not.
pub fn is_weight_product(name: &str) -> bool {
    name == "matmul" || name.starts_with("linear")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stated_roles_count_and_names_stand_in_where_there_are_none() {
        let none = BTreeMap::new();
        let roles = Roles::new(&none);
        assert_eq!(roles.of("layers.*.self_attn.q_proj+k_proj+v_proj"), "query+key+value");
        assert_eq!([roles.of("layers.*.self_attn"), roles.of("lm_head+loss")], ["attention", "head+loss"]);
        assert_eq!(roles.of("optimizer"), "");
        let stated = BTreeMap::from([("layers.*.attn.c_fc".to_string(), "up".to_string())]);
        let roles = Roles::new(&stated);
        assert_eq!([roles.of("layers.*.attn.c_fc"), roles.of("layers.*.self_attn")], ["up", ""]);
    }
}
