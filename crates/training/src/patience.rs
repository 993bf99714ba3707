//! Early stopping: the best evaluation so far, and how many in a row were not better.

/// Receives every evaluation of a run; its state is saved with a checkpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Patience {
    /// Number of evaluations without improvement that ends the run; 0 never ends it.
    pub most: u64,
    pub best: Option<Best>,
    /// Evaluations since the best one.
    pub since: u64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Best {
    pub step: u64,
    pub loss: f32,
}

/// Whether this evaluation is one of the regular ones. The one at a run's last step may exist only because the run
/// ended there; a run resumed past it would not have had it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counts {
    Yes,
    No,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Better,
    NotBetter,
    /// Not better, and patience has run out.
    Enough,
}

impl Patience {
    pub fn tell(&mut self, step: u64, loss: f32, counts: Counts) -> Verdict {
        // A NaN is never the best, not even when there is no other loss.
        if self.best.is_none_or(|best| loss < best.loss) && !loss.is_nan() {
            self.best = Some(Best { step, loss });
            self.since = 0;
            return Verdict::Better;
        }
        if counts == Counts::Yes {
            self.since += 1;
        }
        if self.most > 0 && self.since >= self.most { Verdict::Enough } else { Verdict::NotBetter }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patience_ends_after_so_many_evaluations_in_a_row_that_are_not_better() {
        let mut patience = Patience { most: 2, ..Patience::default() };
        let losses = [3.0, 2.0, 2.5, 1.5, 1.5, f32::NAN];
        let verdicts: Vec<Verdict> =
            losses.iter().zip(1..).map(|(loss, step)| patience.tell(step, *loss, Counts::Yes)).collect();
        use Verdict::{Better, Enough, NotBetter};
        assert_eq!(verdicts, [Better, Better, NotBetter, Better, NotBetter, Enough]);
        assert_eq!(patience.best, Some(Best { step: 4, loss: 1.5 }));
    }

    #[test]
    fn an_evaluation_that_does_not_count_may_still_be_the_best() {
        let mut patience = Patience { most: 1, ..Patience::default() };
        assert_eq!(patience.tell(1, 2.0, Counts::No), Verdict::Better);
        assert_eq!(patience.tell(2, 3.0, Counts::No), Verdict::NotBetter);
        assert_eq!(patience.tell(3, 3.0, Counts::Yes), Verdict::Enough);
    }

    #[test]
    fn without_a_limit_it_never_ends() {
        let mut patience = Patience::default();
        patience.tell(1, 1.0, Counts::Yes);
        assert!((2..100).all(|step| patience.tell(step, 2.0, Counts::Yes) == Verdict::NotBetter));
    }
}
