//! Reads entries of Hugging Face's `config.json`, refusing by name the settings that are not supported.

use super::ModelConfig;
use serde_json::{Map, Value};
use std::borrow::Cow;
use thiserror::Error;

/// An entry that this trainer does not support.
#[derive(Clone, Debug, Error, PartialEq)]
#[error("`{key}` is {value}, {why}")]
pub struct FieldError {
    pub key: String,
    pub value: String,
    pub why: Cow<'static, str>,
}

/// The file's entries; `null` counts as absent, as it does for transformers.
pub struct Fields<'a> {
    pub entries: &'a Map<String, Value>,
}

impl Fields<'_> {
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.entries.get(key).filter(|value| !value.is_null())
    }

    /// Accepts only this value, or an absent key.
    pub fn only(&self, key: &str, only: &Value) -> Result<(), FieldError> {
        self.only_if(key, |value| value == only)
    }

    pub fn only_number(&self, key: &str, only: f64) -> Result<(), FieldError> {
        self.only_if(key, |value| value.as_f64() == Some(only))
    }

    fn only_if(&self, key: &str, fits: impl Fn(&Value) -> bool) -> Result<(), FieldError> {
        if self.get(key).is_none_or(fits) {
            return Ok(());
        }
        Err(self.refuse(key, "which this trainer does not have"))
    }

    pub fn size(&self, key: &str) -> Result<usize, FieldError> {
        // A size beyond 32 bits is a damaged file; below that, the product of two sizes cannot overflow.
        const MOST: u64 = u32::MAX as u64;
        let number = self.get(key).and_then(Value::as_u64);
        number
            .filter(|size| (1..=MOST).contains(size))
            .map(|size| size as usize)
            .ok_or_else(|| self.refuse(key, "and a size is a whole number from 1 up"))
    }

    pub fn size_or(&self, key: &str, absent: usize) -> Result<usize, FieldError> {
        if self.get(key).is_some() { self.size(key) } else { Ok(absent) }
    }

    pub fn positive_or(&self, key: &str, absent: f64) -> Result<f64, FieldError> {
        let Some(value) = self.get(key) else { return Ok(absent) };
        value
            .as_f64()
            .filter(|number| *number > 0.0)
            .ok_or_else(|| self.refuse(key, "and it must be a positive number"))
    }

    pub fn flag(&self, key: &str) -> Result<bool, FieldError> {
        self.flag_or(key, false)
    }

    pub fn flag_or(&self, key: &str, absent: bool) -> Result<bool, FieldError> {
        let Some(value) = self.get(key) else { return Ok(absent) };
        value.as_bool().ok_or_else(|| self.refuse(key, "and it must be true or false"))
    }

    /// Checks that heads can share keys and be rotated in pairs.
    pub fn check_heads(&self, config: &ModelConfig) -> Result<(), FieldError> {
        if !config.n_heads.is_multiple_of(config.n_kv_heads) {
            return Err(self.refuse("num_key_value_heads", "which does not divide num_attention_heads"));
        }
        if config.head_dim == 0 || !config.head_dim.is_multiple_of(2) {
            return Err(self.refuse(
                "head_dim",
                "and RoPE turns pairs: it must be even (absent, it is hidden_size / num_attention_heads)",
            ));
        }
        Ok(())
    }

    pub fn refuse(&self, key: &str, why: impl Into<Cow<'static, str>>) -> FieldError {
        FieldError {
            key: key.to_string(),
            value: self.entries.get(key).map_or("absent".to_string(), Value::to_string),
            why: why.into(),
        }
    }
}
