//! Parts of the model by a place's module and an operator's name.

fn leaf(place: &str) -> &str {
    place.rsplit('.').next().unwrap_or_default()
}

/// One of the modules that a fused call stands for is enough.
fn leaf_is(place: &str, names: &[&str]) -> bool {
    leaf(place).split('+').any(|leaf| names.contains(&leaf))
}

pub fn is_qkv(place: &str) -> bool {
    leaf_is(place, &["q_proj", "k_proj", "v_proj"])
}

/// The two projections; what lies between them and the way down is [`is_activation`].
pub fn is_gate_up(place: &str) -> bool {
    leaf_is(place, &["gate_proj", "up_proj"])
}

/// SiLU and its product, fused or not.
pub fn is_activation(place: &str) -> bool {
    leaf(place) == "mlp"
}

/// Scores, softmax, mix and rotation: attention without its projections.
pub fn is_attention(place: &str) -> bool {
    leaf(place) == "self_attn"
}

pub fn is_in_attention(place: &str) -> bool {
    place.contains("self_attn")
}

pub fn is_in_feed_forward(place: &str) -> bool {
    place.contains("mlp")
}

pub fn is_loss(place: &str) -> bool {
    leaf_is(place, &["lm_head", "loss"])
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

/// A weight product, fused with others or not.
pub fn is_weight_product(name: &str) -> bool {
    name == "matmul" || name.starts_with("linear")
}
