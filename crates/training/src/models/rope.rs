//! Rotary embedding: its tables, and how a configuration states them.

use super::ModelConfig;
use super::fields::{FieldError, Fields};

/// Constants of a graph that rotates, for sequences of this length.
pub fn constants(config: &ModelConfig, seq: usize) -> Vec<(&'static str, Vec<f32>)> {
    let (cos, sin) = tables(config, seq);
    vec![("rope.cos", cos), ("rope.sin", sin)]
}

/// Cosines and sines, rounded to single precision where Hugging Face rounds: frequency, angle, cosine and sine.
fn tables(config: &ModelConfig, seq: usize) -> (Vec<f32>, Vec<f32>) {
    let half = config.head_dim / 2;
    let frequencies: Vec<f32> = (0..half)
        .map(|i| {
            let exponent = (2 * i) as f32 / config.head_dim as f32;
            1.0 / config.rope_theta.powf(f64::from(exponent)) as f32
        })
        .collect();
    let angles = (0..seq).flat_map(|position| frequencies.iter().map(move |f| position as f32 * f));
    angles.map(|angle| (f64::from(angle).cos() as f32, f64::from(angle).sin() as f32)).unzip()
}

/// From `rope_theta` or `rope_parameters.rope_theta`; `usual` with neither.
pub fn read_theta(fields: &Fields, usual: f64) -> Result<f64, FieldError> {
    for key in ["rope_parameters", "rope_scaling"] {
        refuse_scaled(fields, key)?;
    }
    let outer = fields.get("rope_theta");
    let inner = fields.get("rope_parameters").and_then(|rope| rope.get("rope_theta"));
    if let (Some(outer), Some(inner)) = (outer, inner)
        && outer.as_f64() != inner.as_f64()
    {
        return Err(fields.refuse("rope_theta", "and rope_parameters.rope_theta says otherwise"));
    }
    match outer.or(inner).filter(|theta| !theta.is_null()) {
        None => Ok(usual),
        Some(theta) => theta.as_f64().filter(|theta| *theta > 0.0).ok_or_else(|| {
            fields.refuse(
                if outer.is_some() { "rope_theta" } else { "rope_parameters" },
                "and RoPE's base is a positive number",
            )
        }),
    }
}

fn refuse_scaled(fields: &Fields, key: &'static str) -> Result<(), FieldError> {
    let Some(rope) = fields.get(key) else { return Ok(()) };
    const KNOWN: [&str; 4] = ["rope_theta", "rope_type", "type", "partial_rotary_factor"];
    let plain = rope.as_object().is_some_and(|rope| {
        let kind = rope.get("rope_type").or(rope.get("type")).filter(|kind| !kind.is_null());
        let whole = rope.get("partial_rotary_factor").is_none_or(|part| part.as_f64() == Some(1.0));
        kind.is_none_or(|kind| kind == "default") && whole && rope.keys().all(|key| KNOWN.contains(&key.as_str()))
    });
    if plain {
        return Ok(());
    }
    Err(fields.refuse(key, "and only the default RoPE can be trained here"))
}
