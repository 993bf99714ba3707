//! Hugging Face's `config.json`: read according to the family it names, written so that transformers loads it. Keys
//! that do not describe the model are kept: a loaded model is saved with its own special tokens, lengths and types.

use std::collections::BTreeMap;
use std::path::Path;

use headroom_record::atomic::FileError;
use headroom_record::reading;
use serde_json::{Map, Value, json};

use super::{CheckpointError, SavedDtype, TensorSpec};
use crate::models::fields::{FieldError, Fields};
use crate::models::{FAMILIES, Family, ModelConfig, parameters};

#[derive(Clone, Debug, PartialEq)]
pub struct HfConfig {
    pub model: ModelConfig,
    /// Entries of the file this was read from. A new model has only `max_position_embeddings`.
    pub entries: Map<String, Value>,
    /// The dtype that the weights are saved in, which the file names.
    pub dtype: SavedDtype,
}

/// Entries that training ignores; they are written back as they were read.
const KEPT: [&str; 10] = [
    "bos_token_id",
    "eos_token_id",
    "pad_token_id",
    "initializer_range",
    LENGTH,
    "use_cache",
    "attn_pdrop",
    "embd_pdrop",
    "resid_pdrop",
    "activation_function",
];

/// The longest sequence that the model was trained on.
const LENGTH: &str = "max_position_embeddings";

impl HfConfig {
    pub fn read(path: &Path) -> Result<HfConfig, CheckpointError> {
        let bytes = reading::read(path, reading::CHECKPOINT).map_err(FileError::new("read", path))?;
        HfConfig::parse(&bytes, path)
    }

    /// `path` is only for error messages.
    pub fn parse(bytes: &[u8], path: &Path) -> Result<HfConfig, CheckpointError> {
        let unreadable = |why: String| CheckpointError::Unreadable { path: path.to_path_buf(), why };
        let value: Value = serde_json::from_slice(bytes).map_err(|error| unreadable(error.to_string()))?;
        let Value::Object(entries) = value else {
            return Err(unreadable("it is not a JSON object".to_string()));
        };
        let unsupported = |FieldError { key, value, why }: FieldError| CheckpointError::Unsupported {
            path: path.to_path_buf(),
            key,
            value,
            why,
        };
        let model = read_model(&Fields { entries: &entries }).map_err(unsupported)?;
        let dtype = SavedDtype::named_in(&entries).unwrap_or_default();
        Ok(HfConfig { model, entries, dtype })
    }

    /// The JSON that transformers reads, in the order of the keys.
    pub fn to_json(&self) -> String {
        let Family { name, architecture, write, .. } = self.model.family;
        let common = json!({
            "architectures": [architecture],
            "dtype": self.dtype.torch_name(),
            "initializer_range": 0.02,
            "model_type": name,
            "tie_word_embeddings": self.model.tied,
            // The same for transformers before version 5.
            "torch_dtype": self.dtype.torch_name(),
            "use_cache": true,
            "vocab_size": self.model.vocab_size,
        });
        let mut all: BTreeMap<String, Value> =
            [common, write(&self.model)].into_iter().filter_map(object).flatten().collect();
        for (key, value) in &self.entries {
            if KEPT.contains(&key.as_str()) || !all.contains_key(key) {
                all.insert(key.clone(), value.clone());
            }
        }
        let value = Value::Object(all.into_iter().collect());
        format!("{value:#}\n")
    }

    /// The configuration of a new model trained on sequences of this length.
    pub fn of(model: &ModelConfig, seq_len: usize) -> HfConfig {
        HfConfig { model: model.clone(), entries: Map::new(), dtype: SavedDtype::F32 }.seeing(seq_len)
    }

    /// Raises the maximum length to `seq_len` if that is longer. A model with learned positions keeps its maximum,
    /// because its table has no rows for longer sequences.
    pub fn seeing(mut self, seq_len: usize) -> HfConfig {
        if self.model.positions > 0 {
            return self;
        }
        let seen = self.entries.get(LENGTH).and_then(Value::as_u64).unwrap_or(0);
        self.entries.insert(LENGTH.into(), json!(seen.max(seq_len as u64)));
        self
    }

    /// Names of the dropout settings in the file that are above zero: training here has no dropout.
    pub fn left_out(&self) -> Vec<&str> {
        let drops = |key: &str| self.entries.get(key).and_then(Value::as_f64).is_some_and(|share| share > 0.0);
        ["attn_pdrop", "embd_pdrop", "resid_pdrop"].into_iter().filter(|key| drops(key)).collect()
    }

