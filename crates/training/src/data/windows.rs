//! The window of tokens that a sample reads: drawn at random, or each window once per epoch in a seeded order.
//!
//! Both are functions of (seed, sample) alone: nothing is stored, and a run resumes at any sample. A run that holds more
//! out than it began with keeps its order and passes over the windows that it no longer reads.

use std::ops::Range;
use std::path::Path;

use super::{BatchShape, DataError, Part, SourceSettings};
use crate::rng::Stream;

/// Windows of S + 1 tokens within a range of tokens.
#[derive(Debug)]
pub(super) struct Windows {
    pub shape: BatchShape,
    pub seed: u64,
    first: u64,
    order: Order,
    /// How many of the numbers that the order draws are read: those below.
    read: u64,
}

#[derive(Debug)]
enum Order {
    /// Every start is equally likely.
    ByLot { starts: u64, offsets: Stream },
    /// Neighbouring windows share a token: the last of one is the first of the next. Tokens after the last whole window
    /// are left out.
    OncePerEpoch { windows: u64, permutation: Permutation },
}

impl Windows {
    /// Every start is equally likely, except that a held-out part is read window by window.
    pub fn of_file(path: &Path, tokens: TokenRanges, settings: &SourceSettings) -> Result<Windows, DataError> {
        if matches!(settings.part, Part::Last(_)) {
            return Windows::once_per_epoch(path, tokens, settings);
        }
        let [starts, read] = tokens.starts(path, settings)?;
        let offsets = Stream::new(settings.seed, &format!("data.windows.{}", settings.split.name()));
        let order = Order::ByLot { starts, offsets };
        Ok(Windows { shape: settings.shape, seed: settings.seed, first: tokens.read.start, order, read })
    }

    pub fn once_per_epoch(path: &Path, tokens: TokenRanges, settings: &SourceSettings) -> Result<Windows, DataError> {
        let seq_len = settings.shape.seq_len as u64;
        // A window begins at every `seq_len`-th of the possible starts.
        let [windows, read] = tokens.starts(path, settings)?.map(|starts| (starts - 1) / seq_len + 1);
        let keys = Stream::new(settings.seed, &format!("data.epochs.{}", settings.split.name()));
        let order = Order::OncePerEpoch { windows, permutation: Permutation::new(keys, windows) };
        Ok(Windows { shape: settings.shape, seed: settings.seed, first: tokens.read.start, order, read })
    }

    /// First tokens of the windows that are read, from sample `first` on.
    pub fn starts(&self, first: u64) -> impl Iterator<Item = u64> {
        self.samples(first).map(|(_, start)| start)
    }

    /// The sample after the next `count` that are read, from sample `first` on.
    pub fn after(&self, first: u64, count: u64) -> u64 {
        let last = match (count.checked_sub(1), self.read < self.order.numbers()) {
            (None, _) => return first,
            (Some(others), false) => first.wrapping_add(others),
            // An endless iterator has an item at every place.
            (Some(others), true) => self.samples(first).nth(others as usize).map_or(first, |(sample, _)| sample),
        };
        last.wrapping_add(1)
    }

    /// The samples that are read, from `first` on, and the first tokens of their windows.
    fn samples(&self, first: u64) -> impl Iterator<Item = (u64, u64)> {
        let all = (0..).map(move |further| first.wrapping_add(further));
        all.filter_map(|sample| Some((sample, self.start(sample)?)))
    }

    /// The first token of a sample's window; `None` if it is not read.
    fn start(&self, sample: u64) -> Option<u64> {
        let (number, apart) = match &self.order {
            Order::ByLot { starts, offsets } => (offsets.uniform_u64_below(sample, *starts), 1),
            Order::OncePerEpoch { windows, permutation } => {
                (permutation.at(sample / windows, sample % windows), self.shape.seq_len as u64)
            }
        };
        (number < self.read).then_some(self.first + number * apart)
    }

