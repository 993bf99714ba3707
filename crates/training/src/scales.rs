//! Scales of the tensors that a step rounds to eight bits: saved in a checkpoint, and checked when a run ends.

use crate::trainer::{TRAINING, Trainer};
use headroom_graph::fp8::{OUT_OF_RANGE, SATURATED, SLOT};
use headroom_graph::passes::fp8::SCALE;
use headroom_graph::{Source, ValueId};
use std::collections::BTreeMap;

/// Problems found while rounding values to eight bits.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rounding {
    /// Tensors that have a scale.
    pub tensors: usize,
    /// Values clamped to the largest representable number, and the tensor with most of them.
    pub saturated: f64,
    pub most_saturated: Option<String>,
    /// Steps at which a tensor's largest value was not finite, or its scale was out of range.
    pub out_of_range: f64,
}

impl Trainer {
    /// Every scale by name; empty if nothing is rounded to eight bits.
    pub fn scales(&mut self) -> BTreeMap<String, Vec<f32>> {
        let found = slots(self);
        let read = |(name, value): (String, ValueId)| {
            let mut slot = vec![0.0; SLOT];
            self.device.read_f32(TRAINING, value, 0, &mut slot);
            (name, slot)
        };
        found.into_iter().map(read).collect()
    }

    /// Restores these scales. A tensor without one derives its scale from its own values.
    pub(crate) fn resume_scales(&mut self, scales: &BTreeMap<String, Vec<f32>>) {
        for (name, value) in slots(self) {
            if let Some(slot) = scales.get(&name).filter(|slot| slot.len() == SLOT) {
                self.device.write_f32(TRAINING, value, 0, slot);
            }
        }
    }

    /// `None` if nothing is rounded to eight bits, or nothing was computed.
    pub fn rounding(&mut self) -> Option<Rounding> {
        let scales = if self.device.computes() { self.scales() } else { BTreeMap::new() };
        if scales.is_empty() {
            return None;
        }
        let sum = |which: usize| scales.values().map(|slot| f64::from(slot[which])).sum();
        let most = scales.iter().max_by(|a, b| a.1[SATURATED].total_cmp(&b.1[SATURATED]));
        let most_saturated = most.filter(|(_, slot)| slot[SATURATED] > 0.0);
        let short = |name: &String| name.trim_start_matches(SCALE).trim_start_matches('.').to_string();
        Some(Rounding {
            tensors: scales.len(),
            saturated: sum(SATURATED),
            most_saturated: most_saturated.map(|(name, _)| short(name)),
            out_of_range: sum(OUT_OF_RANGE),
        })
    }
}

fn slots(trainer: &Trainer) -> Vec<(String, ValueId)> {
    let graph = trainer.graph();
    let is_slot = |id: &ValueId| {
        let value = graph.get(*id);
        matches!(value.source, Source::State(_)) && value.name.split('.').next() == Some(SCALE)
    };
    graph.value_ids().filter(is_slot).map(|id| (graph.get(id).name.to_string(), id)).collect()
}
