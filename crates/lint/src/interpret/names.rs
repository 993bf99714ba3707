//! Guesses from names alone, where nothing better is known.

use std::borrow::Cow;

use ruff_python_ast::Expr;

use crate::settings::is_settings_name;
use crate::value::Value;

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
    const EXACT: &[&str] = &[
        "n",
        "sz",
        "size",
        "length",
        "seq_len",
        "seqlen",
        "seq_length",
        "seq_size",
        "batch_size",
        "bs",
        "bsz",
        "num_heads",
        "n_heads",
        "dim",
        "hidden_size",
        "height",
        "width",
        "max_len",
        "max_length",
        "T",
        "L",
        "N",
        "block_size",
        "num_classes",
        "sequence_length",
        "src_len",
        "tgt_len",
        "q_len",
        "kv_len",
        "ctx_len",
        "context_length",
        "num_tokens",
        "n_tokens",
    ];
    // `klen`, `tgtlen`; not the builtin.
    let is_short_length = name.len() <= 6 && name != "len" && name.ends_with("len");
    EXACT.contains(&name)
        || is_short_length
        || name.ends_with("_size")
        || name.ends_with("_len")
        || name.ends_with("_length")
}

pub fn is_loader_name(name: &str) -> bool {
    let lower = lowered(name);
    lower.ends_with("loader")
        || lower.ends_with("loaders")
        || lower.ends_with("_dl")
        || lower == "dl"
        || lower.ends_with("dataloader")
        || lower == "data_iter"
        || lower.ends_with("_iterator")
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
    let is_part = |word: &str| {
        matches!(
            word,
            "model"
                | "net"
                | "network"
                | "generator"
                | "discriminator"
                | "critic"
                | "actor"
                | "policy"
                | "encoder"
                | "decoder"
                | "backbone"
                | "classifier"
                | "agent"
                | "unet"
                | "vae"
                | "ddp"
                | "transformer"
                | "teacher"
                | "student"
                | "module"
        )
    };
    // The whole name, its last word or its first word.
    let (first, last) = (lower.split('_').next().unwrap_or_default(), lower.rsplit('_').next().unwrap_or_default());
    (is_part(last) || is_part(first) || lower.starts_with("net"))
        && ![
            "name", "path", "dir", "args", "config", "cfg", "type", "id", "ckpt", "file", "kwargs", "size", "dim",
            "cls", "class", "loss", "losses", "output", "outputs", "out", "outs", "input", "inputs", "logits",
            "hidden", "score", "scores", "grad", "grads", "pred", "preds", "prob", "probs", "error", "mask", "target",
            "targets", "acc", "reward", "rewards", "entropy", "lr",
        ]
        .iter()
        .any(|suffix| lower.ends_with(suffix))
}

pub fn is_criterion_name(name: &str) -> bool {
    let lower = lowered(name);
    lower.contains("criterion")
        || lower.ends_with("loss_fn")
        || lower.ends_with("loss_func")
        || lower.ends_with("loss_function")
}

/// `contrastive_loss`, `loss_fn`, `compute_loss`: functions whose result is trained on.
pub fn is_loss_function_name(name: &str) -> bool {
    const NOT: &[&str] = &[
        "plot",
        "log",
        "print",
        "save",
        "eval",
        "val",
        "test",
        "estimate",
        "show",
        "write",
        "draw",
        "load",
        "record",
        "get_loss_n",
        "make",
        "build",
        "create",
        "setup",
        "init",
        "update",
        "register",
        "parse",
        "train",
        "average",
        "reduce",
        "sync",
        "track",
    ];
    let lower = lowered(name.trim_start_matches('_'));
    (lower.ends_with("loss") || is_criterion_name(&lower) || lower == "loss" || lower.ends_with("penalty"))
        && !NOT.iter().any(|prefix| lower.starts_with(prefix))
}