    /// Windows per epoch; `None` if they are drawn at random.
    pub fn per_epoch(&self) -> Option<u64> {
        match self.order {
            Order::ByLot { .. } => None,
            Order::OncePerEpoch { windows, .. } => Some(windows.min(self.read)),
        }
    }
}

impl Order {
    /// How many different numbers it draws.
    fn numbers(&self) -> u64 {
        match self {
            Order::ByLot { starts: numbers, .. } | Order::OncePerEpoch { windows: numbers, .. } => *numbers,
        }
    }
}

/// The tokens that a source reads, and those whose order its samples have.
#[derive(Debug)]
pub(super) struct TokenRanges {
    pub read: Range<u64>,
    pub ordered: Range<u64>,
}

impl SourceSettings {
    /// The ranges within a file of this many tokens.
    pub(super) fn tokens(&self, count: u64, document_before: impl Fn(u64) -> u64) -> TokenRanges {
        let range = |part: Part| part.range(count, self.shape.seq_len, &document_before);
        TokenRanges { read: range(self.part), ordered: range(self.order_of.unwrap_or(self.part)) }
    }
}

impl TokenRanges {
    /// Number of possible window starts in the order and among what is read; at least one each.
    fn starts(&self, path: &Path, settings: &SourceSettings) -> Result<[u64; 2], DataError> {
        let seq_len = settings.shape.seq_len;
        let starts = |tokens: &Range<u64>, part: Part| {
            let have = tokens.end - tokens.start;
            let too_short = || DataError::TooShort { path: path.to_path_buf(), have, seq_len, part };
            have.checked_sub(seq_len as u64).filter(|starts| *starts > 0).ok_or_else(too_short)
        };
        Ok([starts(&self.ordered, settings.order_of.unwrap_or(settings.part))?, starts(&self.read, settings.part)?])
    }
}

impl Part {
    /// The tokens of this part. The held-out end has room for at least one window and begins with a document if one
    /// begins near enough (`document_before` gives the last document start at or before a token).
    pub(super) fn range(self, tokens: u64, seq_len: usize, document_before: impl Fn(u64) -> u64) -> Range<u64> {
        let cut = |share: f64| {
            let wanted = ((tokens as f64 * share).ceil() as u64).max(seq_len as u64 + 1).min(tokens);
            let cut = tokens - wanted;
            let beginning = document_before(cut);
            if beginning > 0 && cut - beginning <= wanted { beginning } else { cut }
        };
        match self {
            Part::Whole => 0..tokens,
            Part::AllButLast(share) => 0..cut(share),
            Part::Last(share) => cut(share)..tokens,
        }
    }
}

/// The numbers below `size` in a different order for every epoch: a Feistel network over the next power of four,
/// applied again while the result lies outside (cycle walking).
#[derive(Debug)]
struct Permutation {
    keys: Stream,
    size: u64,
    half_bits: u32,
}

const ROUNDS: u64 = 6;

impl Permutation {
    fn new(keys: Stream, size: u64) -> Permutation {
        let bits = u64::BITS - size.saturating_sub(1).leading_zeros();
        Permutation { keys, size, half_bits: bits.div_ceil(2).max(1) }
    }

    fn at(&self, epoch: u64, index: u64) -> u64 {
        let mut keys = [0; ROUNDS as usize];
        for (round, key) in keys.iter_mut().enumerate() {
            *key = self.keys.word_u64(epoch.wrapping_mul(ROUNDS).wrapping_add(round as u64));
        }
        let mask = (1u64 << self.half_bits) - 1;
        let mut x = index;
        loop {
            let (mut left, mut right) = (x >> self.half_bits, x & mask);
            for key in keys {
                (left, right) = (right, left ^ (mixed(right ^ key) & mask));
            }
            x = left << self.half_bits | right;
            if x < self.size {
                return x;
            }
        }
    }
}

