//! The trait that every operator implements, and the registry of all operators.
//!
//! A new op is a file in `ops/`, a line in the registry below, and its kernels in the engine. The table tests (gradient
//! against finite differences, every backend's kernel against the reference) find it through [`Op::examples`].

use crate::graph::{Graph, GraphError, ValueId};
use crate::ops;
use crate::tensor::TensorType;
use thiserror::Error;

pub trait Operator {
    /// The types of the outputs, or an error that says what is wrong with the inputs.
    fn outputs(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>, ShapeError>;

    /// Floating-point operations executed, a multiply-add counted as two.
    fn flops(&self, inputs: &[TensorType], outputs: &[TensorType]) -> u64;

    /// Bytes that must move if every input is read once and every output (and updated input) is written once.
    fn bytes(&self, inputs: &[TensorType], outputs: &[TensorType]) -> u64 {
        let all = inputs.iter().chain(outputs).map(TensorType::bytes).sum::<usize>();
        let updated = self.updates().into_iter().map(|index| inputs[index].bytes()).sum::<usize>();
        (all + updated) as u64
    }

    /// Inputs that are overwritten in place.
    fn updates(&self) -> Vec<usize> {
        vec![]
    }

    /// Whether it is a matrix product (GEMM): a model's FLOP count covers only those.
    fn is_product(&self) -> bool {
        false
    }

    /// Whether it only serves observation. Such kernels are counted apart from those that the step needs.
    fn is_instrumentation(&self) -> bool {
        false
    }

    /// Bytes that this rank sends to others; non-zero only for collectives.
    fn sent_bytes(&self, _inputs: &[TensorType], _outputs: &[TensorType]) -> u64 {
        0
    }

    /// The gradient with respect to each input that needs one.
    fn gradient(&self, at: &mut Backward) -> Result<Vec<Option<ValueId>>, GraphError>;

    /// Small cases for the table tests, including odd sizes.
    fn examples() -> Vec<Example>
    where
        Self: Sized;
}

/// Everything an op sees when it is asked for its gradient.
pub struct Backward<'a> {
    pub graph: &'a mut Graph,
    pub inputs: &'a [ValueId],
    pub outputs: &'a [ValueId],
    /// The gradient that arrived at each output, if any.
    pub arrived: &'a [Option<ValueId>],
    /// Whether each input needs a gradient.
    pub wanted: &'a [bool],
    pub(crate) op: Op,
    pub(crate) module: &'a str,
}

impl Backward<'_> {
    /// The gradient at the only output.
    pub fn arrived_one(&self) -> ValueId {
        self.arrived[0].expect("a node is visited only when a gradient arrived")
    }

    /// The error of an op that has no gradient: one of the backward pass or the optimizer.
    pub fn none(&self) -> Result<Vec<Option<ValueId>>, GraphError> {
        Err(GraphError::NotDifferentiable { op: self.op.name(), module: self.module.into() })
    }

    /// The result of `op` if input `index` needs a gradient.
    pub fn if_wanted(
        &mut self,
        index: usize,
        op: impl Into<Op>,
        inputs: &[ValueId],
    ) -> Result<Option<ValueId>, GraphError> {
        if !self.wanted[index] {
            return Ok(None);
        }
        self.graph.add_one(op, inputs).map(Some)
    }
}

/// One case of a table test: an op and the inputs to try it on.
#[derive(Clone, Debug)]
pub struct Example {
    pub op: Op,
    pub inputs: Vec<(TensorType, Fill)>,
}

/// The values that an example's input takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fill {
    Normal,
    /// Squares of standard normal values plus an offset: second moments, norms.
    Positive,
    /// Integers below the limit.
    Ids(usize),
    /// Each row is a distribution over the first `row + 1` entries, as in causal attention.
    CausalRows,
    /// This value everywhere.
    Constant(f64),
}

#[derive(Clone, Debug, Error, PartialEq)]
pub enum ShapeError {
    #[error("takes {want} inputs, has {have}")]
    Arity { want: usize, have: usize },
    #[error("inner sizes differ: {left} on the left, {right} on the right")]
    InnerSize { left: usize, right: usize },
    #[error("input {index} is {have}, wants {want}")]
    Input { index: usize, want: String, have: String },
    #[error("{0}")]
    Attribute(String),
}

/// Returns the inputs if there are exactly `N`, otherwise an error that says so.
pub fn arity<const N: usize>(inputs: &[TensorType]) -> Result<&[TensorType; N], ShapeError> {
    inputs.try_into().map_err(|_| ShapeError::Arity { want: N, have: inputs.len() })
}

/// Checks that input `index` has this shape; the error says which shape it has.
pub fn expect(index: usize, input: &TensorType, sizes: &[usize]) -> Result<(), ShapeError> {
    if input.sizes() == sizes {
        return Ok(());
    }
    Err(ShapeError::Input { index, want: format!("{sizes:?}"), have: input.shape.to_string() })
}

