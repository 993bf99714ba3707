//! Looks up rows by a number that the profiler assigned.

use std::collections::HashMap;

use headroom_trace::NONE;

/// Row indices by number. Profilers count consecutively, so a table from the first number on suffices; sparse numbers
/// use a map.
#[derive(Debug)]
pub struct Numbered {
    first: u32,
    table: Vec<u32>,
    apart: HashMap<u32, u32>,
}

/// A table with more entries than this per number would be larger than the map.
const PLACES_A_NUMBER: usize = 4;

impl Numbered {
    /// Builds the lookup from numbers and their indices, ignoring [`NONE`]. For duplicates, the later index counts.
    pub fn new(pairs: impl Iterator<Item = (u32, usize)> + Clone) -> Numbered {
        let numbered = pairs.filter(|(number, _)| *number != NONE);
        let (mut first, mut last, mut count) = (u32::MAX, 0, 0);
        for (number, _) in numbered.clone() {
            (first, last, count) = (first.min(number), last.max(number), count + 1);
        }
        let places = (last as usize + 1).saturating_sub(first as usize);
        if places > PLACES_A_NUMBER * count {
            let apart = numbered.map(|(number, at)| (number, at as u32)).collect();
            return Numbered { first, table: Vec::new(), apart };
        }
        let mut table = vec![NONE; places];
        numbered.for_each(|(number, at)| table[(number - first) as usize] = at as u32);
        Numbered { first, table, apart: HashMap::new() }
    }

    pub fn get(&self, number: u32) -> Option<usize> {
        let place = number.checked_sub(self.first).and_then(|place| self.table.get(place as usize));
        place.or_else(|| self.apart.get(&number)).filter(|at| **at != NONE).map(|at| *at as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_close_together_and_far_apart_are_found_alike() {
        for step in [1, 3, 1_000_000] {
            let pairs = [7, 8, 9, 8].map(|number| number * step);
            let numbered = Numbered::new(pairs.into_iter().chain([NONE]).enumerate().map(|(at, number)| (number, at)));
            assert_eq!(numbered.table.is_empty(), step == 1_000_000);
            assert_eq!([7, 8, 9].map(|number| numbered.get(number * step)), [Some(0), Some(3), Some(2)]);
            assert_eq!(
                [0, 7 * step + 1 + u32::from(step == 1), 10 * step, NONE]
                    .map(|number| numbered.get(number))
                    .iter()
                    .flatten()
                    .count(),
                usize::from(step == 1)
            );
        }
        assert_eq!(Numbered::new(std::iter::empty()).get(0), None);
    }
}
