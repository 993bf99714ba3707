//! Counter-based random numbers: the number at an index depends only on (seed, stream name, index), not on earlier
//! draws.
//!
//! So any part of a tensor or of the data can be generated alone, in any order, on any thread or device, and resuming
//! needs no state. The generator is Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011):
//! the seed is its key, and the counter holds the block's index (low half) and a hash of the stream's name (high half).
//!
//! Everything here must give the same bytes in a CUDA kernel: integers, and f64 `+ - * / sqrt`, whose rounding IEEE 754
//! fixes (the kernel must not contract them to fused multiply-adds). The logarithm, sine and cosine are therefore
//! written out below: those of C libraries differ in the last bits between systems.
//!
//! Draw only one kind of number from a stream: words, normals and 64-bit numbers are cut from the same blocks.

/// An endless, randomly accessible sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stream {
    seed: u64,
    name_hash: u64,
}

impl Stream {
    pub fn new(seed: u64, name: &str) -> Stream {
        Stream { seed, name_hash: fnv1a_64(name.as_bytes()) }
    }

    /// Seed and hash of the name, which identify the stream.
    pub fn key(&self) -> (u64, u64) {
        (self.seed, self.name_hash)
    }

    /// 32 random bits; four neighbouring indices share a block.
    pub fn word(&self, index: u64) -> u32 {
        self.block(index / 4)[(index % 4) as usize]
    }

    /// In `0..n`, by multiplying and shifting: the relative bias is at most `n / 2^32`, which for vocabularies is below
    /// one part in 10,000. Rejection would be exact, but a number would then no longer depend on its index alone.
    pub fn uniform_u32_below(&self, index: u64, n: u32) -> u32 {
        ((u64::from(self.word(index)) * u64::from(n)) >> 32) as u32
    }

    /// 64 random bits; each index uses its own block.
    pub fn word_u64(&self, index: u64) -> u64 {
        let [low, high, ..] = self.block(index);
        u64::from(low) | u64::from(high) << 32
    }

    /// In `0..n` with 64 random bits, for offsets into files of any size.
    pub fn uniform_u64_below(&self, index: u64, n: u64) -> u64 {
        ((u128::from(self.word_u64(index)) * u128::from(n)) >> 64) as u64
    }

    /// In the open interval (0, 1), on a grid of 2^-32.
    pub fn unit(&self, index: u64) -> f64 {
        unit_of(self.word(index))
    }

    /// Standard normal, by Box-Muller: words 0 and 1 of a block give elements 0 (cosine) and 1 (sine), words 2 and 3
    /// the other two. The largest magnitude is 6.8, as the smallest unit number is 2^-33.
    pub fn normal(&self, index: u64) -> f32 {
        normals_of(self.block(index / 4))[(index % 4) as usize]
    }

    /// `normal` from `first_index` on; each block is computed once for its four elements.
    pub fn fill_normal(&self, first_index: u64, elements: &mut [f32]) {
        let mut index = first_index;
        let mut rest = elements;
        while !rest.is_empty() {
            let word = (index % 4) as usize;
            let count = rest.len().min(4 - word);
            let (now, later) = rest.split_at_mut(count);
            now.copy_from_slice(&normals_of(self.block(index / 4))[word..word + count]);
            index += count as u64;
            rest = later;
        }
    }

    fn block(&self, index: u64) -> [u32; 4] {
        let halves = |x: u64| [x as u32, (x >> 32) as u32];
        let ([c0, c1], [c2, c3]) = (halves(index), halves(self.name_hash));
        philox4x32_10([c0, c1, c2, c3], halves(self.seed))
    }
}

