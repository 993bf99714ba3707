//! Guesses from names alone, where nothing better is known.

use super::*;

/// The value a parameter of this name usually has.
pub fn by_name(name: &str) -> Value {
    if is_size_name(name) {
        Value::SIZE
    } else if Role::Loader.fits_any_case(name) {
        Value::Loader(None)
    } else if is_optimizer_name(name) {
        Value::Optimizer(None)
    } else if Role::Scheduler.fits(name) {
        Value::Scheduler
    } else if Role::Scaler.fits(name) {
        Value::Scaler(None)
    } else if Role::Device.fits(name) {
        Value::Device
    } else if Role::DtypeName.fits(name) {
        Value::Dtype
    } else if is_model_name(name) || Role::Criterion.fits_any_case(name) {
        Value::Model(None)
    } else {
        Value::Unknown
    }
}

fn is_size_name(name: &str) -> bool {
    // `klen`, `tgtlen`; not the builtin.
    let is_short_length = name.len() <= 6 && !Role::Builtin.fits(name) && Role::ShortLength.fits(name);
    Role::Size.fits(name) || is_short_length
}

/// `val_batches`, `test_data`: something that yields data.
pub(super) fn is_data_name(name: &str) -> bool {
    Role::Loader.fits_any_case(name) || Role::DataName.fits(name)
}

/// `optimizer`, `optim_d`, `self.opt_G`, `adam`. `opt` alone is as often a namespace of settings.
pub fn is_optimizer_name(name: &str) -> bool {
    let lower = lowered(name);
    Role::Optimizer.fits(&lower) || Role::OptimizerPart.fits(&lower) && !Role::NotOptimizer.fits(&lower)
}

pub fn is_model_name(name: &str) -> bool {
    let lower = lowered(name);
    let is_part = |word: &str| Role::Model.fits(word);
    // The whole name, its last word or its first word.
    let (first, last) = (lower.split('_').next().unwrap_or_default(), lower.rsplit('_').next().unwrap_or_default());
    (is_part(last) || is_part(first) || Role::ModelBegin.fits(&lower)) && !Role::NotModel.fits(&lower)
}

/// `contrastive_loss`, `loss_fn`, `compute_loss`: functions whose result is trained on.
pub fn is_loss_function_name(name: &str) -> bool {
    let lower = lowered(name.trim_start_matches('_'));
    (Role::LossFunction.fits(&lower) || Role::Criterion.fits_any_case(&lower)) && !Role::NotOfLoss.fits(&lower)
}

/// `evaluate`, `validate_epoch`, `test`, `run_eval`: functions that measure instead of training.
pub fn is_evaluation_name(name: &str) -> bool {
    let lower = lowered(name);
    let words: Vec<&str> = lower.split('_').filter(|word| !word.is_empty()).collect();
    let any = |role: Role| words.iter().any(|word| role.fits(word.trim_end_matches('s')));
    let trains = words.iter().any(|word| Role::TrainingWord.fits(word));
    // `generate_square_mask`, `sample_noise`: these make inputs of a step, not outputs.
    let makes_inputs = any(Role::MadeInput);
    // `sample_data`, `generate_batches`: so do these, unless another word means evaluation.
    let draws = |word: &str| Role::DrawsData.fits(word);
    let evaluates = |word: &str| Role::Evaluation.fits(word);
    let makes_data = any(Role::MadeData) && words.iter().all(|word| draws(word) || !evaluates(word));
    !trains && !makes_inputs && !makes_data && words.iter().any(|word| evaluates(word))
}

/// `sample_noise`, `q_sample`, `predict_eps_from_start`: sampling and predicting are part of many steps.
pub fn is_drawing_name(name: &str) -> bool {
    let lower = lowered(name);
    let draws = |word: &str| Role::Drawing.fits(word);
    let (drawn, others): (Vec<&str>, Vec<&str>) =
        lower.split('_').filter(|word| !word.is_empty()).partition(|word| draws(word));
    !drawn.is_empty() && !is_evaluation_name(&others.join("_"))
}

/// Functions that run only now and then, whoever calls them: savers, loaders of checkpoints and shards, warm-ups.
pub fn is_seldom_name(name: &str) -> bool {
    let lower = lowered(name);
    let words: Vec<&str> = lower.split('_').filter(|word| !word.is_empty()).collect();
    let has = |role: Role| words.iter().any(|word| role.fits(word));
    let trains = has(Role::TrainingWord) || has(Role::StepMethod);
    let loads = has(Role::Loads) && has(Role::Loaded);
    let saves = words.first().is_some_and(|first| Role::Saves.fits(first));
    !trains && (loads || saves || Role::StateMethod.fits(&lower))
}

/// Whether the name may be a tensor method's: `get_length()`, `is_valid()`, `compute_x()` of a tensor-like object may
/// return anything.
pub fn may_be_tensor_method(name: &str) -> bool {
    Role::TensorMethod.fits(name) || name.ends_with('_') || !name.contains('_') && !Role::ContainerMethod.fits(name)
}

/// Operations whose result is a mask, as functions or methods.
pub fn is_boolean_operation(name: &str) -> bool {
    let row = api::tensor_method(name).or_else(|| api::torch_function(name));
    row.is_some_and(api::Row::makes_mask)
}
