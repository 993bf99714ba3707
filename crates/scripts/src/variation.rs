//! Causes that make two seeded runs of an unmodified script differ, from the calls that the hook recorded.

use crate::note::{Note, SeedSource};

/// One sentence per cause: draws from the system, and seeds that differ between runs.
pub fn sources(originals: &[Note]) -> Vec<String> {
    let Some(first) = originals.first() else { return vec![] };
    let place = |one: &SeedSource| format!("`{}` ({}:{})", one.code, one.file, one.line);
    let mut found: Vec<String> =
        first.entropy.iter().map(|one| format!("{} draws from the system", place(one))).collect();
    for other in &originals[1..] {
        let pairs = first.seeds.iter().zip(&other.seeds);
        let is_other = |(one, other): &(&SeedSource, &SeedSource)| {
            (&one.what, &one.file, one.line) == (&other.what, &other.file, other.line) && one.value != other.value
        };
        for (one, _) in pairs.filter(is_other) {
            let text = format!("{} gives {} another seed in every run", place(one), one.what);
            if !found.contains(&text) {
                found.push(text);
            }
        }
    }
    found
}

/// By how much runs of the unmodified script differ, where that is too much to compare others with them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Varies {
    ByItself(f64),
    /// Only where data loading draws other random numbers.
    ByDraws(f64),
}

impl Varies {
    pub fn words(self, originals: &[Note]) -> String {
        match self {
            Varies::ByItself(own) => {
                let sources = sources(originals);
                let sources = if sources.is_empty() { "no cause was found".into() } else { sources.join("; ") };
                format!("runs of the unchanged script differ by {own:.1e} themselves ({sources})")
            }
            Varies::ByDraws(own) => {
                format!("other random numbers in data loading move the unchanged script by {own:.1e}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seed(what: &str, value: &str, line: u64) -> SeedSource {
        let (what, value, code) = (what.into(), value.into(), format!("{what}(…)"));
        SeedSource { what, value, file: "train.py".into(), line, code }
    }

    #[test]
    fn draws_from_the_system_and_seeds_that_differ_are_named() {
        let run = |value: &str| Note {
            entropy: vec![SeedSource { code: "rng = default_rng()".into(), ..seed("", "", 4) }],
            seeds: vec![seed("random.seed", "7", 8), seed("torch.manual_seed", value, 9)],
            ..Note::default()
        };
        let named = "`rng = default_rng()` (train.py:4) draws from the system";
        assert_eq!(sources(&[run("1"), run("1")]), [named]);
        let seeded = "`torch.manual_seed(…)` (train.py:9) gives torch.manual_seed another seed in every run";
        assert_eq!(sources(&[run("1"), run("2"), run("3")]), [named, seeded]);
        assert!(sources(&[]).is_empty());
    }
}
