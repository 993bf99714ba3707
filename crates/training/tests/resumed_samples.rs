//! The sequence of samples is the same however a run is cut: other batches, accumulation, ranks, epochs, held-out shares.

use std::collections::BTreeSet;

use headroom_training::data::{
    Batch, BatchShape, CorpusSettings, DataSpec, Part, Prefetcher, Share, Source, SourceSettings,
};
use tempfile::TempDir;

const SEQ_LEN: usize = 5;
/// The share that is held out when a run begins.
const BEGAN: f64 = 0.2;
const HELD_OUT: [f64; 4] = [BEGAN, 0.5, 0.1, 0.0];

/// Settings of a run, or of a part of it between two resumes.
#[derive(Clone, Copy, Debug)]
struct Leg {
    batch_size: usize,
    accumulation: usize,
    ranks: usize,
    held_out: f64,
}

impl Leg {
    const PLAIN: Leg = Leg { batch_size: 1, accumulation: 1, ranks: 1, held_out: BEGAN };

    fn all(shares: &[f64]) -> Vec<Leg> {
        let mut all = vec![];
        for &held_out in shares {
            for (batch_size, accumulation) in [(1, 1), (2, 1), (1, 2), (3, 2)] {
                all.extend([1, 2, 3].map(|ranks| Leg { batch_size, accumulation, ranks, held_out }));
            }
        }
        all
    }

    fn samples_per_step(self) -> usize {
        self.batch_size * self.accumulation * self.ranks
    }
}

/// A row's tokens and the one after them.
type Sample = Vec<i32>;

fn rows(batch: &Batch) -> impl Iterator<Item = Sample> {
    let rows = batch.input_ids.chunks(SEQ_LEN).zip(batch.targets.chunks(SEQ_LEN));
    rows.map(|(ids, targets)| [ids, &targets[SEQ_LEN - 1..]].concat())
}

struct Data {
    spec: DataSpec,
    cache: TempDir,
}

impl Data {
    fn open(&self, batch_size: usize, held_out: f64, began: f64) -> Source {
        let without = |share: f64| if share > 0.0 { Part::AllButLast(share) } else { Part::Whole };
        let cache = Some(self.cache.path().to_path_buf());
        let settings = SourceSettings {
            part: without(held_out),
            order_of: Some(without(began)).filter(|_| began != held_out),
            corpus: CorpusSettings { cache, ..CorpusSettings::default() },
            ..SourceSettings::new(BatchShape { batch_size, seq_len: SEQ_LEN }, 300, 42)
        };
        Source::open(&self.spec, &settings).unwrap()
    }

    /// The samples of some steps from sample `first` on, in the order of their micro-batches and ranks, and the sample to
    /// go on with.
    fn read(&self, leg: Leg, first: u64, steps: usize) -> (Vec<Sample>, u64) {
        let rank = |rank| {
            let source = self.open(leg.batch_size, leg.held_out, BEGAN);
            Prefetcher::of_rank(source, first, Share { rank, ranks: leg.ranks }).unwrap()
        };
        let mut ranks: Vec<Prefetcher> = (0..leg.ranks).map(rank).collect();
        let (mut read, mut next) = (vec![], first);
        for _ in 0..steps * leg.accumulation {
            let mut told = BTreeSet::new();
            for rank in &mut ranks {
                let fetched = rank.fetch().unwrap();
                read.extend(rows(fetched.batch));
                told.insert(fetched.next_sample);
            }
            assert_eq!(told.len(), 1, "ranks go on with the same sample: {leg:?}");
            next = told.pop_first().unwrap();
        }
        (read, next)
    }
}

/// The sequence of an uninterrupted run, and what is read of it under another held-out share.
struct Reference<'a> {
    sequence: Vec<Sample>,
    is_read: &'a dyn Fn(&Sample, f64) -> bool,
}

