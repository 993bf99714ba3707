//! TP306: samples moved to the device one by one, inside the dataset or the collate function.

use super::*;

pub fn check(check: &mut Check) {
    let program = check.program;
    for call in &program.notes.calls {
        let function = program.function_at(call.context);
        if !moves(program, call) || !prepares_samples(program, function) {
            continue;
        }
        let message = "samples are moved to the device one at a time: many small copies, and workers cannot help";
        let fix = Fix::shown("return host tensors and move the whole batch in the training loop");
        // A trainer may call a collate function on a whole batch.
        let is_sample = program.symbol(function).name == "__getitem__";
        let is_here = is_sample && program.groups.is_of_program(program.file_of(call.context));
        let notice = Notice::when(is_here);
        check.report_as(notice, call, message, fix);
    }
}

/// Whether the loader's dataset or collate function puts samples on the device.
pub fn puts_on_device(program: &Program, loader: &Loader) -> bool {
    let collate = match loader.options.collate {
        Value::Function(function) => Some(function),
        _ => None,
    };
    loader.options.dataset.is_surely_on_device()
        || collate
            .into_iter()
            .chain(samplers(program, loader))
            .any(|function| program.calls_of(function).any(|call| moves(program, call)))
}

/// The functions that produce a sample of the loader's dataset, one per class that the dataset may have.
pub fn samplers(program: &Program, loader: &Loader) -> Vec<FunctionId> {
    let of_class = |class: &ClassId| {
        let lineage = lineage(&program.sources.classes, *class);
        lineage.into_iter().find_map(|class| program.method(class, "__getitem__"))
    };
    let mut found: Vec<FunctionId> = loader.options.dataset.classes().iter().filter_map(of_class).collect();
    found.dedup();
    found
}

fn moves(program: &Program, call: &Call) -> bool {
    // `.to(other.device)` and `.to(other)` move to wherever the other is, which may be the host.
    let follows = call.node.arguments.args.first().is_some_and(
        |device| matches!(device, Expr::Attribute(device) if device.attr.as_str() == "device" && !is_own(&device.value)),
    ) || call.arguments.first().is_some_and(|other| other.tensor().is_some());
    moves_to_device(call) && !follows
        || matches!(call.external(), Some("torch.tensor" | "torch.as_tensor"))
            && call.result.is_on_device()
            && call.keyword("device").is_some()
            && !stays_by_default(program, call)
}

/// `device=device` with a parameter that defaults to `None`, which a loader never passes.
fn stays_by_default(program: &Program, call: &Call) -> bool {
    let Some(Expr::Name(device)) = keyword_of(call.node, "device") else {
        return false;
    };
    let definition = program.function_of(call.context).definition;
    definition.is_some_and(|definition| {
        definition.parameters.iter_non_variadic_params().any(|parameter| {
            parameter.parameter.name.id == device.id
                && parameter.default.as_ref().is_some_and(|default| default.is_none_literal_expr())
        })
    })
}

/// `self.device`, `args.device`.
fn is_own(owner: &Expr) -> bool {
    matches!(owner, Expr::Name(owner) if owner.id.as_str() == "self" || Role::Settings.fits(owner.id.as_str()))
}

fn prepares_samples(program: &Program, function: FunctionId) -> bool {
    let symbol = program.symbol(function);
    let is_dataset = |class: ClassId| {
        program.sources.classes[class].kind == ClassKind::Dataset
            || program.sources.symbols.classes[class].name.contains("Data")
    };
    let in_dataset = symbol.class.is_some_and(is_dataset);
    if symbol.name == "__getitem__" && in_dataset {
        return true;
    }
    symbol.name.contains("collate")
        || program.constructed.loaders.iter().any(|loader| loader.options.collate == Value::Function(function))
        || program.callers_of(function).any(|call| {
            // A helper of `__getitem__`.
            let caller = program.function_at(call.context);
            let caller = (caller != function).then(|| program.symbol(caller));
            caller.is_some_and(|caller| caller.name == "__getitem__" && caller.class.is_some_and(is_dataset))
        })
}
