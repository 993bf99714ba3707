//! Simple, slow kernels in double precision, against which every backend is tested.

mod accumulate;
mod adamw;
mod add_rms_norm;
mod attention;
mod cached_attention;
mod causal_softmax;
mod choose;
mod clip;
mod cross_entropy;
mod elementwise;
mod embedding;
mod flash_attention;
mod fp8;
mod layer_norm;
mod linear_cross_entropy;
mod linears;
mod matmul;
mod muon;
mod rms_norm;
mod rope;
mod rows;
mod sgd;

use headroom_graph::{Graph, Op, Source, TensorType, ValueId};
use std::collections::BTreeMap;

/// A tensor in double precision; integers are held exactly.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    pub ty: TensorType,
    pub data: Vec<f64>,
}

impl Tensor {
    pub fn zeros(ty: &TensorType) -> Tensor {
        Tensor { ty: ty.clone(), data: vec![0.0; ty.elements()] }
    }

    /// Rows along the innermost axis.
    fn rows(&self) -> impl Iterator<Item = &[f64]> {
        self.data.chunks_exact(self.ty.shape.row())
    }
}

/// Runs one op: fills `outputs`, and changes the `inputs` that the op updates.
pub fn run(op: &Op, inputs: &mut [Tensor], outputs: &mut [Tensor]) {
    match op {
        Op::Embedding(_) => embedding::forward(inputs, outputs),
        Op::EmbeddingGrad(_) => embedding::gradient(inputs, outputs),
        Op::RmsNorm(op) => rms_norm::forward(op, inputs, outputs),
        Op::RmsNormGrad(op) => rms_norm::gradient(op, inputs, outputs),
        Op::MatMul(op) => matmul::run(op, inputs, outputs),
        Op::Rope(op) => rope::run(op, inputs, outputs),
        Op::AttentionScores(op) => attention::scores(op, inputs, outputs),
        Op::AttentionMix(op) => attention::mix(op, inputs, outputs),
        Op::AttentionMixBack(op) => attention::mix_back(op, inputs, outputs),
        Op::CausalSoftmax(_) => causal_softmax::forward(inputs, outputs),
        Op::CausalSoftmaxGrad(_) => causal_softmax::gradient(inputs, outputs),
        Op::Add(_) => elementwise::zip(inputs, outputs, |a, b| a + b),
        Op::Mul(_) => elementwise::zip(inputs, outputs, |a, b| a * b),
        Op::Scale(op) => elementwise::scale(op.factor, inputs, outputs),
        Op::Silu(_) => elementwise::silu(inputs, outputs),
        Op::SiluGrad(_) => elementwise::zip(inputs, outputs, elementwise::silu_gradient),
        Op::CrossEntropy(_) => cross_entropy::forward(inputs, outputs),
        Op::CrossEntropyGrad(_) => cross_entropy::gradient(inputs, outputs),
        // A single rank: its own values are the sum.
        Op::AllReduce(_) | Op::ReduceScatter(_) => {
            outputs.iter_mut().zip(inputs).for_each(|(to, from)| to.data.clone_from(&from.data));
        }
        Op::AllGather(op) => {
            let (whole, shards) = inputs.split_at_mut(op.tensors);
            whole.iter_mut().zip(shards).for_each(|(to, from)| to.data.clone_from(&from.data));
        }
        Op::Arrive(_) => {}
        Op::Accumulate(_) => accumulate::add(inputs),
        Op::Zero(_) => inputs[0].data.fill(0.0),
        Op::SquaredNorm(_) => clip::squared_norm(inputs, outputs),
        Op::ClipScale(op) => clip::scale(op, inputs, outputs),
        Op::GradientNorm(_) => clip::gradient_norm(inputs, outputs),
        Op::AdamW(op) => adamw::run(op, inputs),
        Op::AdamWAll(op) => adamw::run_all(op, inputs, outputs),
        Op::Choose(op) => choose::run(op, inputs, outputs),
        Op::Sgd(op) => sgd::run(op, inputs),
        Op::MuonMomentum(op) => muon::momentum(op, inputs, outputs),
        Op::UnitNorm(op) => muon::unit_norm(op, inputs, outputs),
        Op::Blend(op) => muon::blend(op, inputs, outputs),
        Op::MuonUpdate(op) => muon::update(op, inputs),
        Op::AdamWChosen(op) => adamw::run_chosen(op, inputs, outputs),
        Op::Linears(_) => linears::forward(inputs, outputs),
        Op::LinearsGradInput(_) => linears::gradient_input(inputs, outputs),
        Op::LinearsGradWeights(_) => linears::gradient_weights(inputs, outputs),
        Op::LayerNorm(op) => layer_norm::forward(op, inputs, outputs),
        Op::LayerNormGrad(op) => layer_norm::gradient(op, inputs, outputs),
        Op::Gelu(_) => elementwise::gelu(inputs, outputs),
        Op::GeluGrad(_) => elementwise::zip(inputs, outputs, elementwise::gelu_gradient),
        Op::AddRows(op) => rows::add(op, inputs, outputs),
        Op::SumRows(op) => rows::sum(op, inputs, outputs),
        Op::Split(_) => rows::split(inputs, outputs),
        Op::Join(_) => rows::join(inputs, outputs),
        Op::Quantize(op) => fp8::quantize(op, inputs, outputs),
        Op::Fp8Product(op) => fp8::product(op, inputs, outputs),
        Op::UpdateScales(op) => fp8::update_scales(op, inputs),
        Op::CachedAttention(op) => cached_attention::run(op, inputs, outputs),
        Op::SwiGlu(_) => elementwise::zip(inputs, outputs, elementwise::swiglu),
        Op::SwiGluGrad(_) => elementwise::swiglu_gradient(inputs, outputs),
        Op::RmsScales(op) => rms_norm::scales(op, inputs, outputs),
        Op::AddRmsNorm(op) => add_rms_norm::forward(op, inputs, outputs),
        Op::AddRmsNormGrad(op) => add_rms_norm::gradient(op, inputs, outputs),
        Op::FlashAttention(op) => flash_attention::forward(op, inputs, outputs),
        Op::FlashAttentionGrad(op) => flash_attention::gradient(&op.forward(), inputs, outputs),
        Op::LinearCrossEntropy(_) => linear_cross_entropy::forward(inputs, outputs),
        Op::LinearCrossEntropyTrain(_) => linear_cross_entropy::with_gradients(inputs, outputs),
    }
}

/// Runs a whole graph on the given values (all that no node produces) and returns every value.
pub fn evaluate(graph: &Graph, given: &BTreeMap<ValueId, Tensor>) -> Vec<Tensor> {
    let mut values: Vec<Tensor> = graph
        .value_ids()
        .map(|id| match graph.get(id).source {
            Source::Node(_) => Tensor::zeros(graph.ty(id)),
            _ => given[&id].clone(),
        })
        .collect();
    for node in graph.nodes() {
        let mut inputs: Vec<Tensor> = node.inputs.iter().map(|id| values[id.0].clone()).collect();
        let mut outputs: Vec<Tensor> = node.outputs.iter().map(|id| Tensor::zeros(graph.ty(*id))).collect();
        run(&node.op, &mut inputs, &mut outputs);
        for index in node.op.updates() {
            values[node.inputs[index].0] = inputs[index].clone();
        }
        for (id, output) in node.outputs.iter().zip(outputs) {
            values[id.0] = output;
        }
    }
    values
}
