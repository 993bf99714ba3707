//! TP201: the same tensor is rebuilt at every step.

use rustc_hash::FxHashMap;

use super::*;
use crate::syntax::{called_by, method_of};

const BUILDERS: &[&str] = &["triu", "tril", "triu_", "tril_", "full", "arange"];

pub fn check(check: &mut Check) {
    let program = check.program;
    let rebuilt: Vec<&Call> = program.hot_calls().filter(|call| is_rebuilt(call) || is_filled(program, call)).collect();
    let mut rebuilt_places: FxHashMap<usize, Vec<TextRange>> = FxHashMap::default();
    for call in &rebuilt {
        rebuilt_places.entry(program.file_of(call.context)).or_default().push(call.node.range());
    }
    for call in &rebuilt {
        let range = call.node.range();
        // `torch.triu(torch.full(…))` is one constant: only the outermost call is reported.
        let file = program.file_of(call.context);
        let is_part = rebuilt_places
            .get(&file)
            .is_some_and(|places| places.iter().any(|place| *place != range && place.contains_range(range)));
        // `tril(triu(…))` over two lines is one constant as well: only the first line is reported.
        let is_next = call.arguments.first().or(Some(&call.receiver)).is_some_and(|value| {
            matches!(value, Value::Tensor(tensor) if matches!(tensor.origin, Origin::Constant(from)
                if !range.contains_range(from) && rebuilt_places.get(&file).is_some_and(|places| places.contains(&from))))
        });
        // A module's own `__init__` runs once, whoever calls it.
        let function = program.function_of(call.context);
        let is_module = function.class.is_some_and(|class| program.is_module(class));
        if is_part || is_next || function.name == "__init__" && is_module || is_written(program, call) {
            continue;
        }
        let text = quoted(program, call);
        let message = format!("the same tensor is rebuilt at every step: `{text}` depends only on sizes");
        let notice = Notice::when(is_square(call) && program.is_in_sight(call.context));
        check.report_as(notice, call, message, fix(program, call));
    }
}

/// A vector is one small kernel. A matrix grows with the sequence, and is written at every layer.
fn is_square(call: &Call) -> bool {
    match call.name {
        "triu" | "tril" | "triu_" | "tril_" => true,
        "full" => match call.node.arguments.args.first() {
            Some(Expr::Tuple(shape)) => shape.elts.iter().filter(|size| !size.is_number_literal_expr()).count() >= 2,
            _ => false,
        },
        _ => false,
    }
}

/// Whether the call is one that TP201 is about.
pub fn is_rebuilt(call: &Call) -> bool {
    let is_torch = match &call.callee {
        Callee::External(dotted) => dotted.starts_with("torch.") && !dotted.contains("distributed"),
        Callee::Method => matches!(call.name, "triu" | "tril" | "triu_" | "tril_"),
        _ => false,
    };
    let is_constant = matches!(&call.result, Value::Tensor(tensor)
        if matches!(tensor.origin, Origin::Constant(range) if range == call.node.range()));
    BUILDERS.contains(&call.name) && is_torch && is_constant
}

/// Whether TP201 reports the call, or an expression around it.
pub fn reports(program: &Program, call: &Call) -> bool {
    is_rebuilt(call) && !is_written(program, call)
}

/// Ones and zeros on the device that are assigned once and only read: targets and masks. Zeros with several sizes are
/// usually an initial state that is updated later.
fn is_filled(program: &Program, call: &Call) -> bool {
    let is_row = || matches!(&*call.node.arguments.args, [size] if !size.is_tuple_expr() && !size.is_list_expr());
    let is_fill = match &call.callee {
        Callee::External(dotted) => match dotted.as_str() {
            "torch.ones" | "torch.eye" => true,
            "torch.zeros" => is_row(),
            _ => false,
        },
        Callee::Method => call.name == "fill_" && matches!(call.receiver_expression(), Some(Expr::Call(_))),
        _ => false,
    };
    let is_constant = matches!(&call.result, Value::Tensor(tensor)
        if (tensor.placement == Placement::Device || is_fill && is_index(program, call))
            && matches!(tensor.origin, Origin::Constant(range) if range == call.node.range()));
    is_fill && is_constant && is_only_read(program, call) && !is_overwritten(program, call)
}

/// `torch.zeros(n, classes).scatter_(1, labels, 1)`: the constant contents are overwritten at once.
fn is_overwritten(program: &Program, call: &Call) -> bool {
    let writes = |name: &str| {
        name.ends_with('_') && !matches!(name, "fill_" | "zero_" | "requires_grad_" | "triu_" | "tril_")
            || matches!(name, "scatter" | "scatter_add" | "index_add" | "index_put" | "index_copy")
    };
    let function = program.function_at(call.context);
    program.calls_of(function).filter(|other| writes(other.name)).any(|other| {
        other.receiver_expression().is_some_and(|receiver| receiver.range().contains_range(call.node.range()))
    })
}

