//! Makes the linear layers of the blocks multiply in eight bits: their inputs are quantized first, each tensor with its
//! own scale.
//!
//! A layer's three products read six matrices: for the output, the input and the weight, both plain; for the input's
//! gradient, the gradient, plain, and the weight, transposed; for the weight's gradient, gradient and input, both
//! transposed. An input and a gradient are quantized once, both ways; a weight where it is read, so that no copy of it
//! is kept. Head, embedding, norms and attention stay as they are.

use crate::fp8::{Format, SLOT};
use crate::graph::{Category, Graph, GraphError, Node, NodeId, Phase, Source, ValueId};
use crate::op::Op;
use crate::ops::fp8_product::{Fp8Product, Part, Widths};
use crate::ops::matmul::Form;
use crate::ops::quantize::{Quantize, QuantizedCopies, QuantizedValues, Scaling, UpdateScales};
use crate::ops::rms_scales::RmsScales;
use crate::pass::Copy;
use std::collections::{BTreeMap, BTreeSet};

/// Largest relative difference of the loss, and of gradients in norm, from the same graph in single precision.
/// Gradients have two mantissa bits and are rounded again in every layer: the worst measured on `small` was 0.21.
pub const LOSS_TOLERANCE: f64 = 1e-2;
pub const GRADIENT_TOLERANCE: f64 = 0.3;

/// Sizes must be multiples of this for the tensor cores.
const MULTIPLE: usize = 16;

/// Headroom, in powers of two, above the largest value of earlier steps, for the next step to grow into.
const MARGIN: i32 = 1;

/// Rewrites a graph. A training step keeps its scales (`Delayed`); an evaluation must leave no trace and keeps none.
pub fn rewrite(graph: &Graph, scaling: Scaling) -> Result<Graph, GraphError> {
    let rotated = rotated_modules(graph);
    let rounds = |node: &Node| (!rotated.contains(&*node.module)).then(|| Layer::of(graph, node)).flatten();
    let layers: Vec<Option<Layer>> = graph.nodes().iter().map(rounds).collect();
    let mut ways: BTreeMap<Vec<ValueId>, QuantizedCopies> = BTreeMap::new();
    for group in layers.iter().flatten().flat_map(Layer::groups) {
        let both = ways.get(&group.values).map_or(group.ways, |&before| joined(before, group.ways));
        ways.insert(group.values, both);
    }
    let (makers, inside) = fused_makers(graph, &layers, &ways);
    let mut work = Work {
        copy: Copy::new(graph),
        graph,
        scaling,
        ways,
        makers,
        scales: BTreeMap::new(),
        slots: BTreeMap::new(),
        made: BTreeMap::new(),
        order: vec![],
    };
    for (index, (node, layer)) in graph.nodes().iter().zip(&layers).enumerate() {
        match layer {
            Some(layer) => work.layer(node, layer)?,
            None if inside.contains(&NodeId(index)) => work.maker(node)?,
            None => work.copy.node(node)?,
        }
    }
    work.finish()
}

/// Modules whose weights are `[in, out]`: their products have the forms that other layers' gradients have.
fn rotated_modules(graph: &Graph) -> BTreeSet<&str> {
    let is_turned = |node: &&Node| {
        let weight = node.inputs.get(1).is_some_and(|id| graph.get(*id).source == Source::Parameter);
        node.phase == Phase::Forward && matches!(node.op, Op::MatMul(op) if op.form == Form::Nn) && weight
    };
    graph.nodes().iter().filter(is_turned).map(|node| &*node.module).collect()
}

/// One product of a linear layer, or of several on one input.
struct Layer {
    part: Part,
    /// Left and right operand.
    operands: [Group; 2],
    /// Index of the operand that holds weights, if either does.
    weights: Option<usize>,
    widths: Widths,
}

/// Values that are quantized together, with one scale.
#[derive(Clone)]
struct Group {
    values: Vec<ValueId>,
    ways: QuantizedCopies,
    of: QuantizedValues,
    format: Format,
    role: &'static str,
}

