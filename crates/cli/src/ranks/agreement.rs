//! Everything that must be the same on all ranks: flags, data, checkpoint, program, weights. Compared item by item, so
//! that the difference can be named.

use crate::train::arguments::Arguments;
use crate::train::settings::{Settings, Sources};
use anyhow::Context;
use headroom_engine::cpu::isa::Isa;
use headroom_graph::Graph;
use headroom_training::checkpoint::Content;
use headroom_training::data::{Batch, Source};
use headroom_training::trainer::Trainer;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};

/// Names and values, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lines(Vec<(String, String)>);

/// Flags that may differ between machines without changing the result.
const MAY_DIFFER: [&str; 2] = ["threads", "memory-limit"];

impl Lines {
    pub fn of(arguments: &Arguments, settings: &Settings, sources: &Sources) -> anyhow::Result<Lines> {
        let mut lines = vec![
            ("the command".to_string(), arguments.given.command.clone()),
            ("the version of headroom".into(), env!("CARGO_PKG_VERSION").into()),
            ("the program's file".into(), of_program()?),
        ];
        let differs = |name: &String| !MAY_DIFFER.contains(&name.as_str());
        for (name, value) in arguments.given.flags.iter().filter(|(name, _)| differs(name)) {
            let value = value.clone().unwrap_or("given".into());
            // Ranks have GPUs with different numbers.
            let value = if name == "device" && value.starts_with("cuda") { "cuda".into() } else { value };
            lines.push((format!("--{name}"), value));
        }
        lines.push(("the data".into(), settings.data_description.clone()));
        lines.push(("the batches".into(), of_batches(&sources.training)?));
        if let Some(source) = &sources.evaluation {
            lines.push(("the batches of evaluations".into(), of_batches(source)?));
        }
        // Other instructions round differently, and weights that every rank updates on its own would drift apart.
        lines.push(("the level of instructions".into(), Isa::detect().to_string()));
        lines.push(("the step to start at".into(), settings.first_step.to_string()));
        lines.push(("the seed".into(), settings.seed.to_string()));
        Ok(Lines(lines))
    }

    pub fn to_bytes(&self) -> Vec<u8> {
        let line = |(name, value): &(String, String)| format!("{name}\t{}\n", value.replace(['\n', '\t'], " "));
        self.0.iter().map(line).collect::<String>().into_bytes()
    }

    pub fn from_bytes(words: &[u8]) -> Lines {
        let text = String::from_utf8_lossy(words);
        let pair = |line: &str| line.split_once('\t').map(|(name, value)| (name.into(), value.into()));
        Lines(text.lines().filter_map(pair).collect())
    }

    fn get(&self, name: &str) -> &str {
        self.0.iter().find(|(other, _)| other == name).map_or("not given", |(_, value)| value)
    }
}

/// The first rank that differs from rank 0, and how.
pub fn first_difference(all: &[Lines]) -> Option<String> {
    let first = all.first()?;
    let (rank, other) = all.iter().enumerate().find(|(_, lines)| *lines != first)?;
    let names = first.0.iter().chain(&other.0).map(|(name, _)| name);
    let mut found: Vec<&String> = names.filter(|name| first.get(name) != other.get(name)).collect();
    found.dedup();
    let each: Vec<String> = found
        .iter()
        .take(3)
        .map(|name| format!("{name} is {} there, and {} on rank 0", other.get(name), first.get(name)))
        .collect();
    let what = if each.is_empty() { "its flags are in a different order".into() } else { each.join("; ") };
    Some(format!("rank {rank} was not started as rank 0 was: {what}"))
}

/// A hash that distinguishes different bytes with high probability.
struct Digest(u64);

impl Digest {
    fn new() -> Digest {
        Digest(0xcbf2_9ce4_8422_2325)
    }

    fn add(&mut self, word: u64) {
        self.0 = (self.0 ^ word).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(23);
    }

    fn bytes(&mut self, bytes: &[u8]) {
        for piece in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..piece.len()].copy_from_slice(piece);
            self.add(u64::from_le_bytes(word));
        }
    }
}