/// `evaluate`, `validate_epoch`, `test`, `run_eval`: functions that measure instead of training.
pub fn is_evaluation_name(name: &str) -> bool {
    const WORDS: &[&str] = &[
        "eval",
        "evaluate",
        "evaluation",
        "valid",
        "validate",
        "validation",
        "val",
        "test",
        "testing",
        "infer",
        "inference",
        "predict",
        "prediction",
        "sample",
        "generate",
        "visualize",
        "visualise",
        "plot",
        "benchmark",
        "demo",
        "checkpoint",
        "visualization",
        "generation",
    ];
    const INPUTS: &[&str] = &[
        "mask",
        "anchor",
        "grid",
        "noise",
        "position",
        "embedding",
        "timestep",
        "time",
        "negative",
        "label",
        "target",
        "prior",
        "coord",
        "indice",
        "index",
        "query",
        "token",
        "bia",
        "bias",
    ];
    let lower = lowered(name);
    let words: Vec<&str> = lower.split('_').filter(|word| !word.is_empty()).collect();
    let trains = words.iter().any(|word| matches!(*word, "train" | "training" | "fit" | "loss"));
    // `generate_square_mask`, `sample_noise`: these make inputs of a step, not outputs.
    let makes_inputs = words.iter().any(|word| INPUTS.contains(&word.trim_end_matches('s')));
    // `sample_data`, `generate_batches`: so do these, unless another word means evaluation.
    let draws = |word: &str| matches!(word, "sample" | "generate");
    let is_data = |word: &str| {
        let word = word.trim_end_matches('s');
        matches!(word, "data" | "batch" | "batche" | "dataset" | "loader" | "dataloader")
    };
    let makes_data =
        words.iter().any(|word| is_data(word)) && words.iter().all(|word| draws(word) || !WORDS.contains(word));
    !trains && !makes_inputs && !makes_data && words.iter().any(|word| WORDS.contains(word))
}

/// `sample_noise`, `q_sample`, `predict_eps_from_start`: sampling and predicting are part of many steps.
pub fn is_drawing_name(name: &str) -> bool {
    const WORDS: &[&str] = &["sample", "generate", "predict", "prediction", "generation"];
    let lower = lowered(name);
    let words: Vec<&str> = lower.split('_').filter(|word| !word.is_empty()).collect();
    let others = words.iter().filter(|word| !WORDS.contains(word)).copied().collect::<Vec<_>>().join("_");
    words.iter().any(|word| WORDS.contains(word)) && !is_evaluation_name(&others)
}

/// Arguments of tensor code that are not tensors.
pub fn is_settings_like(name: &str) -> bool {
    const PREFIXES: &[&str] = &[
        "return_",
        "use_",
        "is_",
        "num_",
        "n_",
        "output_",
        "max_",
        "min_",
        "training",
        "train",
        "reduction",
        "dropout",
    ];
    is_settings_name(name)
        || name == "self"
        || matches!(
            name,
            "ctx" | "step" | "epoch" | "mode" | "kwargs" | "batch_idx" | "index" | "eps" | "name" | "size"
        )
        || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
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
    matches!(
        name,
        "on_step_begin"
            | "on_step_end"
            | "on_substep_end"
            | "on_pre_optimizer_step"
            | "on_optimizer_step"
            | "on_train_batch_start"
            | "on_train_batch_end"
            | "on_before_zero_grad"
            | "on_before_backward"
            | "on_after_backward"
            | "on_before_optimizer_step"
            | "before_train_iter"
            | "after_train_iter"
            | "before_iter"
            | "after_iter"
            | "on_batch_begin"
            | "on_batch_end"
            | "on_train_batch_begin"
    )
}

/// `is_causal()`, `has_cache()`: functions that return a host bool.
pub fn is_question(name: &str) -> bool {
    name.starts_with("is_") || name.starts_with("has_")
}

/// Loop variables and counters that count steps.
pub fn is_step_name(name: &str) -> bool {
    let lower = lowered(name);
    matches!(&*lower, "i" | "j" | "k" | "it" | "idx" | "n" | "t" | "ii" | "bi" | "b" | "index" | "count" | "counter")
        || [
            "step",
            "iter",
            "batch_idx",
            "batch_id",
            "batch_index",
            "batch_num",
            "batch_i",
            "i_batch",
            "niter",
            "iters",
            "ni",
            "update",
            "steps",
        ]
        .iter()
        .any(|part| lower == *part || lower.ends_with(part) || lower.starts_with(part))
}

/// Python's builtin functions and types.
pub(super) fn is_builtin(name: &str) -> bool {
    const BUILTINS: &[&str] = &[
        "len",
        "range",
        "enumerate",
        "zip",
        "print",
        "int",
        "float",
        "bool",
        "str",
        "list",
        "tuple",
        "dict",
        "set",
        "sum",
        "max",
        "min",
        "abs",
        "round",
        "sorted",
        "reversed",
        "map",
        "filter",
        "iter",
        "next",
        "isinstance",
        "hasattr",
        "getattr",
        "setattr",
        "open",
        "any",
        "all",
        "pow",
        "repr",
        "format",
        "type",
        "super",
        "id",
        "callable",
        "exit",
    ];
    BUILTINS.contains(&name)
}