/// Whether the name that the call is bound to is not bound anywhere else in the function. A value without a name is
/// passed on.
fn is_only_read(program: &Program, call: &Call) -> bool {
    let (targets, value) = match call.statement {
        Stmt::Assign(assign) => (assign.targets.as_slice(), &*assign.value),
        Stmt::Expr(_) | Stmt::Return(_) => return true,
        // `errors[~torch.eye(n, dtype=bool)] *= weight`
        Stmt::AugAssign(sum) => return sum.target.range().contains_range(call.node.range()),
        _ => return false,
    };
    // `torch.zeros(1) + loss`: the start of a sum.
    let is_single = matches!(&*call.node.arguments.args, [Expr::NumberLiteral(_)]);
    if !is_bound(value, call.node.range()) {
        return !is_single;
    }
    let function = program.function_at(call.context);
    let names = targets.iter().flat_map(names_in);
    let stores = |name: &str| uses_of(program, function, name).iter().filter(|one| one.is_store).count();
    let is_plain = targets.iter().all(|target| matches!(target, Expr::Name(_) | Expr::Tuple(_)));
    let accumulates = call.name != "fill_"
        && value.range() == call.node.range()
        && matches!(call.node.arguments.args.first(), None | Some(Expr::NumberLiteral(_)))
        && call.node.arguments.args.len() <= 1;
    is_plain && !accumulates && names.into_iter().all(|name| stores(name) == 1)
}

/// Whether the assigned value is the new tensor, perhaps reshaped or moved, and not an expression that uses it as an
/// operand.
fn is_bound(value: &Expr, made: TextRange) -> bool {
    match value {
        _ if value.range() == made => true,
        Expr::Call(call) => match &*call.func {
            Expr::Attribute(method) if method.value.range().contains_range(made) => is_bound(&method.value, made),
            _ => true,
        },
        Expr::Subscript(subscript) => is_bound(&subscript.value, made),
        Expr::BinOp(_) | Expr::Compare(_) | Expr::UnaryOp(_) => false,
        _ => true,
    }
}

/// `errors[~torch.eye(n, dtype=bool)]`: a host mask indexes a device tensor.
fn is_index(program: &Program, call: &Call) -> bool {
    program.subscripts_in(program.file_of(call.context)).any(|subscript| {
        subscript.node.slice.range().contains_range(call.node.range()) && subscript.base.is_on_device()
    })
}

/// Whether data is written into the call's result, which is then a buffer for results, not a constant.
fn is_written(program: &Program, call: &Call) -> bool {
    let function = program.function_at(call.context);
    let writes = |other: &Call| {
        other.name.ends_with('_')
            && !other.name.ends_with("__")
            && other.arguments.iter().any(|value| value.tensor().is_some() && !value.is_sized())
    };
    // `torch.full(…).scatter_(1, targets, 1.0)`
    let is_made_there =
        |other: &Call| other.receiver_expression().is_some_and(|made| made.range() == call.node.range());
    if program.calls_of(function).any(|other| is_made_there(other) && writes(other)) {
        return true;
    }
    let Stmt::Assign(assign) = call.statement else { return false };
    let [Expr::Name(target)] = assign.targets.as_slice() else { return false };
    // `errors = (c - torch.eye(n)).pow(2)`: writing into the result leaves the constant unchanged.
    if !is_bound(&assign.value, call.node.range()) {
        return false;
    }
    let is_target = |expression: &Expr| {
        let whole = match expression {
            // `place[:, :n].copy_(rows)`
            Expr::Subscript(part) => &*part.value,
            whole => whole,
        };
        matches!(whole, Expr::Name(name) if name.id == target.id)
    };
    let stored = program.subscripts_in(program.file_of(call.context)).any(|subscript| {
        let is_data = |value: &Value| !value.is_sized();
        subscript.stored.as_ref().is_some_and(|stored| is_data(stored) || is_data(&subscript.index))
            && program.function_at(subscript.context) == function
            && is_target(&subscript.node.value)
    });
    let is_its = |other: &Call| other.receiver_expression().is_some_and(is_target);
    stored || program.calls_of(function).any(|other| is_its(other) && writes(other))
}

fn fix<'a>(program: &Program<'a>, call: &Call<'a>) -> Fix {
    let function = program.function_of(call.context);
    let is_module = function.class.is_some_and(|class| program.is_module(class));
    let advice = match (is_module, function.class) {
        (true, _) => "build it once, keep it on the module and take a slice of it",
        (false, Some(_)) => "build it once, keep it on the object and take a slice of it",
        (false, None) => "build it once outside and pass it in, or cache it by size (`functools.lru_cache`)",
    };
    Fix::unsafe_(advice, buffer(program, call).unwrap_or_default())
}

