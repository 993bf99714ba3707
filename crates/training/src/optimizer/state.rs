//! Tensors that optimizers keep per parameter, by name: a checkpoint saves and loads whatever a parameter has.

use headroom_graph::{Graph, ValueId};

/// A kind of tensor that an optimizer keeps, with the shape of the parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StateTensor {
    /// Prefix of the parameter's name in the graph.
    pub graph: &'static str,
    /// Prefix of the parameter's name in a checkpoint: PyTorch's name.
    pub file: &'static str,
    /// Name for messages.
    pub plural: &'static str,
}

/// AdamW's running mean of gradients.
pub const FIRST_MOMENT: StateTensor = StateTensor { graph: "first_moment", file: "exp_avg", plural: "first moments" };
/// AdamW's running mean of squared gradients.
pub const SECOND_MOMENT: StateTensor =
    StateTensor { graph: "second_moment", file: "exp_avg_sq", plural: "second moments" };
/// The momentum that SGD and Muon keep.
pub const MOMENTUM: StateTensor =
    StateTensor { graph: "momentum", file: "momentum_buffer", plural: "momentum buffers" };

impl StateTensor {
    /// All kinds, in the order of a checkpoint's file.
    pub const ALL: [StateTensor; 3] = [FIRST_MOMENT, SECOND_MOMENT, MOMENTUM];

    /// The value's name in the graph.
    pub fn of(self, parameter: &str) -> String {
        format!("{}.{parameter}", self.graph)
    }
}

/// One parameter and its optimizer state.
#[derive(Clone, Debug)]
pub struct Trained {
    pub parameter: ValueId,
    pub states: Vec<(StateTensor, ValueId)>,
}

impl Trained {
    /// Looks up the states by name.
    pub fn find(graph: &Graph, parameter: ValueId) -> Trained {
        let name = &graph.get(parameter).name;
        let own = |kind: StateTensor| graph.named(&kind.of(name)).map(|value| (kind, value));
        Trained { parameter, states: StateTensor::ALL.into_iter().filter_map(own).collect() }
    }

    /// The kinds of tensors that are kept.
    pub fn kinds(&self) -> Vec<StateTensor> {
        self.states.iter().map(|(kind, _)| *kind).collect()
    }

    pub fn state(&self, wanted: StateTensor) -> Option<ValueId> {
        self.states.iter().find(|(kind, _)| *kind == wanted).map(|(_, value)| *value)
    }
}
