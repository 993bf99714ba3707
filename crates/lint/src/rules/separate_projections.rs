//! TP410: several projections of one input where one would do.

use super::*;

/// Groups of layers that can be one GEMM, by their names without common suffixes.
const GROUPS: &[(&[&[&str]], &str)] = &[
    (
        &[
            &["q", "query", "wq", "queries", "to_q", "w_q", "w_qs"],
            &["k", "key", "wk", "keys", "to_k", "w_k", "w_ks"],
            &["v", "value", "wv", "values", "to_v", "w_v", "w_vs"],
        ],
        "q, k and v",
    ),
    (&[&["gate", "w1", "gate_proj"], &["up", "w3", "up_proj"]], "gate and up"),
];

pub fn check(check: &mut Check) {
    let program = check.program;
    for class in 0..program.sources.symbols.classes.len() {
        if !program.is_module(class) {
            continue;
        }
        for (group, what) in GROUPS {
            let layers: Vec<&Call> = group.iter().filter_map(|names| linear_called(program, class, names)).collect();
            let inputs: Vec<&str> = layers.iter().filter_map(|layer| input_of(program, class, layer)).collect();
            let same = inputs.len() == group.len() && inputs.iter().all(|input| *input == inputs[0]);
            if let (true, Some(first)) = (same, layers.first()) {
                let message =
                    format!("{what} are separate GEMMs on one input: each reads it again and launches its own kernels");
                check.report_as(
                    Notice::Pedantic,
                    first,
                    message,
                    Fix::shown("use one Linear with concatenated outputs, then split"),
                );
            }
        }
    }
}

fn attribute_of<'a>(call: &Call<'a>) -> Option<&'a str> {
    let Stmt::Assign(assign) = call.statement else { return None };
    match assign.targets.as_slice() {
        [Expr::Attribute(target)] => Some(target.attr.as_str()),
        _ => None,
    }
}

/// `self.<name> = nn.Linear(…)` in the class.
fn linear_called<'p, 'a>(program: &'p Program<'a>, class: ClassId, names: &[&str]) -> Option<&'p Call<'a>> {
    program.calls_in(program.sources.symbols.classes[class].file).find(|call| {
        call.external() == Some("torch.nn.Linear")
            && program.function_of(call.context).class == Some(class)
            && attribute_of(call).is_some_and(|name| {
                names.contains(&name.trim_end_matches("_proj").trim_end_matches("_linear").trim_end_matches("_net"))
            })
    })
}

/// The text of the layer's input, if it is applied once.
fn input_of<'a>(program: &Program<'a>, class: ClassId, layer: &Call<'a>) -> Option<&'a str> {
    let name = attribute_of(layer)?;
    let mut applied = program.calls_in(program.sources.symbols.classes[class].file).filter(|call| {
        program.function_of(call.context).class == Some(class) && attribute_of_self(&call.node.func) == Some(name)
    });
    let call = applied.next()?;
    Some(program.text(call.context, call.node.arguments.args.first()?))
}
