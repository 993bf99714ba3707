//! Limits on a change, and their results: kept, broken, or undecided because of the interval.

use thiserror::Error;

use super::change::{Answer, Comparison, Judged};

/// A limit on a change: `step>5%` is broken when the step grew by more than 5%.
#[derive(Clone, Debug, PartialEq)]
pub struct Limit {
    pub text: String,
    figure: String,
    grows: bool,
    share: f64,
}

#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error(
    "--fail-if {text}: not a limit\n  help: write FIGURE>N% or FIGURE<-N%; FIGURE is step, memory, kernels, \
     launches, device, idle, busy or op:NAME, for instance \"step>5%\""
)]
pub struct LimitError {
    pub text: String,
}

/// A limit on an operator that neither side ran: most likely a typo.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("--fail-if {text}: neither trace has an operator `{name}`\n  help: {nearest}")]
pub struct NoSuchOperator {
    pub text: String,
    pub name: String,
    nearest: String,
}

const FIGURES: &[(&str, &str)] = &[
    ("memory", "peak memory bytes"),
    ("kernels", "kernels per step"),
    ("launches", "launches per step"),
    ("device", "device seconds per step"),
    ("idle", "idle seconds per step"),
    ("busy", "busy share"),
];

/// Counted figures: the same program gives the same number, so no interval is needed.
const COUNTED: [&str; 3] = ["memory", "kernels", "launches"];

impl std::str::FromStr for Limit {
    type Err = LimitError;

    fn from_str(text: &str) -> Result<Limit, LimitError> {
        let error = || LimitError { text: text.to_string() };
        let place = text.find(['>', '<']).ok_or_else(error)?;
        let figure = text[..place].trim().to_string();
        let number = text[place + 1..].trim().strip_suffix('%').ok_or_else(error)?.trim();
        let percent: f64 = number.parse().map_err(|_| error())?;
        let is_known = figure == "step"
            || figure.strip_prefix("op:").is_some_and(|name| !name.is_empty())
            || FIGURES.iter().any(|(name, _)| *name == figure);
        if !is_known || !percent.is_finite() {
            return Err(error());
        }
        Ok(Limit { text: text.to_string(), figure, grows: text.as_bytes()[place] == b'>', share: percent / 100.0 })
    }
}

impl Limit {
    /// Judges by the whole interval: a value beyond the limit is undecided if its interval reaches back across it.
    pub fn judge(&self, comparison: &Comparison) -> Result<Judged, NoSuchOperator> {
        if self.figure == "step" {
            let step = &comparison.step;
            return Ok(self.judged(Some(step.relative), step.interval));
        }
        if let Some(name) = self.figure.strip_prefix("op:") {
            let mut every = comparison.every_operator.iter();
            let row = every.find(|row| row.name == name).ok_or_else(|| self.no_such_operator(name, comparison))?;
            return Ok(match row.relative {
                // It takes the same time to the nanosecond, or is in neither trace's steps.
                _ if row.before == row.after => self.judged(Some(0.0), Some([0.0, 0.0])),
                Some(relative) => self.judged(Some(relative), row.interval),
                None => self.grown_from_nothing(),
            });
        }
        let long = FIGURES.iter().find(|(short, _)| *short == self.figure).map(|(_, long)| *long);
        let is_in = |list: &[&'static str]| list.iter().any(|name| Some(*name) == long);
        let Some(row) = comparison.figures.iter().find(|row| Some(row.name.as_str()) == long) else {
            return Ok(self.open(match () {
                () if is_in(&comparison.withheld) => "withheld: a trace does not show it",
                () if is_in(&comparison.one_sided) => "one of the traces does not record it",
                () => "neither trace has this figure",
            }));
        };
        Ok(match row.relative {
            None => self.grown_from_nothing(),
            // If the kernel count varies between steps of a trace, it has an interval.
            Some(relative) if COUNTED.contains(&self.figure.as_str()) => {
                self.judged(Some(relative), row.interval.or(Some([relative, relative])))
            }
            Some(relative) => self.judged(Some(relative), row.interval),
        })
    }

    fn judged(&self, relative: Option<f64>, interval: Option<[f64; 2]>) -> Judged {
        let Some([low, high]) = interval else {
            return Judged { relative, ..self.open("no interval: too few steps") };
        };
        let result = match self.grows {
            true if low > self.share => Answer::Fail,
            true if high <= self.share => Answer::Pass,
            false if high < self.share => Answer::Fail,
            false if low >= self.share => Answer::Pass,
            _ => Answer::Undecided,
        };
        Judged { limit: self.text.clone(), result, relative, interval, note: None }
    }

    fn open(&self, why: &'static str) -> Judged {
        let limit = self.text.clone();
        Judged { limit, result: Answer::Undecided, relative: None, interval: None, note: Some(why) }
    }

    /// Growth from zero exceeds every relative limit.
    fn grown_from_nothing(&self) -> Judged {
        let result = if self.grows { Answer::Fail } else { Answer::Pass };
        let note = Some("it is zero in the trace before");
        Judged { limit: self.text.clone(), result, relative: None, interval: None, note }
    }

    fn no_such_operator(&self, name: &str, comparison: &Comparison) -> NoSuchOperator {
        let (text, name) = (self.text.clone(), name.to_string());
        let some: Vec<&str> = comparison.every_operator.iter().take(3).map(|row| row.name.as_str()).collect();
        let nearest = match some.is_empty() {
            true => "the traces have no operators".to_string(),
            false => format!("use an operator's name from the trace, such as {}", some.join(", ")),
        };
        NoSuchOperator { text, name, nearest }
    }
}

#[cfg(test)]
mod tests {
    use super::super::change::{Change, StepChange, Unit};
    use super::*;

