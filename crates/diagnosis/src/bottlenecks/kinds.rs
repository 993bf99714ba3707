//! Which part of the model a place belongs to, by its module and operator.

use headroom_record::operators::PlaceStats;

fn leaf(place: &PlaceStats) -> &str {
    place.module.rsplit('.').next().unwrap_or_default()
}

pub fn is_qkv(place: &PlaceStats) -> bool {
    matches!(leaf(place), "q_proj" | "k_proj" | "v_proj") || leaf(place).contains("qkv")
}

pub fn is_gate_up(place: &PlaceStats) -> bool {
    matches!(leaf(place), "gate_proj" | "up_proj" | "mlp") || leaf(place).contains("gate_up")
}

pub fn is_attention(place: &PlaceStats) -> bool {
    leaf(place) == "self_attn"
}

pub fn is_softmax(place: &PlaceStats) -> bool {
    place.name.contains("softmax")
}

pub fn is_optimizer(place: &PlaceStats) -> bool {
    place.phase == "optimizer"
}

pub fn is_norm(place: &PlaceStats) -> bool {
    place.name.contains("norm") && !is_optimizer(place)
}

pub fn is_loss(place: &PlaceStats) -> bool {
    matches!(leaf(place), "lm_head" | "loss")
}

/// A weight product, fused with others or not.
pub fn is_product(place: &PlaceStats) -> bool {
    place.name == "matmul" || place.name.starts_with("linear")
}
