//! Guesses from names alone, where nothing better is known.

use std::borrow::Cow;

use ruff_python_ast::Expr;

use crate::settings::is_settings_name;
use crate::value::Value;
use crate::vocabulary::{self, Role};

/// Lowercases a name. Called often, so names without capitals are not copied.
fn lowered(name: &str) -> Cow<'_, str> {
    if name.bytes().any(|byte| byte.is_ascii_uppercase()) { name.to_ascii_lowercase().into() } else { name.into() }
}

/// The value a parameter of this name usually has.
pub fn by_name(name: &str) -> Value {
    if is_size_name(name) {
        Value::SIZE
    } else if is_loader_name(name) {
        Value::Loader(None)
    } else if is_optimizer_name(name) {
        Value::Optimizer(None)
    } else if name.contains("scheduler") {
        Value::Scheduler
    } else if name.ends_with("scaler") {
        Value::Scaler(None)
    } else if name == "device" || name.ends_with("_device") {
        Value::Device
    } else if name.ends_with("dtype") {
        Value::Dtype
    } else if is_model_name(name) || is_criterion_name(name) {
        Value::Model(None)
    } else {
        Value::Unknown
    }
}

pub fn by_annotation(annotation: Option<&Expr>) -> Option<Value> {
    let name = match annotation? {
        Expr::Name(name) => name.id.as_str(),
        Expr::Attribute(attribute) => attribute.attr.as_str(),
        Expr::StringLiteral(text) => text.value.to_str(),
        // `Optional[int]`, `int | None`
        Expr::Subscript(subscript) if is_optional(&subscript.value) => return by_annotation(Some(&subscript.slice)),
        Expr::BinOp(union) if union.right.is_none_literal_expr() => return by_annotation(Some(&union.left)),
        _ => return None,
    };
    match name {
        "int" | "float" => Some(Value::SIZE),
        "bool" => Some(Value::Bool(None)),
        "str" | "Path" => Some(Value::Text(None)),
        "ndarray" | "generic" => Some(Value::Numpy),
        "DataLoader" => Some(Value::Loader(None)),
        "Module" => Some(Value::Model(None)),
        "Optimizer" => Some(Value::Optimizer(None)),
        "device" => Some(Value::Device),
        "dtype" => Some(Value::Dtype),
        "Tensor" | "FloatTensor" | "LongTensor" | "BoolTensor" | "IntTensor" => Some(Value::DEVICE_WITH_GRAPH),
        _ => None,
    }
}

fn is_optional(expression: &Expr) -> bool {
    match expression {
        Expr::Name(name) => name.id.as_str() == "Optional",
        Expr::Attribute(attribute) => attribute.attr.as_str() == "Optional",
        _ => false,
    }
}

fn is_size_name(name: &str) -> bool {
    // `klen`, `tgtlen`; not the builtin.
    let is_short_length = name.len() <= 6 && name != "len" && name.ends_with("len");
    vocabulary::is(Role::Size, name) || is_short_length
}

pub fn is_loader_name(name: &str) -> bool {
    vocabulary::is(Role::Loader, &lowered(name))
}

/// `optimizer`, `optim_d`, `self.opt_G`, `adam`. `opt` alone is as often a namespace of settings.
pub fn is_optimizer_name(name: &str) -> bool {
    let lower = lowered(name);
    (lower.contains("optim") && !lower.contains("param") && !lower.contains("step") && !lower.contains("args"))
        || lower.starts_with("opt_")
        || lower.ends_with("_opt")
        || matches!(&*lower, "opt" | "adam" | "sgd" | "optg" | "optd" | "adamw")
}

pub fn is_model_name(name: &str) -> bool {
    let lower = lowered(name);
    let is_part = |word: &str| vocabulary::is(Role::Model, word);
    // The whole name, its last word or its first word.
    let (first, last) = (lower.split('_').next().unwrap_or_default(), lower.rsplit('_').next().unwrap_or_default());
    (is_part(last) || is_part(first) || lower.starts_with("net")) && !vocabulary::is(Role::NotModel, &lower)
}