    #[test]
    fn a_limit_names_a_figure_and_a_share() {
        let limit: Limit = "step>5%".parse().expect("is a limit");
        assert_eq!((limit.figure.as_str(), limit.grows, limit.share), ("step", true, 0.05));
        assert!("op:aten::mm > 10 %".parse::<Limit>().is_ok());
        for wrong in ["step", "step>5", "speed>5%", "step>x%", ">5%", "op:>5%", "step>inf%"] {
            assert!(wrong.parse::<Limit>().is_err(), "{wrong}");
        }
    }

    fn comparison(interval: Option<[f64; 2]>) -> Comparison {
        let step = StepChange {
            before_seconds: 1.0,
            after_seconds: 1.022,
            relative: 0.022,
            interval,
            timed_without_profiler: false,
        };
        let row = |name: &str, unit, before: f64, after: f64, interval| {
            let relative = (before != 0.0).then(|| after / before - 1.0);
            Change { name: name.into(), unit, before, after, relative, interval }
        };
        Comparison {
            before: "a".into(),
            after: "b".into(),
            step,
            figures: vec![
                row("peak memory bytes", Unit::Bytes, 100.0, 110.0, None),
                row("idle seconds per step", Unit::Seconds, 1.0, 1.5, None),
            ],
            operators: vec![],
            kernels: vec![],
            changes: vec![],
            findings_gone: vec![],
            findings_new: vec![],
            findings_grown: vec![],
            withheld: vec![],
            one_sided: vec![],
            notes: vec![],
            gates: vec![],
            every_operator: vec![
                row("aten::mm", Unit::Seconds, 1.0, 1.3, Some([0.25, 0.35])),
                row("aten::new", Unit::Seconds, 0.0, 0.1, None),
                row("aten::same", Unit::Seconds, 0.5, 0.5, None),
            ],
        }
    }

    fn answer(limit: &str, interval: Option<[f64; 2]>) -> Answer {
        limit.parse::<Limit>().expect("is a limit").judge(&comparison(interval)).expect("a figure").result
    }

    #[test]
    fn a_point_beyond_the_limit_decides_nothing_while_its_interval_reaches_over_it() {
        let wide = Some([-0.35, 0.39]);
        assert_eq!(answer("step>1%", wide), Answer::Undecided);
        assert_eq!(answer("step>40%", wide), Answer::Pass);
        assert_eq!(answer("step<-1%", wide), Answer::Undecided);
        assert_eq!(answer("step<-36%", wide), Answer::Pass);
        let narrow = Some([0.020, 0.024]);
        assert_eq!(answer("step>1%", narrow), Answer::Fail);
        assert_eq!(answer("step>2.4%", narrow), Answer::Pass);
        assert_eq!(answer("step<3%", narrow), Answer::Fail);
        assert_eq!(answer("step>1%", None), Answer::Undecided, "one step has no interval");
    }

    #[test]
    fn counted_figures_are_judged_as_they_are_and_times_are_not() {
        assert_eq!(answer("memory>5%", None), Answer::Fail);
        assert_eq!(answer("memory>10.1%", None), Answer::Pass);
        assert_eq!(answer("idle>5%", None), Answer::Undecided);
        assert_eq!(answer("launches>5%", None), Answer::Undecided, "neither trace has launches");
    }

    #[test]
    fn operators_have_intervals_of_their_own_and_unknown_ones_are_refused() {
        assert_eq!(answer("op:aten::mm>20%", None), Answer::Fail);
        assert_eq!(answer("op:aten::mm>30%", None), Answer::Undecided);
        assert_eq!(answer("op:aten::mm>40%", None), Answer::Pass);
        assert_eq!(answer("op:aten::new>1%", None), Answer::Fail);
        assert_eq!(answer("op:aten::same>0%", None), Answer::Pass);
        let unknown = "op:aten::nm>1%".parse::<Limit>().expect("is a limit").judge(&comparison(None));
        let said = unknown.expect_err("no such operator").to_string();
        assert!(said.contains("`aten::nm`") && said.contains("aten::mm"), "{said}");
    }
}
