//! Precisions proved by the ladder: a file per device with those that passed their gates, by model, batch and sequence.
//! `--precision auto` uses them.

use crate::kept;
use headroom_engine::cpu::isa::Isa;
use headroom_engine::cuda::compile;
use headroom_graph::Precision;
use headroom_record::atomic::{FileError, write_json};
use headroom_record::precisions::PrecisionsRecord;
use headroom_record::reading;
use headroom_report::optimize::times;
use headroom_training::data::BatchShape;
use headroom_training::models::ModelConfig;
use std::path::{Path, PathBuf};

/// Subject of a proof: the device, the model and its batch shape.
pub struct Question<'a> {
    /// The kind, as `--device` names it.
    pub kind: &'static str,
    /// The device's display name.
    pub device: &'a str,
    pub size: &'a str,
    pub model: &'a ModelConfig,
    pub shape: BatchShape,
}

/// Identifies the code that computes on a device; different code needs a new proof.
pub fn code_of(kind: &str) -> String {
    match kind {
        "cuda" => compile::fingerprint(),
        _ => format!("{} {}", env!("CARGO_PKG_VERSION"), Isa::detect()),
    }
}

/// A canonical description of a model.
pub fn model_named(model: &ModelConfig) -> String {
    let ModelConfig {
        family,
        vocab_size,
        hidden_dim,
        n_layers,
        n_heads,
        n_kv_heads,
        head_dim,
        intermediate_dim,
        rope_theta,
        rope_scaling,
        norm_eps,
        tied,
        positions,
        branching,
    } = model;
    // The name is omitted for a LLaMA, so that proofs from versions without other families stay valid.
    let family = if family.name == "llama" { String::new() } else { format!("{}, ", family.name) };
    let scaled = rope_scaling.map_or_else(String::new, |scaling| format!(", {scaling:?}"));
    let tree = if branching.is_empty() { String::new() } else { format!(", branching {branching:?}") };
    let learned = if *positions > 0 { format!(", positions {positions}") } else { String::new() };
    format!(
        "{family}vocab {vocab_size}, hidden {hidden_dim}, layers {n_layers}, heads {n_heads} of {head_dim}, kv {n_kv_heads}, \
         feed-forward {intermediate_dim}, theta {rope_theta}{scaled}, eps {norm_eps:e}{learned}{tree}{}",
        if *tied { ", tied" } else { "" }
    )
}

fn file(device: &str) -> Option<PathBuf> {
    Some(kept::folder()?.join(format!("proved-{}.json", kept::slug(device))))
}

fn read(path: &Path) -> Vec<PrecisionsRecord> {
    reading::read(path, reading::RECORD).ok().and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default()
}

/// Saves a proof, replacing an earlier one of the same model and shape. Returns its path if there is a cache folder.
pub fn keep(record: &PrecisionsRecord) -> Result<Option<PathBuf>, FileError> {
    let Some(path) = file(&record.device) else { return Ok(None) };
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(FileError::new("make the folder", folder))?;
    }
    write_json(&path, &with(read(&path), record))?;
    Ok(Some(path))
}

fn with(mut kept: Vec<PrecisionsRecord>, record: &PrecisionsRecord) -> Vec<PrecisionsRecord> {
    kept.retain(|other| !other.is_of(record));
    kept.push(record.clone());
    kept
}

/// The proved precision and a sentence about it, or why there is none and what to do.
pub fn answer(question: &Question) -> Result<(Precision, String), String> {
    let kept = file(question.device).map_or(vec![], |path| read(&path));
    answer_from(&kept, question, &code_of(question.kind))
}

