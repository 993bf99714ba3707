//! The nodes that steps chose to update, read from the device's log from time to time.

use crate::optimizer::LOG_ROWS;
use crate::tree::Tree;
use headroom_record::attribution::{AttributionRecord, StepChoice, worked_on};
use std::ops::{Range, RangeInclusive};

/// Most steps kept individually; beyond that, every second one is dropped and the stride doubles.
const MOST_STEPS: usize = 2048;

/// Choices of a run's steps.
#[derive(Clone, Debug)]
pub struct Choices {
    names: Vec<String>,
    parameters: Vec<u64>,
    /// Indices of each node's parameters in a row of the log.
    members: Vec<Range<usize>>,
    /// The last step that was read.
    read_to: u64,
    steps: u64,
    updates: Vec<u64>,
    updated_parameters: u64,
    kept: Vec<StepChoice>,
    /// One step in this many is kept.
    stride: u64,
    /// One row of the log: shares, then squared norms.
    row: Vec<f32>,
}

impl Choices {
    pub fn of(tree: &Tree) -> Choices {
        let units = tree.units();
        Choices {
            names: units.iter().map(|unit| unit.name.clone()).collect(),
            parameters: units.iter().map(|unit| unit.parameters).collect(),
            members: units.iter().map(|unit| unit.members.clone()).collect(),
            read_to: 0,
            steps: 0,
            updates: vec![0; units.len()],
            updated_parameters: 0,
            kept: vec![],
            stride: 1,
            row: vec![0.0; 2 * tree.leaves.len()],
        }
    }

    /// Steps read so far.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Total number of parameters updated over all steps; a parameter updated twice counts twice.
    pub fn updated_parameters(&self) -> u64 {
        self.updated_parameters
    }

    /// The steps kept individually, newest last.
    pub fn kept(&self) -> &[StepChoice] {
        &self.kept
    }

    /// The node that received most of the last `steps` kept steps, and its share.
    pub fn working_on(&self, steps: u64) -> Option<String> {
        let steps = usize::try_from(steps).unwrap_or(usize::MAX);
        let first = self.kept.len().saturating_sub(steps);
        let most = worked_on(&self.names, &self.kept[first..]).into_iter().next()?;
        Some(format!("{} {:.0}%", most.node, 100.0 * most.share))
    }

    /// The attribution record of all steps so far. `moved` is in parameter order.
    pub fn attribution_record(&self, update: String, seed: u64, moved: &[f64]) -> AttributionRecord {
        AttributionRecord {
            update,
            seed,
            nodes: self.names.clone(),
            parameters: self.parameters.clone(),
            total_steps: self.steps,
            updates: self.updates.clone(),
            updated_parameters: self.updated_parameters,
            ..AttributionRecord::default()
        }
        .with_choices(&self.kept, &self.together(moved))
    }

    pub(crate) fn start_after(&mut self, step: u64) {
        self.read_to = step;
    }

    /// Steps up to `step` that have not been read and that the device still holds.
    pub(crate) fn unread(&self, step: u64) -> RangeInclusive<u64> {
        self.read_to.max(step.saturating_sub(LOG_ROWS as u64)) + 1..=step
    }

    /// Buffer for one row of the log.
    pub(crate) fn row(&mut self) -> &mut [f32] {
        &mut self.row
    }

    /// Adds the row that was read into the buffer.
    pub(crate) fn add(&mut self, step: u64) {
        let (shares, squares) = self.row.split_at(self.row.len() / 2);
        // All parameters of a node have the same share.
        let shares: Vec<f32> = self.members.iter().map(|members| shares[members.start]).collect();
        self.read_to = step;
        self.steps += 1;
        for ((share, updates), parameters) in shares.iter().zip(&mut self.updates).zip(&self.parameters) {
            if *share > 0.0 {
                *updates += 1;
                self.updated_parameters += parameters;
            }
        }
        if (self.steps - 1).is_multiple_of(self.stride) {
            let norm = |members: &Range<usize>| squares[members.clone()].iter().sum::<f32>().sqrt();
            let norms = self.members.iter().map(norm).collect();
            self.kept.push(StepChoice { step, shares, norms });
        }
        if self.kept.len() > MOST_STEPS {
            let mut place = 0;
            self.kept.retain(|_| {
                place += 1;
                place % 2 == 1
            });
            self.stride *= 2;
        }
    }

    /// Combines the norms of parameters into the norms of their nodes.
    fn together(&self, norms: &[f64]) -> Vec<f64> {
        let own = |members: &Range<usize>| norms.get(members.clone());
        let norm = |own: &[f64]| own.iter().map(|norm| norm * norm).sum::<f64>().sqrt();
        self.members.iter().filter_map(own).map(norm).collect()
    }
}
