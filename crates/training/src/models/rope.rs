//! Rotary embedding: its tables, and how a configuration specifies it.

use super::ModelConfig;
use super::fields::{FieldError, Fields};
use serde_json::{Value, json};

/// Constants of a graph with rotary embedding, for sequences of this length.
pub fn constants(config: &ModelConfig, seq: usize) -> Vec<(&'static str, Vec<f32>)> {
    let (cos, sin) = tables(config, seq);
    vec![("rope.cos", cos), ("rope.sin", sin)]
}

/// Llama 3's scaling to sequences longer than those of the original training: slow rotations are slowed down by the
/// factor, fast ones are kept, and those in between are interpolated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RopeScaling {
    pub factor: f64,
    /// Turns within the original length below which a rotation counts as slow, and above which it counts as fast.
    pub low_freq_factor: f64,
    pub high_freq_factor: f64,
    /// Sequence length of the original training.
    pub original_positions: usize,
}

impl RopeScaling {
    /// Computed in single precision, in the same order of operations as Hugging Face.
    fn scaled(&self, frequency: f32) -> f32 {
        let (factor, length) = (self.factor as f32, self.original_positions as f32);
        let (low, high) = (self.low_freq_factor as f32, self.high_freq_factor as f32);
        let wavelength = (2.0 * std::f64::consts::PI) as f32 / frequency;
        if wavelength > length / low {
            frequency / factor
        } else if wavelength < length / high {
            frequency
        } else {
            let share = (length / wavelength - low) / (high - low);
            (1.0 - share) * frequency / factor + share * frequency
        }
    }
}

/// Cosines and sines, rounded to single precision where Hugging Face rounds: frequency, angle, cosine and sine.
fn tables(config: &ModelConfig, seq: usize) -> (Vec<f32>, Vec<f32>) {
    let half = config.head_dim / 2;
    let frequencies: Vec<f32> = (0..half)
        .map(|i| {
            let exponent = (2 * i) as f32 / config.head_dim as f32;
            let frequency = 1.0 / config.rope_theta.powf(f64::from(exponent)) as f32;
            config.rope_scaling.map_or(frequency, |scaling| scaling.scaled(frequency))
        })
        .collect();
    let angles = (0..seq).flat_map(|position| frequencies.iter().map(move |f| position as f32 * f));
    angles.map(|angle| (f64::from(angle).cos() as f32, f64::from(angle).sin() as f32)).unzip()
}

/// Writes the RoPE base and the scaling in both places, for transformers before and after version 5.
pub fn write(config: &ModelConfig, entries: &mut Value) {
    let theta = config.rope_theta;
    entries["rope_parameters"] = json!({"rope_theta": theta, "rope_type": "default"});
    entries["rope_theta"] = json!(theta);
    if let Some(RopeScaling { factor, low_freq_factor, high_freq_factor, original_positions }) = config.rope_scaling {
        let scaling = json!({
            "factor": factor,
            "high_freq_factor": high_freq_factor,
            "low_freq_factor": low_freq_factor,
            "original_max_position_embeddings": original_positions,
            "rope_theta": theta,
            "rope_type": LLAMA_3,
        });
        entries["rope_parameters"] = scaling.clone();
        entries["rope_scaling"] = scaling;
    }
}

const LLAMA_3: &str = "llama3";

/// Reads `rope_theta` or `rope_parameters.rope_theta`; `usual` if neither is there.
pub fn read_theta(fields: &Fields, usual: f64) -> Result<f64, FieldError> {
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

/// Reads `rope_parameters` or, before transformers 5, `rope_scaling`.
pub fn read_scaling(fields: &Fields) -> Result<Option<RopeScaling>, FieldError> {
    let mut found = None;
    for key in ["rope_parameters", "rope_scaling"] {
        let Some(rope) = fields.get(key) else { continue };
        let scaling = scaling_in(rope)
            .ok_or_else(|| fields.refuse(key, "and only the default RoPE and Llama 3's scaling can be trained here"))?;
        if let (Some(one), Some(other)) = (found, scaling)
            && one != other
        {
            return Err(fields.refuse(key, "and rope_parameters says otherwise"));
        }
        found = found.or(scaling);
    }
    Ok(found)
}

/// `None` if the setting is not supported; `Some(None)` for the default RoPE.
fn scaling_in(rope: &Value) -> Option<Option<RopeScaling>> {
    const PLAIN: [&str; 4] = ["rope_theta", "rope_type", "type", "partial_rotary_factor"];
    const SCALED: [&str; 4] = ["factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"];
    let rope = rope.as_object()?;
    let kind = rope.get("rope_type").or(rope.get("type")).filter(|kind| !kind.is_null());
    let whole = rope.get("partial_rotary_factor").is_none_or(|part| part.as_f64() == Some(1.0));
    let is_llama_3 = kind.is_some_and(|kind| kind == LLAMA_3);
    let known = |key: &str| PLAIN.contains(&key) || (is_llama_3 && SCALED.contains(&key));
    if !whole || !rope.keys().all(|key| known(key)) {
        return None;
    }
    if !is_llama_3 {
        return kind.is_none_or(|kind| kind == "default").then_some(None);
    }
    let number = |key: &str| rope.get(key)?.as_f64().filter(|number| *number > 0.0);
    let scaling = RopeScaling {
        factor: number("factor")?,
        low_freq_factor: number("low_freq_factor")?,
        high_freq_factor: number("high_freq_factor")?,
        original_positions: usize::try_from(rope.get("original_max_position_embeddings")?.as_u64()?).ok()?,
    };
    (scaling.high_freq_factor > scaling.low_freq_factor && scaling.original_positions > 0).then_some(Some(scaling))
}
