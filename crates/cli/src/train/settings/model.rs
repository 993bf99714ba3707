//! The model that a run trains: from a checkpoint, or from a size's row overridden by flags.

use crate::train::arguments::ModelArguments;
use anyhow::{bail, ensure};
use headroom_training::checkpoint::Checkpoint;
use headroom_training::models::{FAMILIES, Family, ModelConfig, SIZES, Size, tree};

pub struct ChosenModel {
    /// A row's name, or `custom`.
    pub size: String,
    pub model: ModelConfig,
    /// The row that supplies batch and sequence if no flag does.
    pub row: &'static Size,
}

const CUSTOM: &str = "custom";

/// Chooses the model. `noted` is the size that a resumed checkpoint names.
pub fn choose_model(
    flags: &ModelArguments,
    noted: Option<&str>,
    checkpoint: Option<&Checkpoint>,
) -> anyhow::Result<ChosenModel> {
    let asked = flags.size.as_deref().map(row_named).transpose()?;
    let loaded = checkpoint.map(|checkpoint| checkpoint.config().model.clone());
    let family = flags.family.as_deref().and_then(Family::named).unwrap_or(FAMILIES[0]);
    let row = asked
        .or_else(|| noted.and_then(Size::named))
        .or_else(|| loaded.as_ref().and_then(Size::of))
        .unwrap_or(row_named("tiny")?);
    let base = match (&loaded, asked) {
        // A row only replaces the checkpoint's sizes.
        (Some(loaded), Some(row)) => ModelConfig {
            family: loaded.family,
            vocab_size: loaded.vocab_size,
            rope_theta: loaded.rope_theta,
            rope_scaling: loaded.rope_scaling,
            norm_eps: loaded.norm_eps,
            tied: loaded.tied,
            positions: loaded.positions,
            ..row.model_of(loaded.family)
        },
        (Some(loaded), None) => loaded.clone(),
        (None, _) => row.model_of(family),
    };
    let model = with_flags(base, flags)?;
    if let Some(loaded) = &loaded {
        ensure!(
            flags.family.is_none() || family == loaded.family,
            "--family {} is asked for, the checkpoint holds a {}\n  help: leave it out, the model comes from the checkpoint",
            family.name,
            loaded.family.title
        );
        refuse_differences(&model, loaded)?;
    }
    let size = Size::of(&model).map_or(CUSTOM, |row| row.name).to_string();
    Ok(ChosenModel { size, model, row })
}

fn row_named(name: &str) -> anyhow::Result<&'static Size> {
    let Some(row) = Size::named(name) else {
        let names: Vec<&str> = SIZES.iter().map(|size| size.name).collect();
        bail!("there is no size `{name}`\n  help: choose one of {}", names.join(", "));
    };
    Ok(row)
}

fn with_flags(base: ModelConfig, flags: &ModelArguments) -> anyhow::Result<ModelConfig> {
    let base = match branching_of(&base, flags)? {
        Some(branching) => tree::branched(base, &branching),
        None => base,
    };
    let n_heads = flags.n_heads.unwrap_or(base.n_heads);
    let kv_default = match flags.n_heads {
        Some(n_heads) if base.n_kv_heads == base.n_heads => n_heads,
        Some(n_heads) => at_most_half(n_heads),
        None => base.n_kv_heads,
    };
    let hidden_dim = flags.hidden_dim.unwrap_or(base.hidden_dim);
    let mut head_dim = base.head_dim;
    if (flags.n_heads.is_some() || flags.hidden_dim.is_some()) && n_heads > 0 {
        ensure!(
            hidden_dim.is_multiple_of(n_heads),
            "--hidden-dim {hidden_dim} cannot be divided by --n-heads {n_heads}\n  help: use a multiple of {n_heads}"
        );
        head_dim = hidden_dim / n_heads;
    }
    let rope_theta = flags.rope_theta.unwrap_or(base.rope_theta);
    ensure!(rope_theta.is_finite() && rope_theta > 0.0, "--rope-theta is {rope_theta}\n  help: a number above 0");
    Ok(ModelConfig {
        family: base.family,
        hidden_dim,
        n_layers: flags.n_layers.unwrap_or(base.n_layers),
        n_heads,
        n_kv_heads: flags.n_kv_heads.unwrap_or(kv_default),
        head_dim,
        intermediate_dim: flags.intermediate_dim.unwrap_or(base.intermediate_dim),
        vocab_size: flags.vocab_size.unwrap_or(base.vocab_size),
        rope_theta,
        rope_scaling: base.rope_scaling,
        tied: base.tied || flags.tied,
        norm_eps: base.norm_eps,
        positions: base.positions,
        branching: base.branching,
    })
}

/// The tree that the flags request.
fn branching_of(base: &ModelConfig, flags: &ModelArguments) -> anyhow::Result<Option<Vec<usize>>> {
    let Some(text) = &flags.branching else { return Ok(None) };
    ensure!(
        *base.family == tree::FAMILY,
        "--branching is for a tree, and a {} is a chain of blocks\n  help: --family tree",
        base.family.title
    );
    match text.split('-').map(str::parse).collect() {
        Ok(children) => Ok(Some(children)),
        Err(_) => bail!(
            "--branching {text} is not a list of numbers\n  help: 4-3-2 means 4 children, 3 below each, 2 below each of those"
        ),
    }
}

/// Half of the heads, as in every row, or the largest divisor below it.
fn at_most_half(n_heads: usize) -> usize {
    // Dividing by the smallest divisor above 1 gives the largest proper divisor.
    let smallest = (2..).take_while(|d| d * d <= n_heads).find(|d| n_heads.is_multiple_of(*d));
    n_heads / smallest.unwrap_or(n_heads.max(1))
}

fn refuse_differences(asked: &ModelConfig, loaded: &ModelConfig) -> anyhow::Result<()> {
    let parts = |model: &ModelConfig| {
        [
            ("--hidden-dim", model.hidden_dim.to_string()),
            ("--n-layers", model.n_layers.to_string()),
            ("--branching", format!("{:?}", model.branching)),
            ("--n-heads", model.n_heads.to_string()),
            ("--n-kv-heads", model.n_kv_heads.to_string()),
            ("width of a head", model.head_dim.to_string()),
            ("--intermediate-dim", model.intermediate_dim.to_string()),
            ("--vocab-size", model.vocab_size.to_string()),
            ("--rope-theta", model.rope_theta.to_string()),
            ("--tied", model.tied.to_string()),
        ]
    };
    let differences: Vec<String> = parts(asked)
        .into_iter()
        .zip(parts(loaded))
        .filter(|((_, asked), (_, loaded))| asked != loaded)
        .map(|((name, asked), (_, loaded))| format!("\n  {name}: {asked} is asked for, the checkpoint has {loaded}"))
        .collect();
    ensure!(
        differences.is_empty(),
        "the flags describe a different model from the checkpoint's{}\n  help: leave these flags out, the model comes from the \
         checkpoint",
        differences.concat()
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_value_heads_are_half_of_the_heads_or_the_next_divisor_below() {
        assert_eq!([0, 1, 2, 4, 5, 6, 8, 9, 15].map(at_most_half), [0, 1, 1, 2, 1, 3, 4, 3, 5]);
    }
}
