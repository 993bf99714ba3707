//! Hugging Face's `config.json` of a LLaMA: read with what cannot be honoured refused by name, written so that transformers loads it.

use std::path::Path;

use headroom_record::atomic::FileError;
use serde_json::{Map, Value, json};

use super::{CheckpointError, TensorSpec};
use crate::config::ModelConfig;

#[derive(Clone, Debug, PartialEq)]
pub struct LlamaHf {
    pub model: ModelConfig,
    pub max_position_embeddings: usize,
    /// Standard deviation of the initial weights.
    pub initializer_range: f64,
    /// Ids of a tokenizer's special tokens, passed on as they came: training does not look at them.
    pub bos_token_id: Value,
    pub eos_token_id: Value,
    pub pad_token_id: Value,
}

impl LlamaHf {
    pub fn read(path: &Path) -> Result<LlamaHf, CheckpointError> {
        let bytes = std::fs::read(path).map_err(FileError::new("read", path))?;
        LlamaHf::parse(&bytes, path)
    }

    /// `path` is for the errors.
    pub fn parse(bytes: &[u8], path: &Path) -> Result<LlamaHf, CheckpointError> {
        let unreadable = |why: String| CheckpointError::Unreadable { path: path.to_path_buf(), why };
        let value: Value = serde_json::from_slice(bytes).map_err(|error| unreadable(error.to_string()))?;
        let Value::Object(entries) = value else {
            return Err(unreadable("it is not a JSON object".to_string()));
        };
        let fields = Fields { entries: &entries, path };
        fields.refuse_other_models()?;
        let hidden_dim = fields.size("hidden_size")?;
        let n_heads = fields.size("num_attention_heads")?;
        let model = ModelConfig {
            vocab_size: fields.size("vocab_size")?,
            hidden_dim,
            n_layers: fields.size("num_hidden_layers")?,
            n_heads,
            n_kv_heads: fields.size_or("num_key_value_heads", n_heads)?,
            head_dim: fields.size_or("head_dim", hidden_dim / n_heads)?,
            intermediate_dim: fields.size("intermediate_size")?,
            rope_theta: fields.rope_theta()?,
            norm_eps: fields.positive_or("rms_norm_eps", 1e-6)?,
            tied: fields.flag("tie_word_embeddings")?,
        };
        let config = LlamaHf {
            model,
            max_position_embeddings: fields.size_or("max_position_embeddings", 2048)?,
            initializer_range: fields.positive_or("initializer_range", 0.02)?,
            bos_token_id: fields.any("bos_token_id"),
            eos_token_id: fields.any("eos_token_id"),
            pad_token_id: fields.any("pad_token_id"),
        };
        config.check_heads(&fields)?;
        Ok(config)
    }

    /// As transformers reads it. The RoPE base stands in both places, for versions before and after 5; weights are float32.
    pub fn to_json(&self) -> String {
        let value = json!({
            "architectures": ["LlamaForCausalLM"],
            "attention_bias": false,
            "attention_dropout": 0.0,
            "bos_token_id": self.bos_token_id,
            "dtype": "float32",
            "eos_token_id": self.eos_token_id,
            "head_dim": self.model.head_dim,
            "hidden_act": "silu",
            "hidden_size": self.model.hidden_dim,
            "initializer_range": self.initializer_range,
            "intermediate_size": self.model.intermediate_dim,
            "max_position_embeddings": self.max_position_embeddings,
            "mlp_bias": false,
            "model_type": "llama",
            "num_attention_heads": self.model.n_heads,
            "num_hidden_layers": self.model.n_layers,
            "num_key_value_heads": self.model.n_kv_heads,
            "pad_token_id": self.pad_token_id,
            "rms_norm_eps": self.model.norm_eps,
            "rope_parameters": {"rope_theta": self.model.rope_theta, "rope_type": "default"},
            "rope_theta": self.model.rope_theta,
            "tie_word_embeddings": self.model.tied,
            "torch_dtype": "float32",
            "use_cache": true,
            "vocab_size": self.model.vocab_size,
        });
        format!("{value:#}\n")
    }

