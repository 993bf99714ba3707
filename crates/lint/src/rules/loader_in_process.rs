//! TP301: a loader prepares batches in the training process.

use super::*;

pub fn check(check: &mut Check) {
    let program = check.program;
    for loader in loaders(program) {
        let workers = workers_of(program, loader);
        let is_zero = workers == Workers::Zero;
        // Indexing a tensor is faster than passing the row between processes.
        let is_in_memory = matches!(&loader.options.dataset, Value::External(dotted) if dotted.ends_with(".TensorDataset"))
            || is_of_tensors(program, loader)
            || is_loaded_whole(program, loader);
        if !(workers == Workers::Unsaid || is_zero)
            || is_in_memory
            || device_in_dataset::puts_on_device(program, loader)
        {
            continue;
        }
        let message = if is_zero {
            "`num_workers=0`: batches are prepared in the training process, and the device waits for them"
        } else {
            "no `num_workers`: batches are prepared in the training process, and the device waits for them"
        };
        let fix = Fix::unsafe_(
            "prepare batches in worker processes: `num_workers=2` or more",
            if is_map_style(program, loader) { keyword_edit(program, loader, "num_workers", "2") } else { Vec::new() },
        );
        let notice = match prepares(program, loader) || is_read_beside(program, loader) {
            true => loader_notice(program, loader, "num_workers"),
            false => Notice::Pedantic,
        };
        check.report_as(notice, loader, message, fix);
    }
}

/// Whether samples are taken by index. Every worker would yield all samples of an iterable dataset.
fn is_map_style(program: &Program, loader: &Loader) -> bool {
    let arguments = &loader.node.arguments;
    // PyTorch rejects these for an iterable dataset.
    let is_shuffled = arguments.find_argument_value("shuffle", 2).and_then(boolean) == Some(true);
    let is_sampled = ["sampler", "batch_sampler"].iter().any(|name| arguments.find_keyword(name).is_some());
    let is_torchvision =
        matches!(&loader.options.dataset, Value::External(dotted) if dotted.starts_with("torchvision.datasets"));
    let classes = loader.options.dataset.classes();
    let has_items = |class: &ClassId| {
        let lineage = lineage(&program.sources.classes, *class);
        lineage.iter().any(|class| program.method(*class, "__getitem__").is_some())
    };
    is_shuffled || is_sampled || is_torchvision || !classes.is_empty() && classes.iter().all(has_items)
}

/// Whether the dataset is a project's own version of torch's class of this name.
fn is_of_tensors(program: &Program, loader: &Loader) -> bool {
    let classes = loader.options.dataset.classes();
    !classes.is_empty() && classes.iter().all(|class| program.sources.symbols.classes[*class].name == "TensorDataset")
}

/// `rows = torch.load(path)`, passed to the loader unchanged.
fn is_loaded_whole(program: &Program, loader: &Loader) -> bool {
    let Some(Expr::Name(name)) = loader.node.arguments.find_argument_value("dataset", 0) else { return false };
    let function = program.function_at(loader.context);
    let is_it = |call: &Call| {
        matches!(call.external(), Some("torch.load" | "numpy.load"))
            && matches!(call.statement, Stmt::Assign(assign)
                if assign.value.range() == call.node.range()
                    && matches!(assign.targets.as_slice(), [Expr::Name(target)] if target.id == name.id))
    };
    // The name's last value.
    let uses = uses_of(program, function, name.id.as_str());
    let stores = uses.iter().filter(|one| one.is_store && one.expression.start() < loader.node.start());
    let last = stores.max_by_key(|one| one.expression.start());
    let is_last = |call: &Call| last.is_some_and(|last| last.statement.range() == call.statement.range());
    program.calls_of(function).any(|call| is_it(call) && is_last(call))
}

/// Whether a sample takes work: opening files, decoding images, tokenizing text, random augmentation. A dataset that
/// only indexes memory gains nothing from workers.
fn prepares(program: &Program, loader: &Loader) -> bool {
    if let Value::External(dotted) = &loader.options.dataset {
        return dotted.starts_with("torchvision.datasets");
    }
    let sampled = device_in_dataset::samplers(program, loader);
    let collated = match loader.options.collate {
        Value::Function(function) => Some(function),
        _ => None,
    };
    let is_torchvision = loader.node.arguments.find_argument_value("dataset", 0).is_some_and(|dataset| {
        let made = program.call_at(program.file_of(loader.context), dataset.range());
        made.and_then(Call::external).is_some_and(|dotted| dotted.starts_with("torchvision.datasets"))
    });
    is_torchvision || sampled.into_iter().chain(collated).any(|function| works(program, function, 2))
}

/// Whether the function that constructs the loader also trains on it: the reader sees both, and the fix is one keyword.
pub(super) fn is_read_beside(program: &Program, loader: &Loader) -> bool {
    let function = program.function_at(loader.context);
    program.loops_in(program.file_of(loader.context)).any(|around| {
        let is_here = program.function_at(around.context) == function;
        is_here && around.loaders.contains(&loader.id) && program.trains_in(around)
    })
}

fn works(program: &Program, function: FunctionId, deep: usize) -> bool {
    const WORK: [&str; 14] = [
        "open",
        "imread",
        "load",
        "read",
        "read_image",
        "decode",
        "resize",
        "transform",
        "transforms",
        "tokenizer",
        "encode",
        "fromarray",
        "from_file",
        "augment",
    ];
    program.calls_of(function).any(|call| match call.callee {
        _ if WORK.contains(&call.name) => true,
        Callee::Function(inner) if deep > 0 && inner != function => works(program, inner, deep - 1),
        _ => false,
    })
}