fn answer_from(kept: &[PrecisionsRecord], question: &Question, code: &str) -> Result<(Precision, String), String> {
    let Question { kind, device, size, model, shape } = question;
    let help = {
        let on = if *kind == "cuda" { " --device cuda" } else { "" };
        format!(
            "help: `headroom optimize{on} --size {size} --batch-size {} --seq-len {}` proves one and saves it (with `--passes all` \
             in a fraction of the time); or name a precision",
            shape.batch_size, shape.seq_len
        )
    };
    let named = model_named(model);
    let of_model: Vec<&PrecisionsRecord> =
        kept.iter().filter(|record| record.device == *device && record.model == named).collect();
    let same = |record: &&&PrecisionsRecord| {
        (record.batch_size, record.seq_len) == (shape.batch_size as u64, shape.seq_len as u64)
    };
    let Some(record) = of_model.iter().find(same) else {
        let others: Vec<String> =
            of_model.iter().map(|record| format!("{} × {}", record.batch_size, record.seq_len)).collect();
        let beside = if others.is_empty() { String::new() } else { format!(" (only at {})", others.join(", ")) };
        return Err(format!(
            "--precision auto: no precision is proven yet for size {size} at {} × {} on {device}{beside}\n  {help}",
            shape.batch_size, shape.seq_len
        ));
    };
    if record.kernels != code {
        return Err(format!(
            "--precision auto: the proof for size {size} on {device} at {} was made with other kernels\n  {help}",
            record.timestamp
        ));
    }
    let precision = record.precision.parse::<Precision>().map_err(|error| format!("{error}\n  {help}"))?;
    let passes = if record.passes.is_empty() { "none".into() } else { record.passes.join(",") };
    let speed = match precision {
        Precision::Fp32 => "no other precision was faster and passed its gates".into(),
        _ => format!("{} the speed of fp32, all gates passed", times(record.speedup())),
    };
    Ok((
        precision,
        format!("--precision auto uses {precision}: proven here at {} ({speed}; --passes {passes})", record.timestamp),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_record::provenance::Provenance;
    use headroom_training::models::Size;

    fn record(precision: &str, seq_len: u64) -> PrecisionsRecord {
        PrecisionsRecord {
            schema_version: headroom_record::SCHEMA_VERSION,
            provenance: Provenance::default(),
            timestamp: "2026-11-15T02:10:00Z".into(),
            device: "a GPU".into(),
            kernels: "cafe".into(),
            size: "nano".into(),
            model: model_named(&Size::named("nano").unwrap().model()),
            batch_size: 8,
            seq_len,
            passes: vec!["fuse-qkv".into()],
            precision: precision.into(),
            precisions: vec![],
        }
    }

    fn asked(kept: &[PrecisionsRecord], size: &str, code: &str) -> Result<(Precision, String), String> {
        let model = Size::named(size).unwrap().model();
        let shape = BatchShape { batch_size: 8, seq_len: 64 };
        answer_from(kept, &Question { kind: "cuda", device: "a GPU", size, model: &model, shape }, code)
    }

    #[test]
    fn auto_takes_what_was_proved_for_this_model_and_shape_and_says_so() {
        let kept = [record("bf16", 128), record("fp8", 64)];
        let (precision, said) = asked(&kept, "nano", "cafe").unwrap();
        assert_eq!(precision, Precision::Fp8);
        assert!(said.contains("fp8") && said.contains("2026-11-15") && said.contains("fuse-qkv"), "{said}");
        assert_eq!(asked(&[record("fp32", 64)], "nano", "cafe").unwrap().0, Precision::Fp32);
    }

    #[test]
    fn auto_says_what_to_do_where_nothing_was_proved_or_the_kernels_have_changed() {
        for (kept, size, code, words) in [
            (vec![], "nano", "cafe", "no precision is proven yet"),
            (vec![record("fp8", 128)], "nano", "cafe", "only at 8 × 128"),
            (vec![record("fp8", 64)], "tiny", "cafe", "for size tiny"),
            (vec![record("fp8", 64)], "nano", "beef", "other kernels"),
        ] {
            let error = asked(&kept, size, code).unwrap_err();
            assert!(error.contains(words), "{error}");
            assert!(error.contains("headroom optimize --device cuda") && error.contains("--seq-len 64"), "{error}");
        }
    }

    #[test]
    fn a_new_proof_replaces_the_one_of_the_same_model_and_shape() {
        let kept = with(vec![record("bf16", 64), record("bf16", 128)], &record("fp8", 64));
        let found: Vec<(&str, u64)> = kept.iter().map(|record| (record.precision.as_str(), record.seq_len)).collect();
        assert_eq!(found, [("bf16", 128), ("fp8", 64)]);
    }
}
