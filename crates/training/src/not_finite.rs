//! Finds where a non-finite loss came from: the weights, or the first call that produces such a value, on any rank.

use crate::checkpoint::Content;
use crate::trainer::{NotFinite, TRAINING, Trainer};
use headroom_graph::Phase;

impl Trainer {
    /// Repeats the forward pass call by call until one produces a non-finite value. The weights and the batch are still
    /// those of the failing step.
    pub fn first_not_finite(&mut self) -> NotFinite {
        let mine = self.own_not_finite();
        of_all_ranks(self, mine)
    }

    /// Searches on this rank only. Skips collectives, because other ranks may finish the search earlier.
    fn own_not_finite(&mut self) -> NotFinite {
        for (name, _) in self.parameters() {
            if let Err(value) = self.read(&name, Content::Weight, all_finite) {
                let since = if self.step == 0 { "as loaded" } else { "since the update of the previous step" };
                return NotFinite::Weights { name, value, since };
            }
        }
        for call in self.training.program.plan.phase(Phase::Forward) {
            if self.training.program.graph.nodes()[call].op.is_collective() {
                continue;
            }
            self.device.run(TRAINING, call..call + 1);
            let node = &self.training.program.graph.nodes()[call];
            for &output in &node.outputs {
                let mut data = vec![0.0; self.training.program.graph.ty(output).elements()];
                self.device.read_f32(TRAINING, output, 0, &mut data);
                if let Err(value) = all_finite(&data) {
                    return NotFinite::Operator { op: node.op.name(), module: node.module.to_string(), value };
                }
            }
        }
        NotFinite::NotRepeated
    }
}

/// Combines what the ranks found.
fn of_all_ranks(trainer: &Trainer, mine: NotFinite) -> NotFinite {
    let Some(ranks) = &trainer.ranks else { return mine };
    let own = if mine == NotFinite::NotRepeated { String::new() } else { mine.to_string() };
    match ranks.gather(own.as_bytes()) {
        Ok(said) => of_findings(&said, mine),
        // The next message reports the failure itself.
        Err(_) => mine,
    }
}

fn of_findings(said: &[Vec<u8>], mine: NotFinite) -> NotFinite {
    let found: Vec<(usize, String)> = said
        .iter()
        .enumerate()
        .filter(|(_, words)| !words.is_empty())
        .map(|(rank, words)| (rank, String::from_utf8_lossy(words).into_owned()))
        .collect();
    let same = found.len() == said.len() && found.iter().all(|(_, words)| *words == found[0].1);
    if found.is_empty() || same {
        return mine;
    }
    let told: Vec<String> = found.iter().map(|(rank, words)| format!("on rank {rank}: {words}")).collect();
    NotFinite::OnRanks { told: told.join("; ") }
}

/// The error is the first value that is not finite.
fn all_finite(data: &[f32]) -> Result<(), f32> {
    data.iter().copied().find(|x| !x.is_finite()).map_or(Ok(()), Err)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(said: &[&str]) -> Vec<Vec<u8>> {
        said.iter().map(|words| words.as_bytes().to_vec()).collect()
    }

    #[test]
    fn findings_of_single_ranks_are_told_with_their_numbers() {
        let told = |said: &[&str]| of_findings(&words(said), NotFinite::NotRepeated);
        assert_eq!(told(&["", ""]), NotFinite::NotRepeated);
        assert_eq!(told(&["a", "a"]), NotFinite::NotRepeated, "its own words are those of all");
        let want = "on rank 1: softmax produced NaN; on rank 3: b";
        assert_eq!(told(&["", "softmax produced NaN", "", "b"]), NotFinite::OnRanks { told: want.into() });
    }
}
