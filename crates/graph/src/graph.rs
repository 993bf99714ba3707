//! The graph: values, the nodes that produce them, and the invariants that a graph always keeps.

use crate::op::{Op, ShapeError};
use crate::role::{Part, Role, block_of};
use crate::tensor::TensorType;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use thiserror::Error;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ValueId(pub usize);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub usize);

/// The part of a training step that a node belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Phase {
    Forward,
    Backward,
    Optimizer,
}

impl Phase {
    pub const ALL: [Phase; 3] = [Phase::Forward, Phase::Backward, Phase::Optimizer];

    pub fn name(self) -> &'static str {
        match self {
            Phase::Forward => "forward",
            Phase::Backward => "backward",
            Phase::Optimizer => "optimizer",
        }
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        out.write_str(self.name())
    }
}

/// Purpose of a buffer, as used in memory reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Category {
    Parameters,
    Gradients,
    OptimizerState,
    Activations,
    Temporaries,
}

impl Category {
    pub const ALL: [Category; 5] = [
        Category::Parameters,
        Category::Gradients,
        Category::OptimizerState,
        Category::Activations,
        Category::Temporaries,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Category::Parameters => "parameters",
            Category::Gradients => "gradients",
            Category::OptimizerState => "optimizer_state",
            Category::Activations => "activations",
            Category::Temporaries => "temporaries",
        }
    }
}

/// Where a value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// Written by the host before a step.
    Input,
    /// A weight: kept between steps.
    Parameter,
    /// Written by the host once and never changed (rotation tables).
    Constant,
    /// Kept between steps and updated by the graph: moments, gradient accumulators.
    State(Category),
    /// Produced by a node.
    Node(NodeId),
}