    /// Every parameter of this model under Hugging Face's name. A tied head shares the embedding and has no entry.
    pub fn tensors(&self) -> Vec<TensorSpec> {
        let all = parameters(&self.model).unwrap_or_default();
        all.into_iter().map(|one| TensorSpec::new(one.name, one.ty.sizes())).collect()
    }
}

fn object(value: Value) -> Option<Map<String, Value>> {
    match value {
        Value::Object(map) => Some(map),
        _ => None,
    }
}

/// Picks the family by `model_type`, or else by the class name.
fn read_model(fields: &Fields) -> Result<ModelConfig, FieldError> {
    let family = match fields.get("model_type") {
        Some(Value::String(name)) => Family::named(name),
        Some(_) => None,
        None => FAMILIES
            .into_iter()
            .find(|family| fields.entries.get("architectures") == Some(&json!([family.architecture]))),
    };
    let family = family.ok_or_else(|| {
        let known = FAMILIES.map(|family| family.name).join(", ");
        fields.refuse("model_type", format!("and no family here has that name\n  help: the families are {known}"))
    })?;
    if fields.get("quantization_config").is_some() {
        return Err(fields.refuse("quantization_config", "and quantised weights cannot be trained here"));
    }
    fields.size_or(LENGTH, 2048)?;
    fields.positive_or("initializer_range", 0.02)?;
    (family.read)(fields)
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

    fn parse(config: Value) -> Result<HfConfig, CheckpointError> {
        HfConfig::parse(config.to_string().as_bytes(), Path::new("config.json"))
    }

    fn parse_with(key: &str, value: Value) -> Result<HfConfig, CheckpointError> {
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
            let error = HfConfig::parse(broken.as_bytes(), Path::new("config.json")).unwrap_err();
            assert!(matches!(error, CheckpointError::Unreadable { .. }), "{broken}: {error}");
        }
    }

    #[test]
    fn an_unknown_family_is_refused_with_the_families_there_are() {
        let mut by_class = base();
        by_class.as_object_mut().unwrap().remove("model_type");
        by_class["architectures"] = json!(["MistralForCausalLM"]);
        for error in [parse_with("model_type", json!("mistral")).unwrap_err(), parse(by_class).unwrap_err()] {
            let error = error.to_string();
            for family in FAMILIES {
                assert!(error.contains(family.name), "{} is not in: {error}", family.name);
            }
        }
    }

    #[test]
    fn a_written_config_reads_back_the_same() {
        let mut config = parse(base()).unwrap();
        config.model.rope_theta = 123456.789;
        config.model.norm_eps = 1.1e-5;
        config.model.tied = true;
        config.entries.insert("eos_token_id".into(), json!([1, 2]));
        let again = HfConfig::parse(config.to_json().as_bytes(), Path::new("config.json")).unwrap();
        assert_eq!((&again.model, &again.entries["eos_token_id"]), (&config.model, &json!([1, 2])));
        assert_eq!(again.to_json(), config.to_json());
    }

    #[test]
    fn the_tensors_of_nano_add_up_to_its_parameters() {
        let mut config = parse(base()).unwrap();
        config.model.vocab_size = 1000;
        let count = |config: &HfConfig| config.tensors().iter().map(TensorSpec::elements).sum::<usize>();
        assert_eq!(count(&config), 202_048);
        config.model.tied = true;
        assert_eq!(count(&config), 202_048 - 64_000);
    }

    #[test]
    fn what_a_file_says_beyond_the_model_is_kept() {
        let mut loaded = base();
        for (key, value) in [
            ("torch_dtype", json!("bfloat16")),
            ("eos_token_id", json!([128001, 128009])),
            ("max_position_embeddings", json!(8192)),
            ("transformers_version", json!("4.45.0")),
            ("pretraining_tp", json!(1)),
        ] {
            loaded[key] = value;
        }
        let saved = |seq_len: usize| -> Value {
            serde_json::from_str(&parse(loaded.clone()).unwrap().seeing(seq_len).to_json()).unwrap()
        };
        let short = saved(16);
        for (key, value) in loaded.as_object().unwrap() {
            assert_eq!(short[key], *value, "{key}");
        }
        assert_eq!(short["dtype"], "bfloat16");
        assert_eq!(saved(10_000)["max_position_embeddings"], 10_000);
        assert_eq!(short["hidden_size"], 64);
    }
}