/// Every bit of the result depends on every bit of `x` (the finalizer of SplitMix64).
fn mixed(x: u64) -> u64 {
    let x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_epoch_has_every_number_once_and_the_next_in_another_order() {
        for size in [1, 2, 3, 5, 16, 17, 255, 1000, 4097] {
            let permutation = Permutation::new(Stream::new(7, "test"), size);
            let epoch = |epoch| (0..size).map(|index| permutation.at(epoch, index)).collect::<Vec<u64>>();
            let mut sorted = epoch(0);
            sorted.sort();
            assert!(sorted.into_iter().eq(0..size), "{size}");
            if size > 16 {
                assert_ne!(epoch(0), epoch(1), "{size}");
                let other = Permutation::new(Stream::new(8, "test"), size);
                assert_ne!(epoch(0)[..10], (0..10).map(|index| other.at(0, index)).collect::<Vec<_>>(), "{size}");
            }
        }
    }

    #[test]
    fn neighbours_do_not_stay_neighbours() {
        let permutation = Permutation::new(Stream::new(1, "test"), 10_000);
        let order: Vec<u64> = (0..10_000).map(|index| permutation.at(3, index)).collect();
        let close = order.windows(2).filter(|pair| pair[0].abs_diff(pair[1]) < 100).count();
        // About two percent of random pairs are that close.
        assert!((100..300).contains(&close), "{close}");
        let early: u64 = order[..1000].iter().sum::<u64>() / 1000;
        assert!((4500..5500).contains(&early), "the first tenth is of the whole: mean {early}");
    }

    #[test]
    fn numbers_as_large_as_they_come_are_no_panic() {
        for size in [u64::MAX, 1 << 63, (1 << 62) + 1] {
            assert!(Permutation::new(Stream::new(1, "test"), size).at(u64::MAX, size - 1) < size);
        }
    }

    #[test]
    fn windows_of_an_epoch_lie_side_by_side_within_their_part() {
        let settings = SourceSettings::new(BatchShape { batch_size: 4, seq_len: 10 }, 256, 7);
        let all = |tokens: Range<u64>| TokenRanges { read: tokens.clone(), ordered: tokens };
        let windows = |tokens| Windows::once_per_epoch(Path::new("a"), all(tokens), &settings).unwrap();
        // Fifty tokens hold four windows, each with its next token; fifty-one hold five.
        assert_eq!(
            [windows(100..150), windows(100..151), windows(0..11)].map(|of| of.per_epoch()),
            [4, 5, 1].map(Some)
        );
        let five = windows(100..151);
        let epoch = |number: u64| {
            let mut starts: Vec<u64> = five.starts(5 * number).take(5).collect();
            starts.sort();
            starts
        };
        assert_eq!([epoch(0), epoch(1), epoch(7)], [(); 3].map(|()| vec![100, 110, 120, 130, 140]));
        assert!(Windows::once_per_epoch(Path::new("a"), all(0..10), &settings).is_err());
        let by_lot = Windows::of_file(Path::new("a"), all(100..113), &settings).unwrap();
        let mut starts: Vec<u64> = by_lot.starts(0).take(100).collect();
        starts.sort();
        starts.dedup();
        assert_eq!((starts, by_lot.per_epoch()), (vec![100, 101, 102], None));
    }

    #[test]
    fn the_held_out_end_begins_with_a_document_where_one_begins_near_it() {
        let document_before = |starts: &'static [u64]| {
            move |token| starts.iter().copied().filter(|start| *start <= token).max().unwrap_or(0)
        };
        for (starts, want) in [(&[0][..], 950), (&[0, 930, 980], 930), (&[0, 100], 950), (&[0, 950], 950)] {
            assert_eq!(Part::Last(0.05).range(1000, 9, document_before(starts)), want..1000);
            assert_eq!(Part::AllButLast(0.05).range(1000, 9, document_before(starts)), 0..want);
        }
        assert_eq!(Part::Last(0.05).range(1000, 99, |_| 0), 900..1000, "room for a window");
        assert_eq!(Part::Last(1.0).range(1000, 99, |_| 0), 0..1000);
        assert_eq!(Part::Last(0.5).range(10, 99, |_| 0), 0..10);
        assert_eq!(Part::Whole.range(1000, 99, |_| 0), 0..1000);
    }
}