impl Layer {
    fn of(graph: &Graph, node: &Node) -> Option<Layer> {
        if node.block().is_none() || node.phase == Phase::Optimizer {
            return None;
        }
        let is_weight = |id: &ValueId| graph.get(*id).source == Source::Parameter;
        let group = |values: &[ValueId], ways: QuantizedCopies, role: &'static str| {
            let (of, format) = match role {
                WEIGHT => (QuantizedValues::Rows, Format::E4m3),
                INPUT => (QuantizedValues::Columns, Format::E4m3),
                _ => (QuantizedValues::Columns, Format::E5m2),
            };
            Group { values: values.to_vec(), ways, of, format, role }
        };
        let (part, operands, weights) = match (node.op, &node.inputs[..]) {
            (Op::MatMul(op), [x, w]) if op.form == Form::Nt && is_weight(w) => (
                Part::Output,
                [group(&[*x], QuantizedCopies::Plain, INPUT), group(&[*w], QuantizedCopies::Plain, WEIGHT)],
                Some(1),
            ),
            (Op::Linears(_), [x, weights @ ..]) => (
                Part::Output,
                [group(&[*x], QuantizedCopies::Plain, INPUT), group(weights, QuantizedCopies::Plain, WEIGHT)],
                Some(1),
            ),
            (Op::MatMul(op), [dy, w]) if op.form == Form::Nn && is_weight(w) => {
                let weights = group(&[*w], QuantizedCopies::Transposed, WEIGHT);
                (Part::GradInput, [group(&[*dy], QuantizedCopies::Plain, GRADIENT), weights], Some(1))
            }
            (Op::LinearsGradInput(_), pairs) => {
                let every = |first: usize| pairs.iter().skip(first).step_by(2).copied().collect::<Vec<_>>();
                let weights = group(&every(1), QuantizedCopies::Transposed, WEIGHT);
                (Part::GradInput, [group(&every(0), QuantizedCopies::Plain, GRADIENT), weights], Some(1))
            }
            (Op::MatMul(op), [dy, x]) if op.form == Form::Tn && node.phase == Phase::Backward => {
                let input = group(&[*x], QuantizedCopies::Transposed, INPUT);
                (Part::GradWeights, [group(&[*dy], QuantizedCopies::Transposed, GRADIENT), input], None)
            }
            (Op::LinearsGradWeights(_), [x, gradients @ ..]) => {
                let input = group(&[*x], QuantizedCopies::Transposed, INPUT);
                (Part::GradWeights, [group(gradients, QuantizedCopies::Transposed, GRADIENT), input], None)
            }
            _ => return None,
        };
        let sizes = |id: &ValueId| graph.ty(*id).sizes();
        let fits = |id: &ValueId| sizes(id).len() == 2 && sizes(id).iter().all(|size| size.is_multiple_of(MULTIPLE));
        if !node.inputs.iter().chain(&node.outputs).all(fits) {
            return None;
        }
        let axis = if part == Part::GradWeights { 0 } else { 1 };
        let widths: Vec<usize> = node.outputs.iter().map(|output| sizes(output)[axis]).collect();
        Some(Layer { part, operands, weights, widths: Widths::new(&widths)? })
    }

    /// Groups that are quantized once for all their readers.
    fn groups(&self) -> Vec<Group> {
        let kept = |(index, group): (usize, &Group)| (self.weights != Some(index)).then(|| group.clone());
        self.operands.iter().enumerate().filter_map(kept).collect()
    }
}

const WEIGHT: &str = "weight";
const INPUT: &str = "input";
const GRADIENT: &str = "gradient";

fn joined(one: QuantizedCopies, other: QuantizedCopies) -> QuantizedCopies {
    if one == other { one } else { QuantizedCopies::Both }
}

/// The node that produces a whole group which nothing else reads, so the group itself need not reach memory. A norm
/// still writes its sum and the scales of its rows.
fn fused_makers(
    graph: &Graph,
    layers: &[Option<Layer>],
    ways: &BTreeMap<Vec<ValueId>, QuantizedCopies>,
) -> (BTreeMap<Vec<ValueId>, NodeId>, BTreeSet<NodeId>) {
    let mut makers = BTreeMap::new();
    for values in ways.keys() {
        let Some((maker, node)) = graph.maker(values[0]) else { continue };
        let own = match node.op {
            Op::SwiGlu(_) | Op::SwiGluGrad(_) | Op::RmsNorm(_) => &node.outputs[..],
            Op::AddRmsNorm(_) => &node.outputs[1..],
            _ => continue,
        };
        if own != values {
            continue;
        }
        let in_group = |value: ValueId| {
            let of = |group: &Group| group.values == *values && group.values.contains(&value);
            layers.iter().flatten().flat_map(Layer::groups).filter(of).count()
        };
        if values.iter().all(|&value| graph.uses(value) == in_group(value)) {
            makers.insert(values.clone(), maker);
        }
    }
    let inside = makers.values().copied().collect();
    (makers, inside)
}

/// A quantized group: its copies and its scale slot, in the new graph.
#[derive(Clone, Copy)]
struct Rounded {
    plain: Option<ValueId>,
    transposed: Option<ValueId>,
    slot: ValueId,
}

struct Work<'a> {
    copy: Copy<'a>,
    graph: &'a Graph,
    scaling: Scaling,
    ways: BTreeMap<Vec<ValueId>, QuantizedCopies>,
    makers: BTreeMap<Vec<ValueId>, NodeId>,
    /// Keyed by a norm's former output: the rows that it read, in the new graph, and their scales.
    scales: BTreeMap<ValueId, [ValueId; 2]>,
    /// Keyed by name.
    slots: BTreeMap<String, ValueId>,
    made: BTreeMap<Vec<ValueId>, Rounded>,
    /// Slots in order of first use, with the format that each one scales.
    order: Vec<(ValueId, Format)>,
}