/// `name = torch.triu(torch.ones(n, n, device=…))…` in a module's `forward`: kept on the module and rebuilt when a longer
/// one is needed, or one on another device.
///
/// It is an attribute and not a buffer. Ranks would broadcast a buffer whose size differs between them, and `half()`
/// would change its type. It is built outside of inference mode, since autograd refuses tensors made inside.
fn buffer<'a>(program: &Program<'a>, call: &Call<'a>) -> Option<Vec<Edit>> {
    let function = program.function_of(call.context);
    let class = function.class.filter(|class| program.is_module(*class))?;
    let Stmt::Assign(assign) = call.statement else { return None };
    let [Expr::Name(target)] = assign.targets.as_slice() else { return None };
    let Shape { sizes, device } = shape_of(program, call)?;
    let size = sizes.first().copied()?;
    let source = program.source(call.context);
    let value = source.slice(assign.value.range());
    if function.name != "forward"
        || sizes.len() > 2
        || sizes.iter().any(|other| *other != size)
        || !value.trim_start_matches('(').starts_with("torch.")
        // TorchScript knows neither inference mode nor attributes that change their type.
        || source.text.contains("jit")
        || is_changed_in_place(program, program.function_at(call.context), &[target.id.as_str()])
    {
        return None;
    }
    let init = program.symbol(program.method(class, "__init__")?).definition?;
    let after_super = init
        .body
        .iter()
        .find(|statement| called_by(statement).and_then(method_of).is_some_and(|(_, method)| method == "__init__"))?;
    let owner = init.parameters.args.first()?.parameter.name.as_str();
    let here = function.definition?.parameters.args.first()?.parameter.name.as_str();
    let attribute = format!("{}_cache", target.id.as_str());
    if source.slice(program.sources.symbols.classes[class].definition.range()).contains(&attribute) {
        return None;
    }
    let indent = source.indentation(assign.range.start());
    let slice = if sizes.len() == 2 { format!("[:{size}, :{size}]") } else { format!("[:{size}]") };
    let init_indent = source.indentation(after_super.start());
    let kept = format!("{here}.{attribute}");
    let cached = format!(
        "if {kept} is None or {kept}.size(0) < {size} or {kept}.device != {device}:\n\
         {indent}    with torch.inference_mode(False):\n\
         {indent}        {kept} = {}\n\
         {indent}{} = {kept}{slice}",
        value.replace('\n', "\n        "),
        target.id.as_str()
    );
    Some(vec![
        Edit::insert(after_super.end(), format!("\n{init_indent}{owner}.{attribute} = None")),
        Edit::replace(assign.range, cached),
    ])
}

struct Shape<'a> {
    sizes: Vec<&'a str>,
    device: &'a str,
}

/// The sizes of the constant, if a slice of a larger one has the same contents: square or one-dimensional, not reshaped
/// afterwards.
fn shape_of<'a>(program: &Program<'a>, call: &Call<'a>) -> Option<Shape<'a>> {
    let Stmt::Assign(assign) = call.statement else { return None };
    let text = |range: TextRange| program.source(call.context).slice(range);
    let is_type = |expression: &Expr| text(expression.range()).starts_with("torch.");
    // Only a change to a type that is always the same may follow: `.bool()`, `== 0`.
    let mut at = &*assign.value;
    while at.range() != call.node.range() {
        at = match at {
            Expr::Compare(compare) => &compare.left,
            Expr::Call(outer) => match &*outer.func {
                Expr::Attribute(method)
                    if matches!(method.attr.as_str(), "bool" | "float" | "long" | "to" | "int")
                        && outer.arguments.args.iter().all(is_type)
                        && outer.arguments.keywords.is_empty() =>
                {
                    &method.value
                }
                _ => return None,
            },
            _ => return None,
        };
    }
    let inner = match call.name {
        "triu" | "tril" => match call.node.arguments.args.first()? {
            Expr::Call(inner) => inner,
            _ => return None,
        },
        _ => call.node,
    };
    // `device=x.device`; a string or a number would not compare equal to the device of a tensor.
    let device = match keyword_of(inner, "device")? {
        Expr::Attribute(device) if device.attr.as_str() == "device" && device.value.is_name_expr() => {
            Some(text(device.range())).filter(|text| !text.starts_with("self."))?
        }
        _ => return None,
    };
    if keyword_of(inner, "dtype").is_some_and(|dtype| !is_type(dtype)) {
        return None;
    }
    let arguments = &inner.arguments.args;
    let sizes = match function_name(inner) {
        "ones" | "zeros" => {
            let sizes = match &**arguments {
                [Expr::Tuple(shape)] => shape.elts.as_slice(),
                all => all,
            };
            (sizes.len() == 2).then(|| sizes.iter().map(|size| text(size.range())).collect())
        }
        "full" => match arguments.first()? {
            Expr::Tuple(shape) => Some(shape.elts.iter().map(|size| text(size.range())).collect()),
            _ => None,
        },
        "arange" if arguments.len() == 1 => Some(vec![text(arguments[0].range())]),
        _ => None,
    }?;
    Some(Shape { sizes, device })
}