impl Source {
    pub fn is_kept(self) -> bool {
        matches!(self, Source::Parameter | Source::Constant | Source::State(_))
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Value {
    /// Parameters carry their Hugging Face name; values produced by nodes are named `%` and a number.
    pub name: Arc<str>,
    pub ty: TensorType,
    pub source: Source,
    /// The place in the model of a parameter or a copy of one. Empty for everything else.
    pub part: Part,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    pub op: Op,
    pub inputs: Vec<ValueId>,
    pub outputs: Vec<ValueId>,
    /// Path of the module it belongs to: `layers.3.mlp.up_proj`.
    pub module: Arc<str>,
    pub role: Role,
    pub phase: Phase,
}

impl Node {
    /// The number of the block that the node belongs to.
    pub fn block(&self) -> Option<usize> {
        block_of(&self.module)
    }
}

#[derive(Clone, Debug, Error, PartialEq)]
pub enum GraphError {
    #[error("{op} in {module}: {error} (inputs {inputs})")]
    Shape { op: &'static str, module: String, inputs: String, error: ShapeError },
    #[error("{op} in {module} has no gradient: it belongs to the backward pass or the optimizer itself")]
    NotDifferentiable { op: &'static str, module: String },
    #[error("no gradient reaches {name}")]
    NoGradient { name: String },
    #[error("the graph is not valid after `{after}`: {what}")]
    Invalid { after: String, what: String },
    #[error("line {line} of the graph's text: {what}")]
    Text { line: usize, what: String },
}

#[derive(Clone, Debug)]
pub struct Graph {
    values: Vec<Value>,
    nodes: Vec<Node>,
    outputs: Vec<(String, ValueId)>,
    module: Arc<str>,
    role: Role,
    phase: Phase,
}

/// Ignores the module and phase that the next node would get: they are not part of a graph's identity.
impl PartialEq for Graph {
    fn eq(&self, other: &Graph) -> bool {
        self.values == other.values && self.nodes == other.nodes && self.outputs == other.outputs
    }
}

impl Default for Graph {
    fn default() -> Graph {
        Graph::new()
    }
}

impl Graph {
    pub fn new() -> Graph {
        Graph {
            values: vec![],
            nodes: vec![],
            outputs: vec![],
            module: "".into(),
            role: Role::Other,
            phase: Phase::Forward,
        }
    }

    pub fn input(&mut self, name: &str, ty: TensorType) -> ValueId {
        self.value(name.into(), ty, Source::Input)
    }

    pub fn parameter(&mut self, name: &str, ty: TensorType) -> ValueId {
        self.value(name.into(), ty, Source::Parameter)
    }

    /// Declares a parameter with its place in the model.
    pub fn weight(&mut self, name: &str, ty: TensorType, part: Part) -> ValueId {
        let id = self.parameter(name, ty);
        self.place(id, part);
        id
    }

    /// Sets the place in the model of a kept value.
    pub fn place(&mut self, id: ValueId, part: Part) {
        self.values[id.0].part = part;
    }

    pub fn constant(&mut self, name: &str, ty: TensorType) -> ValueId {
        self.value(name.into(), ty, Source::Constant)
    }

    pub fn state(&mut self, name: &str, ty: TensorType, category: Category) -> ValueId {
        self.value(name.into(), ty, Source::State(category))
    }

    /// Nodes added from now on belong to this module and phase, with the role `Other`.
    pub fn enter(&mut self, module: &str, phase: Phase) {
        self.enter_as(module, phase, Role::Other);
    }

    /// Nodes added from now on belong to this module and phase, with this role.
    pub fn enter_as(&mut self, module: &str, phase: Phase, role: Role) {
        if *self.module != *module {
            self.module = module.into();
        }
        (self.phase, self.role) = (phase, role);
    }

    pub fn add(&mut self, op: impl Into<Op>, inputs: &[ValueId]) -> Result<Vec<ValueId>, GraphError> {
        let op = op.into();
        let types = self.output_types(&op, inputs, &self.module)?;
        let id = NodeId(self.nodes.len());
        let outputs: Vec<ValueId> = types
            .into_iter()
            .map(|ty| {
                let name = format!("%{}", self.values.len()).into();
                self.value(name, ty, Source::Node(id))
            })
            .collect();
        self.nodes.push(Node {
            op,
            inputs: inputs.to_vec(),
            outputs: outputs.clone(),
            module: self.module.clone(),
            role: self.role,
            phase: self.phase,
        });
        Ok(outputs)
    }

    /// [`Graph::add`] for an op with one output.
    pub fn add_one(&mut self, op: impl Into<Op>, inputs: &[ValueId]) -> Result<ValueId, GraphError> {
        let op = op.into();
        let outputs = self.add(op, inputs)?;
        match outputs[..] {
            [only] => Ok(only),
            _ => Err(GraphError::Invalid {
                after: op.name().into(),
                what: format!("it has {} outputs where one is expected", outputs.len()),
            }),
        }
    }

    /// Keeps a value alive to the end of the step, under this name.
    pub fn output(&mut self, name: &str, value: ValueId) {
        self.outputs.push((name.into(), value));
    }

    pub fn outputs(&self) -> &[(String, ValueId)] {
        &self.outputs
    }

    pub fn output_named(&self, name: &str) -> Option<ValueId> {
        self.outputs.iter().find(|(other, _)| other == name).map(|&(_, value)| value)
    }

    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.0]
    }

    pub fn values(&self) -> &[Value] {
        &self.values
    }

    pub fn get(&self, id: ValueId) -> &Value {
        &self.values[id.0]
    }

    pub fn ty(&self, id: ValueId) -> &TensorType {
        &self.values[id.0].ty
    }

    pub fn types(&self, ids: &[ValueId]) -> Vec<TensorType> {
        ids.iter().map(|&id| self.ty(id).clone()).collect()
    }

    pub fn value_ids(&self) -> impl Iterator<Item = ValueId> + use<> {
        (0..self.values.len()).map(ValueId)
    }

    pub fn named(&self, name: &str) -> Option<ValueId> {
        self.values.iter().position(|value| &*value.name == name).map(ValueId)
    }

    /// The node that produces a value.
    pub fn maker(&self, id: ValueId) -> Option<(NodeId, &Node)> {
        match self.get(id).source {
            Source::Node(maker) => Some((maker, self.node(maker))),
            _ => None,
        }
    }

    /// How often a value is read by nodes or kept as an output.
    pub fn uses(&self, id: ValueId) -> usize {
        let reads = self.nodes.iter().flat_map(|node| &node.inputs).filter(|input| **input == id).count();
        reads + self.outputs.iter().filter(|(_, output)| *output == id).count()
    }

    pub fn parameters(&self) -> Vec<ValueId> {
        self.value_ids().filter(|&id| self.get(id).source == Source::Parameter).collect()
    }

    /// FLOPs of the products of one phase: the usual meaning of a model's FLOP count.
    pub fn product_flops(&self, phase: Phase) -> u64 {
        self.nodes
            .iter()
            .filter(|node| node.phase == phase && node.op.is_product())
            .map(|node| node.op.flops(&self.types(&node.inputs), &self.types(&node.outputs)))
            .sum()
    }

    /// Checks all invariants of a graph. `after` names the last change, for the error.
    ///
    /// Every node's inputs exist before it, shapes and dtypes are those that its op infers, a value has one producer,
    /// only kept values are updated, and a parameter is not touched again in the same step after its update.
    pub fn validate(&self, after: &str) -> Result<(), GraphError> {
        let invalid = |what: String| Err(GraphError::Invalid { after: after.into(), what });
        let mut updated = BTreeSet::new();
        let mut made: Vec<bool> = self.values.iter().map(|value| !matches!(value.source, Source::Node(_))).collect();
        for (index, node) in self.nodes.iter().enumerate() {
            let at = format!("{} in {} (node {index})", node.op.name(), node.module);
            for &input in &node.inputs {
                if !made.get(input.0).copied().unwrap_or(false) {
                    return invalid(format!("{at} reads a value before it is made"));
                }
                if updated.contains(&input) {
                    return invalid(format!("{at} touches {} after its update", self.get(input).name));
                }
            }
            for position in node.op.updates() {
                let target = node.inputs[position];
                if !matches!(self.get(target).source, Source::Parameter | Source::State(_)) {
                    return invalid(format!("{at} updates {}, which is not kept", self.get(target).name));
                }
                if self.get(target).source == Source::Parameter {
                    updated.insert(target);
                }
            }
            let types = self.output_types(&node.op, &node.inputs, &node.module)?;
            if types.len() != node.outputs.len() {
                return invalid(format!("{at} has {} outputs, its op makes {}", node.outputs.len(), types.len()));
            }
            for (&output, ty) in node.outputs.iter().zip(&types) {
                if self.get(output).source != Source::Node(NodeId(index)) {
                    return invalid(format!("{} does not name {at} as its maker", self.get(output).name));
                }
                if self.ty(output) != ty {
                    return invalid(format!("{} is {}, {at} makes {ty}", self.get(output).name, self.ty(output)));
                }
                made[output.0] = true;
            }
        }
        match self.outputs.iter().find(|(_, value)| !made.get(value.0).copied().unwrap_or(false)) {
            Some((name, _)) => invalid(format!("output {name} is never made")),
            None => Ok(()),
        }
    }

    fn value(&mut self, name: Arc<str>, ty: TensorType, source: Source) -> ValueId {
        self.values.push(Value { name, ty, source, part: Part::default() });
        ValueId(self.values.len() - 1)
    }

    fn output_types(&self, op: &Op, inputs: &[ValueId], module: &str) -> Result<Vec<TensorType>, GraphError> {
        let types = self.types(inputs);
        op.outputs(&types).map_err(|error| GraphError::Shape {
            op: op.name(),
            module: module.into(),
            inputs: types.iter().map(TensorType::to_string).collect::<Vec<_>>().join(", "),
            error,
        })
    }
}
