//! Device time by part of the model: attention, feed-forward and the rest, by the modules named in a trace with stacks.

use std::collections::HashMap;

use headroom_trace::NONE;
use serde::Serialize;

use super::intervals::seconds;
use super::kinds::{Kind, kinds_of_names, of_span};
use super::view::View;

/// Shares of the device's time in the steps; backward passes count with their forward passes.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ModelParts {
    pub attention_share: f64,
    pub feed_forward_share: f64,
    /// In another module, or outside all modules.
    pub rest_share: f64,
    /// The part of all device time in GEMMs.
    pub product_share: f64,
    pub device_seconds: f64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Attention,
    FeedForward,
    Rest,
}

const MODULE: &str = "nn.Module: ";

/// `None` if the trace names no modules, or none of them is attention or feed-forward.
pub fn model_parts(view: &View) -> Option<ModelParts> {
    let device = &view.trace.device;
    let parts: Vec<Option<Part>> =
        view.trace.names.iter().map(|(_, name)| name.strip_prefix(MODULE).map(part).or_else(|| block(name))).collect();
    if !parts.iter().flatten().any(|part| *part != Part::Rest) {
        return None;
    }
    let of_name = kinds_of_names(view);
    let mut of_call: HashMap<u32, Part> = HashMap::new();
    let mut nanos = [0i64; 3];
    let mut products = 0;
    for at in view.in_steps() {
        let call = view.call_of[at];
        let part = *of_call.entry(call).or_insert_with(|| match call {
            NONE => Part::Rest,
            call => part_of(view, &parts, call as usize),
        });
        nanos[part as usize] += device.duration[at];
        if of_span(view, &of_name, at) == Kind::Product {
            products += device.duration[at];
        }
    }
    let all = nanos.iter().sum::<i64>();
    let share = |part: i64| part as f64 / all.max(1) as f64;
    let [attention, feed_forward, rest] = nanos;
    (attention + feed_forward > 0).then(|| ModelParts {
        attention_share: share(attention),
        feed_forward_share: share(feed_forward),
        rest_share: share(rest),
        product_share: share(products),
        device_seconds: seconds(all),
    })
}

/// Decides by the innermost module that is either: a feed-forward of experts may contain attention-like routers, and
/// vice versa.
fn part_of(view: &View, parts: &[Option<Part>], call: usize) -> Part {
    let around = |at: usize| {
        let parts = view.ancestors(at).filter_map(|at| parts[view.trace.host.name[at].index()]);
        parts.into_iter().find(|part| *part != Part::Rest)
    };
    around(call).or_else(|| around(view.forward_of(call)?)).unwrap_or(Part::Rest)
}

/// The functions in which torch's own encoder and decoder layers run their parts: their linear layers are direct members,
/// so no module stands for the feed-forward.
fn block(function: &str) -> Option<Part> {
    let (file, name) = function.split_once("): ")?;
    if !file.contains("nn/modules/transformer.py(") {
        return None;
    }
    match name {
        "_ff_block" => Some(Part::FeedForward),
        "_sa_block" | "_mha_block" => Some(Part::Attention),
        _ => None,
    }
}

/// Classifies a module by its class name: `LlamaAttention_3`, `BertSelfOutput_0`, `MLP_11`.
fn part(class: &str) -> Part {
    let class = class.to_ascii_lowercase();
    let says = |words: &[&str]| words.iter().any(|word| class.contains(word));
    if says(&["attention", "attn"]) {
        Part::Attention
    } else if says(&["mlp", "feedforward", "feed_forward", "ffn", "intermediate", "densereludense", "experts"]) {
        Part::FeedForward
    } else {
        Part::Rest
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabricated::{Fabricated, MICRO};

    /// Consecutive modules, each with an operator that launches one kernel of the given microseconds.
    fn modules(made: &mut Fabricated, list: &[(&str, &str, i64)]) {
        let mut work = 100 * MICRO;
        for (nth, (module, kernel, micros)) in list.iter().enumerate() {
            let start = nth as i64 * 100 * MICRO;
            made.span("python_function", &format!("nn.Module: {module}"), 1, start, start + 90 * MICRO, "");
            made.span("python_function", "nn.Module: Linear_0", 1, start + MICRO, start + 80 * MICRO, "");
            made.operator("aten::mm", start + 2 * MICRO, start + 40 * MICRO);
            made.launch((start + 5 * MICRO, start + 10 * MICRO), kernel, (work, work + micros * MICRO));
            work += micros * MICRO;
        }
    }

    #[test]
    fn device_time_is_shared_out_by_the_modules_around_it() {
        let mut made = Fabricated::default();
        made.step(1, 0, 2_000 * MICRO);
        let list = [
            ("LlamaAttention_0", "sgemm", 300),
            ("LlamaMLP_0", "sgemm", 400),
            ("LlamaMLP_1", "vectorized_elementwise_kernel", 100),
            ("LMHead_0", "sgemm", 200),
        ];
        modules(&mut made, &list);
        let trace = made.trace();
        let parts = model_parts(&View::new(&trace)).expect("modules are named");
        let wanted = ModelParts {
            attention_share: 0.3,
            feed_forward_share: 0.5,
            rest_share: 0.2,
            product_share: 0.9,
            device_seconds: 1e-3,
        };
        assert_eq!(parts, wanted);
    }

    #[test]
    fn the_feed_forward_of_an_encoder_layer_is_found_by_its_function() {
        let mut made = Fabricated::default();
        made.step(1, 0, 2_000 * MICRO);
        made.span("python_function", "nn.Module: TransformerEncoderLayer_0", 1, 0, 1_000 * MICRO, "");
        for (at, name, micros) in [(0, "_sa_block", 100), (1, "_ff_block", 300)] {
            let start = (10 + 200 * at) * MICRO;
            let function = format!("torch/nn/modules/transformer.py(9{at}0): {name}");
            made.span("python_function", &function, 1, start, start + 90 * MICRO, "");
            made.span("python_function", "nn.Module: Linear_0", 1, start + MICRO, start + 80 * MICRO, "");
            made.operator("aten::mm", start + 2 * MICRO, start + 40 * MICRO);
            let work = (600 + 400 * at) * MICRO;
            made.launch((start + 5 * MICRO, start + 10 * MICRO), "sgemm", (work, work + micros * MICRO));
        }
        let trace = made.trace();
        let parts = model_parts(&View::new(&trace)).expect("parts are named");
        assert_eq!((parts.attention_share, parts.feed_forward_share, parts.rest_share), (0.25, 0.75, 0.0));
    }

    #[test]
    fn a_trace_without_such_modules_has_no_parts() {
        let mut made = Fabricated::default();
        made.step(1, 0, 2_000 * MICRO);
        modules(&mut made, &[("ResNet_0", "sgemm", 300)]);
        assert_eq!(model_parts(&View::new(&made.trace())), None);
    }
}
