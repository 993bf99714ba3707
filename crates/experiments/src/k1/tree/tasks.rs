//! The tree's training data: two Markov sources, and two texts that ship with this crate.

use super::TreeDesign;
use crate::bench::ExperimentError;
use headroom_record::atomic::{FileError, write_atomically};
use headroom_training::data::{BatchShape, DataError, DataSpec, Part, Source, SourceSettings, Split};
use headroom_training::run::EvaluationSet;
use std::path::{Path, PathBuf};

/// Two training sources, and the data that losses are measured on.
pub struct Task {
    pub name: &'static str,
    pub training: [Source; 2],
    pub held_out: [EvaluationSet; 2],
}

/// Prose and code, as files: the project's design decisions, and some of its own source.
#[derive(Clone, Debug)]
pub struct Texts {
    paths: [PathBuf; 2],
}

const TEXTS: [(&str, &str); 2] =
    [("prose.txt", include_str!("../texts/prose.txt")), ("code.txt", include_str!("../texts/code.txt"))];

/// Share at the end of each text that no step sees.
const HELD_OUT: f64 = 0.2;

/// Texts are read as bytes.
pub const VOCABULARY: usize = 256;

impl Texts {
    /// Writes the texts into a folder, where they can be inspected.
    pub fn write(folder: &Path) -> Result<Texts, FileError> {
        let paths = TEXTS.map(|(name, _)| folder.join(name));
        for (path, (_, text)) in paths.iter().zip(TEXTS) {
            write_atomically(path, text.as_bytes())?;
        }
        Ok(Texts { paths })
    }
}

impl Task {
    pub const NAMES: [&str; 2] = ["markov", "texts"];

    pub fn named(name: &str, design: &TreeDesign, texts: &Texts, seed: u64) -> Result<Task, ExperimentError> {
        if name == Task::NAMES[0] { Task::markov(design, seed) } else { Task::texts(design, texts, seed) }
    }

    /// Two separate chains for each seed.
    pub fn markov(design: &TreeDesign, seed: u64) -> Result<Task, ExperimentError> {
        let open = |number: u64, split: Split| {
            let chain = seed.wrapping_mul(1_000_003).wrapping_add(number);
            Source::open(&DataSpec::Markov, &SourceSettings { split, ..settings(design.tree.shape, chain) })
        };
        let training = [open(0, Split::Train)?, open(1, Split::Train)?];
        let held_out = [open(0, Split::Evaluation)?, open(1, Split::Evaluation)?];
        Task::of(Task::NAMES[0], training, held_out, design)
    }

    /// Windows of both texts in an order that depends on the seed.
    pub fn texts(design: &TreeDesign, texts: &Texts, seed: u64) -> Result<Task, ExperimentError> {
        let open = |number: usize, part: Part| -> Result<Source, DataError> {
            let spec = DataSpec::Text { path: texts.paths[number].clone() };
            Source::open(&spec, &SourceSettings { part, ..settings(design.tree.shape, seed) })
        };
        let training = [open(0, Part::AllButLast(HELD_OUT))?, open(1, Part::AllButLast(HELD_OUT))?];
        let held_out = [open(0, Part::Last(HELD_OUT))?, open(1, Part::Last(HELD_OUT))?];
        Task::of(Task::NAMES[1], training, held_out, design)
    }

    fn of(
        name: &'static str,
        training: [Source; 2],
        held_out: [Source; 2],
        design: &TreeDesign,
    ) -> Result<Task, ExperimentError> {
        let [first, second] = held_out;
        let read = |source: Source| EvaluationSet::read(&source, design.eval_batches);
        Ok(Task { name, training, held_out: [read(first)?, read(second)?] })
    }

    /// Mean entropy of the sources, if known.
    pub fn floor(&self) -> Option<f64> {
        let [first, second] = self.training.each_ref().map(Source::floor_nats);
        Some(f64::midpoint(first?, second?))
    }
}

fn settings(shape: BatchShape, seed: u64) -> SourceSettings {
    SourceSettings::new(shape, VOCABULARY, seed)
}