/// The 64-bit FNV-1a hash: never changes, unlike the standard library's.
pub fn fnv1a_64(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

fn philox4x32_10(counter: [u32; 4], key: [u32; 2]) -> [u32; 4] {
    let (mut x, mut k) = (counter, key);
    for _ in 0..10 {
        let left = u64::from(x[0]) * 0xD251_1F53;
        let right = u64::from(x[2]) * 0xCD9E_8D57;
        x = [(right >> 32) as u32 ^ x[1] ^ k[0], right as u32, (left >> 32) as u32 ^ x[3] ^ k[1], left as u32];
        k = [k[0].wrapping_add(0x9E37_79B9), k[1].wrapping_add(0xBB67_AE85)];
    }
    x
}

/// The middle of the word's cell in (0, 1): never 0, which has no logarithm.
fn unit_of(word: u32) -> f64 {
    (f64::from(word) + 0.5) * (1.0 / 4_294_967_296.0)
}

fn normals_of(block: [u32; 4]) -> [f32; 4] {
    let pair = |radius_word, angle_word| {
        let radius = (-2.0 * ln_of_unit(unit_of(radius_word))).sqrt();
        let (sine, cosine) = sine_cosine_of_turn(angle_word);
        [(radius * cosine) as f32, (radius * sine) as f32]
    };
    let ([n0, n1], [n2, n3]) = (pair(block[0], block[1]), pair(block[2], block[3]));
    [n0, n1, n2, n3]
}

/// Natural logarithm of a normal number in (0, 1), to about 1e-13.
fn ln_of_unit(x: f64) -> f64 {
    const LN_2: f64 = std::f64::consts::LN_2;
    // x = mantissa · 2^exponent with the mantissa in [√½, √2), where the series below converges fastest.
    let bits = x.to_bits();
    let mut exponent = (bits >> 52) as i32 - 1023;
    let mut mantissa = f64::from_bits((bits & 0x000f_ffff_ffff_ffff) | 0x3ff0_0000_0000_0000);
    if mantissa >= std::f64::consts::SQRT_2 {
        mantissa *= 0.5;
        exponent += 1;
    }
    // ln m = 2 (s + s³/3 + s⁵/5 + …) with s = (m - 1) / (m + 1), |s| < 0.172
    let s = (mantissa - 1.0) / (mantissa + 1.0);
    let s2 = s * s;
    let mut series = 0.0;
    for odd in [15.0, 13.0, 11.0, 9.0, 7.0, 5.0, 3.0, 1.0] {
        series = series * s2 + 1.0 / odd;
    }
    f64::from(exponent) * LN_2 + 2.0 * s * series
}

/// Sine and cosine of `word / 2^32` of a full turn, to about 1e-13.
fn sine_cosine_of_turn(word: u32) -> (f64, f64) {
    // Subtract the nearest quarter turn in integers, which is exact; the remainder is at most an eighth of a turn
    // either way.
    let quarter = word.wrapping_add(1 << 29) >> 30;
    let left_over = word.wrapping_sub(quarter << 30) as i32;
    let angle = f64::from(left_over) * (std::f64::consts::TAU / 4_294_967_296.0);
    let square = angle * angle;
    // Taylor series: each factor divides by the next two integers of the factorial.
    let mut sine = 1.0;
    for pair in [12.0 * 13.0, 10.0 * 11.0, 8.0 * 9.0, 6.0 * 7.0, 4.0 * 5.0, 2.0 * 3.0] {
        sine = 1.0 - sine * square / pair;
    }
    sine *= angle;
    let mut cosine = 1.0;
    for pair in [13.0 * 14.0, 11.0 * 12.0, 9.0 * 10.0, 7.0 * 8.0, 5.0 * 6.0, 3.0 * 4.0, 1.0 * 2.0] {
        cosine = 1.0 - cosine * square / pair;
    }
    match quarter {
        0 => (sine, cosine),
        1 => (cosine, -sine),
        2 => (-sine, -cosine),
        _ => (-cosine, sine),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn philox_gives_the_published_answers() {
        let check = |counter, key, want| assert_eq!(philox4x32_10(counter, key), want);
        check([0; 4], [0; 2], [0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8]);
        check([u32::MAX; 4], [u32::MAX; 2], [0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd]);
        check(
            [0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344],
            [0xa4093822, 0x299f31d0],
            [0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1],
        );
    }

    #[test]
    fn fnv_gives_the_published_answers() {
        assert_eq!(fnv1a_64(b""), 0xcbf29ce484222325);
        assert_eq!(fnv1a_64(b"a"), 0xaf63dc4c8601ec8c);
        assert_eq!(fnv1a_64(b"foobar"), 0x85944171f73967e8);
    }

    #[test]
    fn logarithm_sine_and_cosine_agree_with_the_c_library() {
        let words = (0..100_000).map(|step: u32| step.wrapping_mul(2_654_435_761));
        for word in words.chain([0, 1, u32::MAX, 1 << 29, (1 << 29) - 1, 1 << 30, 3 << 30]) {
            let unit = unit_of(word);
            assert!((ln_of_unit(unit) - unit.ln()).abs() <= 1e-12 * unit.ln().abs().max(0.1), "ln {unit}");
            let angle = f64::from(word) / 4_294_967_296.0 * std::f64::consts::TAU;
            let (sine, cosine) = sine_cosine_of_turn(word);
            assert!((sine - angle.sin()).abs() < 1e-12, "sin {word}");
            assert!((cosine - angle.cos()).abs() < 1e-12, "cos {word}");
        }
    }

    #[test]
    fn a_slice_holds_the_same_normals_as_its_elements_drawn_alone() {
        let stream = Stream::new(42, "model.layers.0.mlp.up_proj.weight");
        for (first, length) in [(0, 9), (1, 1), (3, 6), (u64::from(u32::MAX) * 4 + 2, 11)] {
            let mut elements = vec![0.0; length];
            stream.fill_normal(first, &mut elements);
            for (offset, element) in elements.iter().enumerate() {
                assert_eq!(element.to_bits(), stream.normal(first + offset as u64).to_bits());
            }
        }
    }

    #[test]
    fn normals_have_the_moments_and_tails_of_a_normal() {
        let stream = Stream::new(7, "moments");
        let mut elements = vec![0.0; 1_000_000];
        stream.fill_normal(0, &mut elements);
        let mean_of = |f: fn(f64) -> f64| elements.iter().map(|x| f(f64::from(*x))).sum::<f64>() / 1e6;
        assert!(mean_of(|x| x).abs() < 0.004);
        assert!((mean_of(|x| x * x) - 1.0).abs() < 0.006);
        assert!(mean_of(|x| x.powi(3)).abs() < 0.016);
        assert!((mean_of(|x| x.powi(4)) - 3.0).abs() < 0.04);
        let beyond_two = mean_of(|x| f64::from(u8::from(x.abs() > 2.0)));
        assert!((beyond_two - 0.0455).abs() < 0.001, "{beyond_two}");
        let neighbours: f64 = elements.windows(2).map(|pair| f64::from(pair[0] * pair[1])).sum::<f64>() / 1e6;
        assert!(neighbours.abs() < 0.004, "{neighbours}");
    }

    #[test]
    fn bounded_numbers_cover_their_range_evenly() {
        let stream = Stream::new(1, "dice");
        let mut counts = [0u32; 6];
        for index in 0..60_000 {
            counts[stream.uniform_u32_below(index, 6) as usize] += 1;
        }
        assert!(counts.iter().all(|count| count.abs_diff(10_000) < 400), "{counts:?}");
        let large = 1u64 << 40;
        let mean = (0..10_000).map(|index| stream.uniform_u64_below(index, large) as f64).sum::<f64>() / 1e4;
        assert!((mean / large as f64 - 0.5).abs() < 0.015);
    }

    #[test]
    fn seed_name_and_index_each_change_the_number() {
        let at = |seed, name, index| Stream::new(seed, name).word_u64(index);
        let base = at(42, "a", 0);
        for other in [at(43, "a", 0), at(42, "b", 0), at(42, "a", 1), at(42 + (1 << 32), "a", 0), at(42, "a", 1 << 32)]
        {
            assert_ne!(base, other);
        }
    }
}