    /// A model of ours that sees sequences of this length.
    pub fn of(model: &ModelConfig, seq_len: usize) -> LlamaHf {
        LlamaHf {
            model: model.clone(),
            max_position_embeddings: seq_len,
            initializer_range: 0.02,
            bos_token_id: Value::Null,
            eos_token_id: Value::Null,
            pad_token_id: Value::Null,
        }
    }

    /// Every parameter of this model under Hugging Face's name; weights are [out, in]. A tied head is the embedding and has
    /// none of its own.
    pub fn tensors(&self) -> Vec<TensorSpec> {
        let (d, f) = (self.model.hidden_dim, self.model.intermediate_dim);
        let q = self.model.n_heads * self.model.head_dim;
        let kv = self.model.n_kv_heads * self.model.head_dim;
        let mut tensors = vec![TensorSpec::new("model.embed_tokens.weight", &[self.model.vocab_size, d])];
        for layer in 0..self.model.n_layers {
            let mut add = |name: &str, shape: &[usize]| {
                tensors.push(TensorSpec::new(format!("model.layers.{layer}.{name}.weight"), shape));
            };
            add("input_layernorm", &[d]);
            add("self_attn.q_proj", &[q, d]);
            add("self_attn.k_proj", &[kv, d]);
            add("self_attn.v_proj", &[kv, d]);
            add("self_attn.o_proj", &[d, q]);
            add("post_attention_layernorm", &[d]);
            add("mlp.gate_proj", &[f, d]);
            add("mlp.up_proj", &[f, d]);
            add("mlp.down_proj", &[d, f]);
        }
        tensors.push(TensorSpec::new("model.norm.weight", &[d]));
        if !self.model.tied {
            tensors.push(TensorSpec::new("lm_head.weight", &[self.model.vocab_size, d]));
        }
        tensors
    }

    fn check_heads(&self, fields: &Fields) -> Result<(), CheckpointError> {
        if !self.model.n_heads.is_multiple_of(self.model.n_kv_heads) {
            return Err(fields.refuse("num_key_value_heads", "which does not divide num_attention_heads"));
        }
        if self.model.head_dim == 0 || !self.model.head_dim.is_multiple_of(2) {
            return Err(fields.refuse(
                "head_dim",
                "and RoPE turns pairs: it must be even (absent, it is hidden_size / num_attention_heads)",
            ));
        }
        Ok(())
    }
}

/// The file's entries; `null` counts as absent, as it does for transformers.
struct Fields<'a> {
    entries: &'a Map<String, Value>,
    path: &'a Path,
}