pub fn is_criterion_name(name: &str) -> bool {
    vocabulary::is(Role::Criterion, &lowered(name))
}

/// `contrastive_loss`, `loss_fn`, `compute_loss`: functions whose result is trained on.
pub fn is_loss_function_name(name: &str) -> bool {
    let lower = lowered(name.trim_start_matches('_'));
    (lower.ends_with("loss") || is_criterion_name(&lower) || lower == "loss" || lower.ends_with("penalty"))
        && !vocabulary::is(Role::NotOfLoss, &lower)
}

/// `evaluate`, `validate_epoch`, `test`, `run_eval`: functions that measure instead of training.
pub fn is_evaluation_name(name: &str) -> bool {
    let lower = lowered(name);
    let words: Vec<&str> = lower.split('_').filter(|word| !word.is_empty()).collect();
    let any = |role: Role| words.iter().any(|word| vocabulary::is(role, word.trim_end_matches('s')));
    let trains = words.iter().any(|word| matches!(*word, "train" | "training" | "fit" | "loss"));
    // `generate_square_mask`, `sample_noise`: these make inputs of a step, not outputs.
    let makes_inputs = any(Role::MadeInput);
    // `sample_data`, `generate_batches`: so do these, unless another word means evaluation.
    let draws = |word: &str| matches!(word, "sample" | "generate");
    let evaluates = |word: &str| vocabulary::is(Role::Evaluation, word);
    let makes_data = any(Role::MadeData) && words.iter().all(|word| draws(word) || !evaluates(word));
    !trains && !makes_inputs && !makes_data && words.iter().any(|word| evaluates(word))
}

/// `sample_noise`, `q_sample`, `predict_eps_from_start`: sampling and predicting are part of many steps.
pub fn is_drawing_name(name: &str) -> bool {
    let lower = lowered(name);
    let draws = |word: &str| vocabulary::is(Role::Drawing, word);
    let (drawn, others): (Vec<&str>, Vec<&str>) =
        lower.split('_').filter(|word| !word.is_empty()).partition(|word| draws(word));
    !drawn.is_empty() && !is_evaluation_name(&others.join("_"))
}

/// Arguments of tensor code that are not tensors.
pub fn is_settings_like(name: &str) -> bool {
    is_settings_name(name) || vocabulary::is(Role::Option, name)
}

/// Functions that run only now and then, whoever calls them: savers, loaders of checkpoints and shards, warm-ups.
pub fn is_seldom_name(name: &str) -> bool {
    let lower = lowered(name);
    let words: Vec<&str> = lower.split('_').filter(|word| !word.is_empty()).collect();
    let has = |wanted: &[&str]| words.iter().any(|word| wanted.contains(word));
    let trains = has(&["train", "training", "fit", "loss", "step"]);
    let loads = has(&["load", "read", "next", "open", "reload"])
        && has(&["shard", "shards", "checkpoint", "ckpt", "state", "weights", "pretrained", "model", "config"]);
    let saves =
        matches!(words.first(), Some(&("save" | "dump" | "export" | "upload" | "download" | "warmup" | "debug")));
    !trains && (loads || saves || lower == "state_dict" || lower == "load_state_dict")
}

/// Methods of callbacks and hooks that a trainer calls at every step.
pub fn is_step_hook(name: &str) -> bool {
    vocabulary::is(Role::StepHook, name)
}

/// `is_causal()`, `has_cache()`: functions that return a host bool.
pub fn is_question(name: &str) -> bool {
    name.starts_with("is_") || name.starts_with("has_")
}

/// Loop variables and counters that count steps.
pub fn counts_steps(name: &str) -> bool {
    vocabulary::is(Role::Counter, &lowered(name))
}

/// Python's builtin functions and types.
pub(super) fn is_builtin(name: &str) -> bool {
    vocabulary::is(Role::Builtin, name)
}