impl Work<'_> {
    fn layer(&mut self, node: &Node, layer: &Layer) -> Result<(), GraphError> {
        let mut operands = vec![];
        let mut slots = vec![];
        for (index, group) in layer.operands.iter().enumerate() {
            let rounded = match (layer.weights == Some(index), self.made.get(&group.values)) {
                (false, Some(&made)) => made,
                (false, None) => {
                    let made = self.rounded(node, group, self.ways[&group.values])?;
                    self.made.insert(group.values.clone(), made);
                    made
                }
                (true, _) => self.rounded(node, group, group.ways)?,
            };
            operands.extend(if group.ways == QuantizedCopies::Transposed { rounded.transposed } else { rounded.plain });
            slots.push(rounded.slot);
        }
        self.copy.enter(node);
        let op = Fp8Product { part: layer.part, widths: layer.widths };
        let made = self.copy.add_new(op.into(), &[operands, slots].concat())?;
        node.outputs.iter().zip(made).for_each(|(&old, new)| self.copy.redirect(old, new));
        Ok(())
    }

    /// Adds the remaining part of a node whose result is computed during quantization.
    fn maker(&mut self, node: &Node) -> Result<(), GraphError> {
        let (eps, rows) = match node.op {
            Op::RmsNorm(op) => (op.eps, 1),
            Op::AddRmsNorm(op) => (op.eps, 2),
            _ => return Ok(()),
        };
        let inputs: Vec<ValueId> = node.inputs[..rows].iter().map(|&value| self.copy.moved(value)).collect();
        self.copy.enter(node);
        let made = self.copy.add_new(RmsScales { eps }.into(), &inputs)?;
        let (normed, read) = match (&node.outputs[..], &made[..]) {
            (&[sum, normed], &[new, scales]) => {
                self.copy.redirect(sum, new);
                (normed, [new, scales])
            }
            (&[normed, ..], made) => (normed, [inputs[0], made[0]]),
            _ => unreachable!("a norm makes one value or two"),
        };
        self.scales.insert(normed, read);
        Ok(())
    }

    fn rounded(&mut self, node: &Node, group: &Group, ways: QuantizedCopies) -> Result<Rounded, GraphError> {
        let moved = |values: &[ValueId]| values.iter().map(|&value| self.copy.moved(value)).collect::<Vec<_>>();
        let (of, sources) = match self.makers.get(&group.values).map(|&maker| self.graph.node(maker)) {
            Some(maker) => match maker.op {
                Op::SwiGlu(_) => (QuantizedValues::SwiGlu, moved(&maker.inputs)),
                Op::SwiGluGrad(_) => (QuantizedValues::SwiGluGrad, moved(&maker.inputs)),
                _ => {
                    let [rows, scales] = self.scales[&group.values[0]];
                    let weight = maker.inputs[maker.inputs.len() - 1];
                    (QuantizedValues::Norm, vec![rows, self.copy.moved(weight), scales])
                }
            },
            None => (group.of, moved(&group.values)),
        };
        let slot = match self.scaling {
            Scaling::Delayed => Some(self.slot(node, group)),
            Scaling::Current => None,
        };
        let op = Quantize { format: group.format, of, ways, scaling: self.scaling, margin: MARGIN };
        self.copy.enter(node);
        let inputs: Vec<ValueId> = slot.into_iter().chain(sources).collect();
        let mut made = self.copy.add_new(op.into(), &inputs)?.into_iter();
        let plain = if ways == QuantizedCopies::Transposed { None } else { made.next() };
        let transposed = if ways == QuantizedCopies::Plain { None } else { made.next() };
        let slot = slot.or_else(|| made.next()).ok_or_else(|| GraphError::Invalid {
            after: "fp8".into(),
            what: format!("{} has no scale", node.module),
        })?;
        Ok(Rounded { plain, transposed, slot })
    }

    fn slot(&mut self, node: &Node, group: &Group) -> ValueId {
        let name = format!("{SCALE}.{}.{}", node.module, group.role);
        if let Some(&slot) = self.slots.get(&name) {
            return slot;
        }
        let ty = crate::tensor::TensorType::f32(&[SLOT]);
        let slot = self.copy.state(&name, ty, Category::OptimizerState);
        self.slots.insert(name, slot);
        self.order.push((slot, group.format));
        slot
    }

    fn finish(mut self) -> Result<Graph, GraphError> {
        for format in [Format::E4m3, Format::E5m2] {
            let of_format = self.order.iter().filter(|(_, own)| *own == format).map(|(slot, _)| *slot);
            let slots: Vec<ValueId> = of_format.collect();
            if !slots.is_empty() {
                self.copy.enter_optimizer("scales");
                let op = UpdateScales { slots: slots.len(), format, margin: MARGIN };
                self.copy.add_new(op.into(), &slots)?;
            }
        }
        self.copy.finish()
    }
}

/// Prefix of slot names.
pub const SCALE: &str = "scale";