impl Fields<'_> {
    /// Settings that change what the model computes and that this trainer does not have.
    fn refuse_other_models(&self) -> Result<(), CheckpointError> {
        const ONLY_LLAMA: &str = "and only llama can be trained here";
        match self.get("model_type") {
            Some(Value::String(name)) if name == "llama" => {}
            None if self.any("architectures") == json!(["LlamaForCausalLM"]) => {}
            _ => return Err(self.refuse("model_type", ONLY_LLAMA)),
        }
        for (key, only) in [("hidden_act", json!("silu")), ("attention_bias", json!(false)), ("mlp_bias", json!(false))]
        {
            if self.get(key).is_some_and(|value| *value != only) {
                return Err(self.refuse(key, "which this trainer does not have"));
            }
        }
        for (key, only) in [("attention_dropout", 0.0), ("partial_rotary_factor", 1.0)] {
            if self.get(key).is_some_and(|value| value.as_f64() != Some(only)) {
                return Err(self.refuse(key, "which this trainer does not have"));
            }
        }
        if self.get("quantization_config").is_some() {
            return Err(self.refuse("quantization_config", "and quantised weights cannot be trained here"));
        }
        Ok(())
    }

    /// From `rope_theta` or `rope_parameters.rope_theta`; with neither it is the original LLaMA's.
    fn rope_theta(&self) -> Result<f64, CheckpointError> {
        for key in ["rope_parameters", "rope_scaling"] {
            self.refuse_scaled_rope(key)?;
        }
        let outer = self.get("rope_theta");
        let inner = self.get("rope_parameters").and_then(|rope| rope.get("rope_theta"));
        if let (Some(outer), Some(inner)) = (outer, inner)
            && outer.as_f64() != inner.as_f64()
        {
            return Err(self.refuse("rope_theta", "and rope_parameters.rope_theta says otherwise"));
        }
        match outer.or(inner).filter(|theta| !theta.is_null()) {
            None => Ok(10_000.0),
            Some(theta) => theta.as_f64().filter(|theta| *theta > 0.0).ok_or_else(|| {
                self.refuse(
                    if outer.is_some() { "rope_theta" } else { "rope_parameters" },
                    "and RoPE's base is a positive number",
                )
            }),
        }
    }

    fn refuse_scaled_rope(&self, key: &'static str) -> Result<(), CheckpointError> {
        let Some(rope) = self.get(key) else { return Ok(()) };
        const KNOWN: [&str; 4] = ["rope_theta", "rope_type", "type", "partial_rotary_factor"];
        let plain = rope.as_object().is_some_and(|rope| {
            let kind = rope.get("rope_type").or(rope.get("type")).filter(|kind| !kind.is_null());
            let whole = rope.get("partial_rotary_factor").is_none_or(|part| part.as_f64() == Some(1.0));
            kind.is_none_or(|kind| kind == "default") && whole && rope.keys().all(|key| KNOWN.contains(&key.as_str()))
        });
        if plain {
            return Ok(());
        }
        Err(self.refuse(key, "and only the default RoPE can be trained here"))
    }

    fn get(&self, key: &str) -> Option<&Value> {
        self.entries.get(key).filter(|value| !value.is_null())
    }

    fn any(&self, key: &str) -> Value {
        self.entries.get(key).cloned().unwrap_or_default()
    }

    fn size(&self, key: &str) -> Result<usize, CheckpointError> {
        // Sizes beyond 32 bits are damage; below, products of two of them cannot overflow.
        const MOST: u64 = u32::MAX as u64;
        let number = self.get(key).and_then(Value::as_u64);
        number
            .filter(|size| (1..=MOST).contains(size))
            .map(|size| size as usize)
            .ok_or_else(|| self.refuse(key, "and a size is a whole number from 1 up"))
    }

    fn size_or(&self, key: &str, absent: usize) -> Result<usize, CheckpointError> {
        if self.get(key).is_some() { self.size(key) } else { Ok(absent) }
    }

    fn positive_or(&self, key: &str, absent: f64) -> Result<f64, CheckpointError> {
        let Some(value) = self.get(key) else { return Ok(absent) };
        value
            .as_f64()
            .filter(|number| *number > 0.0)
            .ok_or_else(|| self.refuse(key, "and it must be a positive number"))
    }

    fn flag(&self, key: &str) -> Result<bool, CheckpointError> {
        let Some(value) = self.get(key) else { return Ok(false) };
        value.as_bool().ok_or_else(|| self.refuse(key, "and it must be true or false"))
    }

    fn refuse(&self, key: &str, why: &'static str) -> CheckpointError {
        CheckpointError::Unsupported {
            path: self.path.to_path_buf(),
            key: key.to_string(),
            value: self.entries.get(key).map_or("absent".to_string(), Value::to_string),
            why,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn base() -> Value {
        json!({
            "model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
            "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 97, "max_position_embeddings": 16,
        })
    }

    fn parse(config: Value) -> Result<LlamaHf, CheckpointError> {
        LlamaHf::parse(config.to_string().as_bytes(), Path::new("config.json"))
    }

    fn parse_with(key: &str, value: Value) -> Result<LlamaHf, CheckpointError> {
        let mut config = base();
        config[key] = value;
        parse(config)
    }

    #[test]
    fn what_is_absent_takes_transformers_defaults() {
        let config = parse(base()).unwrap();
        assert_eq!((config.model.head_dim, config.model.rope_theta, config.model.norm_eps), (16, 10_000.0, 1e-6));
        assert!(!config.model.tied);
        let mut without_kv = base();
        without_kv.as_object_mut().unwrap().remove("num_key_value_heads");
        assert_eq!(parse(without_kv).unwrap().model.n_kv_heads, 4);
    }

    #[test]
    fn the_rope_base_is_read_from_either_place() {
        for (key, value) in [
            ("rope_theta", json!(500000.0)),
            ("rope_theta", json!(500000)),
            ("rope_parameters", json!({"rope_theta": 500000.0, "rope_type": "default"})),
            ("rope_parameters", json!({"rope_theta": 500000.0})),
        ] {
            assert_eq!(parse_with(key, value).unwrap().model.rope_theta, 500_000.0);
        }
        for harmless in [json!(null), json!({"rope_type": "default"}), json!({"type": "default"})] {
            parse_with("rope_scaling", harmless).unwrap();
        }
        let mut both = base();
        both["rope_theta"] = json!(10000.0);
        both["rope_parameters"] = json!({"rope_theta": 500000.0});
        assert!(parse(both).unwrap_err().to_string().contains("rope_parameters.rope_theta"));
    }

    #[test]
    fn what_cannot_be_honoured_is_refused_by_key_and_value() {
        for (key, value) in [
            ("model_type", json!("mistral")),
            ("model_type", json!(null)),
            ("hidden_act", json!("gelu")),
            ("attention_bias", json!(true)),
            ("mlp_bias", json!(true)),
            ("attention_dropout", json!(0.1)),
            ("rope_scaling", json!({"rope_type": "llama3", "factor": 8.0})),
            ("rope_scaling", json!({"type": "linear", "factor": 2.0})),
            ("rope_parameters", json!({"rope_type": "yarn", "rope_theta": 10000.0})),
            ("rope_parameters", json!({"full_attention": {"rope_theta": 10000.0}})),
            ("rope_parameters", json!({"rope_theta": "many"})),
            ("rope_parameters", json!([1])),
            ("rope_theta", json!(-1.0)),
            ("quantization_config", json!({"bits": 4})),
            ("hidden_size", json!(0)),
            ("hidden_size", json!(-64)),
            ("hidden_size", json!(1u64 << 40)),
            ("vocab_size", json!("97")),
            ("num_key_value_heads", json!(3)),
            ("head_dim", json!(15)),
            ("num_attention_heads", json!(0)),
            ("rms_norm_eps", json!(0.0)),
            ("tie_word_embeddings", json!(1)),
        ] {
            let error = parse_with(key, value.clone()).unwrap_err().to_string();
            assert!(error.contains("config.json") && error.contains(key), "{key} {value}: {error}");
        }
        for broken in ["", "[]", "{", "\"llama\""] {
            let error = LlamaHf::parse(broken.as_bytes(), Path::new("config.json")).unwrap_err();
            assert!(matches!(error, CheckpointError::Unreadable { .. }), "{broken}: {error}");
        }
    }

    #[test]
    fn a_written_config_reads_back_the_same() {
        let mut config = parse(base()).unwrap();
        config.model.rope_theta = 123456.789;
        config.model.norm_eps = 1.1e-5;
        config.model.tied = true;
        config.eos_token_id = json!([1, 2]);
        let again = LlamaHf::parse(config.to_json().as_bytes(), Path::new("config.json")).unwrap();
        assert_eq!(again, config);
    }

    #[test]
    fn the_tensors_of_nano_add_up_to_its_parameters() {
        let mut config = parse(base()).unwrap();
        config.model.vocab_size = 1000;
        let count = |config: &LlamaHf| config.tensors().iter().map(TensorSpec::elements).sum::<usize>();
        assert_eq!(count(&config), 202_048);
        config.model.tied = true;
        assert_eq!(count(&config), 202_048 - 64_000);
    }
}