/// The number of samples of the program's file, and the bytes of each: hashing a whole large file would take seconds.
const PARTS: u64 = 64;
const PART_BYTES: usize = 1 << 14;

fn of_program() -> anyhow::Result<String> {
    let path = std::env::current_exe().context("cannot find this program's own file")?;
    let reading = || format!("cannot read this program's own file {}", path.display());
    let mut file = File::open(&path).with_context(reading)?;
    let length = file.metadata().with_context(reading)?.len();
    let mut digest = Digest::new();
    let mut part = vec![0; PART_BYTES];
    for number in 0..PARTS {
        file.seek(SeekFrom::Start(length / PARTS * number)).with_context(reading)?;
        let read = file.read(&mut part).with_context(reading)?;
        digest.bytes(&part[..read]);
    }
    Ok(format!("{length} bytes, digest {:016x}", digest.0))
}

/// The number of batches compared, and the distance between two: files that differ usually differ in one of them.
const BATCHES: u64 = 24;
const APART: u64 = 7919;

fn of_batches(source: &Source) -> anyhow::Result<String> {
    let mut batch = Batch::new(source.shape());
    let mut digest = Digest::new();
    for number in 0..BATCHES {
        source.fill(number * APART, &mut batch)?;
        batch.input_ids.iter().chain(&batch.targets).for_each(|id| digest.add(*id as u64));
    }
    Ok(format!("some of digest {:016x}", digest.0))
}

/// A digest of the collectives in a step: which ones, of which tensors, in which order.
pub fn of_plan(graph: &Graph) -> u64 {
    let mut digest = Digest::new();
    for node in graph.nodes().iter().filter(|node| node.op.is_collective()) {
        let types: Vec<String> = node.inputs.iter().map(|input| graph.ty(*input).to_string()).collect();
        digest.bytes(format!("{:?} {:?} {}\n", node.op, node.phase, types.join(" ")).as_bytes());
    }
    digest.0
}

/// A digest of all weights that a run starts from.
pub fn of_weights(trainer: &mut Trainer) -> u64 {
    let mut digest = Digest::new();
    for (name, _) in trainer.parameters() {
        let read: Result<(), std::convert::Infallible> = trainer.read(&name, Content::Weight, |piece| {
            piece.iter().for_each(|x| digest.add(x.to_bits().into()));
            Ok(())
        });
        let Ok(()) = read;
    }
    digest.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(pairs: &[(&str, &str)]) -> Lines {
        Lines(pairs.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect())
    }

    #[test]
    fn a_difference_is_told_with_both_values() {
        let rank_0 = lines(&[("--seed", "1"), ("--size", "nano"), ("--json", "given")]);
        let rank_1 = lines(&[("--seed", "2"), ("--size", "nano")]);
        assert_eq!(first_difference(&[rank_0.clone(), rank_0.clone()]), None);
        let said = first_difference(&[rank_0.clone(), rank_0.clone(), rank_1]).unwrap();
        assert!(said.starts_with("rank 2 was not started as rank 0 was: --seed is 2 there, and 1 on rank 0"), "{said}");
        assert!(said.contains("--json is not given there, and given on rank 0"), "{said}");
    }

    #[test]
    fn other_collectives_are_another_plan() {
        let graph = |ranks: usize, op: &str| {
            let node = format!("%1: f32[4] = {op}{{ranks={ranks}, mean=false, kept=0, later=false}}(x) @ backward a\n");
            of_plan(&format!("input x: f32[4]\n{node}").parse().unwrap())
        };
        assert_eq!(graph(2, "all_reduce"), graph(2, "all_reduce"));
        assert_ne!(graph(2, "all_reduce"), graph(3, "all_reduce"));
    }

    #[test]
    fn lines_travel_as_bytes() {
        let sent = lines(&[("--data", "a\tb\nc"), ("x", "")]);
        assert_eq!(Lines::from_bytes(&sent.to_bytes()), lines(&[("--data", "a b c"), ("x", "")]));
    }
}
