//! The state of a search at the moment, for a person who waits.

/// The state of a live line.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Moment {
    /// Such as `trying`.
    pub phase: &'static str,
    pub remedies: Vec<&'static str>,
    pub count: Option<Count>,
    /// Speed of everything kept so far, relative to the unmodified script.
    pub best: Option<f64>,
}

/// How far it got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count {
    pub unit: &'static str,
    pub done: u64,
    pub of: u64,
}

impl Moment {
    pub fn words(&self) -> String {
        let mut words = self.phase.to_string();
        // A terminal has few columns.
        match &self.remedies[..] {
            [] => {}
            [first, _, others @ ..] if !others.is_empty() => {
                words = format!("{words} {first} and {} more", others.len() + 1);
            }
            few => words = format!("{words} {}", few.join(", ")),
        }
        if let Some(Count { unit, done, of }) = self.count {
            words = format!("{words} · {unit} {done} of {of}");
        }
        match self.best {
            Some(best) => format!("{words} · best {best:.2}×"),
            None => words,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_has_its_phase_remedies_count_and_best() {
        let mut moment = Moment { phase: "trying", remedies: vec!["tf32", "compile"], ..Moment::default() };
        assert_eq!(moment.words(), "trying tf32, compile");
        moment.count = Some(Count { unit: "round", done: 3, of: 10 });
        moment.best = Some(1.416);
        assert_eq!(moment.words(), "trying tf32, compile · round 3 of 10 · best 1.42×");
        moment.remedies.push("sdpa");
        assert!(moment.words().starts_with("trying tf32 and 2 more · round"), "{}", moment.words());
    }
}