impl Reference<'_> {
    /// The next `count` samples from `first` on that are not held out, and the sample after them.
    fn next(&self, first: u64, held_out: f64, count: usize) -> (Vec<Sample>, u64) {
        let numbered = self.sequence.iter().enumerate().skip(first as usize);
        let read: Vec<_> = numbered.filter(|(_, sample)| (self.is_read)(sample, held_out)).take(count).collect();
        assert_eq!(read.len(), count, "the reference is long enough");
        (read.iter().map(|(_, sample)| (*sample).clone()).collect(), read[count - 1].0 as u64 + 1)
    }
}

/// Cuts runs in two and in many, with other settings after each cut.
fn check(data: &Data, shares: &[f64], is_read: &dyn Fn(&Sample, f64) -> bool) {
    let reference = Reference { sequence: data.read(Leg::PLAIN, 0, 1000).0, is_read };
    let goes_on = |leg: Leg, first: u64, steps: usize, from: &dyn std::fmt::Debug| {
        let (want, then) = reference.next(first, leg.held_out, steps * leg.samples_per_step());
        let (have, next) = data.read(leg, first, steps);
        assert!((&have, next) == (&want, then), "{:?}: {leg:?} from sample {first}, after {from:?}", data.spec);
        next
    };
    let legs = Leg::all(shares);
    for one in &legs {
        let position = goes_on(*one, 0, 3, &"nothing");
        for other in &legs {
            goes_on(*other, position, 2, one);
        }
    }
    let mut position = 0;
    // 5 has no common divisor with the number of legs: each leg comes once, after another one than in the list.
    for at in 0..legs.len() {
        position = goes_on(legs[at * 5 % legs.len()], position, 1, &"many others");
    }
    assert!(position > 60, "more than an epoch: {position}");
}

#[test]
fn generators_go_on_with_the_next_sample() {
    for spec in [DataSpec::Synthetic, DataSpec::Markov] {
        check(&Data { spec, cache: tempfile::tempdir().unwrap() }, &[BEGAN], &|_, _| true);
    }
}

/// Every token is its own place in the file.
#[test]
fn random_windows_go_on_with_the_next_sample() {
    let cache = tempfile::tempdir().unwrap();
    let path = cache.path().join("tokens.u16");
    std::fs::write(&path, (0..300u16).flat_map(u16::to_le_bytes).collect::<Vec<u8>>()).unwrap();
    let spec = DataSpec::parse(path.to_str().unwrap()).unwrap();
    check(&Data { spec, cache }, &HELD_OUT, &|sample, held_out| {
        f64::from(sample[SEQ_LEN]) < 300.0 - (300.0 * held_out).ceil()
    });
}

#[test]
fn shuffled_epochs_go_on_with_the_next_window() {
    let cache = tempfile::tempdir().unwrap();
    let texts = cache.path().join("texts");
    std::fs::create_dir(&texts).unwrap();
    // Documents of 40 bytes and an end, no window like another.
    for number in 0..5u8 {
        let text: String =
            (0..40u8).map(|at| char::from(b'0' + at.wrapping_mul(at).wrapping_add(number * 41) % 75)).collect();
        std::fs::write(texts.join(format!("{number}.txt")), text).unwrap();
    }
    let data = Data { spec: DataSpec::parse(texts.to_str().unwrap()).unwrap(), cache };
    let windows = |held_out: f64| -> BTreeSet<Sample> {
        let source = data.open(1, held_out, held_out);
        let mut batch = Batch::new(source.shape());
        let mut window = |at| {
            source.fill(at, &mut batch).unwrap();
            rows(&batch).next().unwrap()
        };
        (0..source.windows_per_epoch().unwrap()).map(&mut window).collect()
    };
    let sets = HELD_OUT.map(windows);
    assert_eq!(sets.each_ref().map(BTreeSet::len), [32, 16, 32, 40], "held-out ends begin with a document");
    let epoch = data.read(Leg::PLAIN, 0, 64).0;
    for half in epoch.chunks(32) {
        assert_eq!(half.iter().cloned().collect::<BTreeSet<_>>(), sets[0], "none twice, none left out");
    }
    // With less held out than at the beginning, the sequence stays as it is.
    check(&data, &HELD_OUT, &|sample, held_out| {
        sets[HELD_OUT.iter().position(|share| *share == held_out).unwrap()].contains(sample) || held_out < BEGAN
    });
}