/// Checks that input `index` has two axes and returns their sizes.
pub fn matrix(index: usize, input: &TensorType) -> Result<(usize, usize), ShapeError> {
    match input.sizes() {
        &[rows, columns] => Ok((rows, columns)),
        _ => Err(ShapeError::Input { index, want: "a matrix".into(), have: input.shape.to_string() }),
    }
}

/// Attributes as text, for the graph's printed form. Implemented by the `op!` macro.
pub trait Attributes: Sized {
    fn attributes(&self) -> Vec<(&'static str, String)>;
    fn from_attributes(found: &[(&str, &str)]) -> Result<Self, String>;
}

/// Declares an op's struct: plain comparable data, each field printable and parseable.
#[macro_export]
macro_rules! op {
    ($(#[$meta:meta])* pub struct $name:ident { $($(#[$field_meta:meta])* pub $field:ident: $type:ty),* $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq)]
        pub struct $name { $($(#[$field_meta])* pub $field: $type),* }

        impl $crate::op::Attributes for $name {
            fn attributes(&self) -> Vec<(&'static str, String)> {
                vec![$((stringify!($field), self.$field.to_string())),*]
            }

            fn from_attributes(found: &[(&str, &str)]) -> Result<Self, String> {
                let known: &[&str] = &[$(stringify!($field)),*];
                $crate::op::check_attributes(stringify!($name), known, found)?;
                Ok($name { $($field: $crate::op::attribute(stringify!($field), found)?),* })
            }
        }
    };
}

pub fn check_attributes(op: &str, known: &[&str], found: &[(&str, &str)]) -> Result<(), String> {
    match found.iter().find(|(name, _)| !known.contains(name)) {
        Some((name, _)) => Err(format!("{op} has no attribute `{name}` (it has {known:?})")),
        None => Ok(()),
    }
}

pub fn attribute<T: std::str::FromStr>(name: &str, found: &[(&str, &str)]) -> Result<T, String> {
    let (_, text) =
        found.iter().find(|(other, _)| *other == name).ok_or_else(|| format!("attribute `{name}` is missing"))?;
    text.parse().map_err(|_| format!("attribute `{name}` has a value that cannot be read: `{text}`"))
}

macro_rules! registry {
    ($($name:literal $variant:ident in $module:ident,)*) => {
        /// Every operator.
        #[derive(Clone, Copy, Debug, PartialEq)]
        pub enum Op { $($variant(ops::$module::$variant)),* }

        $(impl From<ops::$module::$variant> for Op {
            fn from(op: ops::$module::$variant) -> Op { Op::$variant(op) }
        })*

        impl Op {
            pub const NAMES: &[&str] = &[$($name),*];

            pub fn name(&self) -> &'static str {
                match self { $(Op::$variant(_) => $name),* }
            }

            pub fn attributes(&self) -> Vec<(&'static str, String)> {
                match self { $(Op::$variant(op) => op.attributes()),* }
            }

            pub fn parse(name: &str, found: &[(&str, &str)]) -> Result<Op, String> {
                match name {
                    $($name => Ok(Op::$variant(ops::$module::$variant::from_attributes(found)?)),)*
                    other => Err(format!("there is no op `{other}`")),
                }
            }

            /// The cases of every op, for the table tests.
            pub fn examples() -> Vec<Example> {
                [$(ops::$module::$variant::examples()),*].concat()
            }

            fn operator(&self) -> &dyn DynOperator {
                match self { $(Op::$variant(op) => op),* }
            }
        }
    };
}

registry! {
    "embedding" Embedding in embedding,
    "embedding_grad" EmbeddingGrad in embedding,
    "rms_norm" RmsNorm in rms_norm,
    "rms_norm_grad" RmsNormGrad in rms_norm,
    "matmul" MatMul in matmul,
    "rope" Rope in rope,
    "attention_scores" AttentionScores in attention,
    "attention_mix" AttentionMix in attention,
    "attention_mix_back" AttentionMixBack in attention,
    "causal_softmax" CausalSoftmax in causal_softmax,
    "causal_softmax_grad" CausalSoftmaxGrad in causal_softmax,
    "add" Add in add,
    "mul" Mul in mul,
    "scale" Scale in scale,
    "silu" Silu in silu,
    "silu_grad" SiluGrad in silu,
    "cross_entropy" CrossEntropy in cross_entropy,
    "cross_entropy_grad" CrossEntropyGrad in cross_entropy,
    "accumulate" Accumulate in accumulate,
    "zero" Zero in accumulate,
    "squared_norm" SquaredNorm in clip,
    "clip_scale" ClipScale in clip,
    "gradient_norm" GradientNorm in clip,
    "adamw" AdamW in adamw,
    "adamw_all" AdamWAll in adamw_all,
    "sgd" Sgd in sgd,
    "muon_momentum" MuonMomentum in muon,
    "unit_norm" UnitNorm in muon,
    "blend" Blend in muon,
    "muon_update" MuonUpdate in muon,
    "choose" Choose in choose,
    "adamw_chosen" AdamWChosen in adamw_chosen,
    "linears" Linears in linears,
    "linears_grad_input" LinearsGradInput in linears,
    "linears_grad_weights" LinearsGradWeights in linears,
    "swiglu" SwiGlu in swiglu,
    "swiglu_grad" SwiGluGrad in swiglu,
    "add_rms_norm" AddRmsNorm in add_rms_norm,
    "add_rms_norm_grad" AddRmsNormGrad in add_rms_norm,
    "flash_attention" FlashAttention in flash_attention,
    "flash_attention_grad" FlashAttentionGrad in flash_attention,
    "linear_cross_entropy" LinearCrossEntropy in linear_cross_entropy,
    "linear_cross_entropy_train" LinearCrossEntropyTrain in linear_cross_entropy,
    "rms_scales" RmsScales in rms_scales,
    "layer_norm" LayerNorm in layer_norm,
    "layer_norm_grad" LayerNormGrad in layer_norm,
    "gelu" Gelu in gelu,
    "gelu_grad" GeluGrad in gelu,
    "add_rows" AddRows in add_rows,
    "sum_rows" SumRows in add_rows,
    "split" Split in split,
    "join" Join in split,
    "cached_attention" CachedAttention in cached_attention,
    "quantize" Quantize in quantize,
    "fp8_product" Fp8Product in fp8_product,
    "update_scales" UpdateScales in quantize,
    "all_reduce" AllReduce in collective,
    "reduce_scatter" ReduceScatter in collective,
    "all_gather" AllGather in collective,
    "arrive" Arrive in collective,
}

/// [`Operator`] without the methods that cannot be called on a trait object.
trait DynOperator {
    fn outputs(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>, ShapeError>;
    fn flops(&self, inputs: &[TensorType], outputs: &[TensorType]) -> u64;
    fn bytes(&self, inputs: &[TensorType], outputs: &[TensorType]) -> u64;
    fn updates(&self) -> Vec<usize>;
    fn is_product(&self) -> bool;
    fn is_instrumentation(&self) -> bool;
    fn sent_bytes(&self, inputs: &[TensorType], outputs: &[TensorType]) -> u64;
    fn gradient(&self, at: &mut Backward) -> Result<Vec<Option<ValueId>>, GraphError>;
}

impl<T: Operator> DynOperator for T {
    fn outputs(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>, ShapeError> {
        Operator::outputs(self, inputs)
    }
    fn flops(&self, inputs: &[TensorType], outputs: &[TensorType]) -> u64 {
        Operator::flops(self, inputs, outputs)
    }
    fn bytes(&self, inputs: &[TensorType], outputs: &[TensorType]) -> u64 {
        Operator::bytes(self, inputs, outputs)
    }
    fn updates(&self) -> Vec<usize> {
        Operator::updates(self)
    }
    fn is_product(&self) -> bool {
        Operator::is_product(self)
    }
    fn is_instrumentation(&self) -> bool {
        Operator::is_instrumentation(self)
    }
    fn sent_bytes(&self, inputs: &[TensorType], outputs: &[TensorType]) -> u64 {
        Operator::sent_bytes(self, inputs, outputs)
    }
    fn gradient(&self, at: &mut Backward) -> Result<Vec<Option<ValueId>>, GraphError> {
        Operator::gradient(self, at)
    }
}

impl Op {
    pub fn outputs(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>, ShapeError> {
        self.operator().outputs(inputs)
    }

    pub fn flops(&self, inputs: &[TensorType], outputs: &[TensorType]) -> u64 {
        self.operator().flops(inputs, outputs)
    }

    pub fn bytes(&self, inputs: &[TensorType], outputs: &[TensorType]) -> u64 {
        self.operator().bytes(inputs, outputs)
    }

    pub fn updates(&self) -> Vec<usize> {
        self.operator().updates()
    }

    pub fn is_product(&self) -> bool {
        self.operator().is_product()
    }

    pub fn is_instrumentation(&self) -> bool {
        self.operator().is_instrumentation()
    }

    /// Whether all ranks make the call together.
    pub fn is_collective(&self) -> bool {
        matches!(self, Op::AllReduce(_) | Op::ReduceScatter(_) | Op::AllGather(_) | Op::Arrive(_))
    }

    pub fn sent_bytes(&self, inputs: &[TensorType], outputs: &[TensorType]) -> u64 {
        self.operator().sent_bytes(inputs, outputs)
    }

    pub fn gradient(&self, at: &mut Backward) -> Result<Vec<Option<ValueId>>, GraphError> {
        self.operator().gradient(at)
    }
}
