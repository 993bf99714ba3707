//! The answer in three sentences: what sets the pace, how much could be saved, and how far to trust it.

use headroom_diagnosis::Analysis;
use headroom_diagnosis::measures::breakdown::WhereWorkRuns;
use headroom_diagnosis::measures::trust::Verdict as Trusted;

use super::{parts, percent, true_step, withholds_idle};
use crate::numbers::seconds;

/// Smaller savings of all findings together are not worth a sentence.
const LEAST_SAVING: f64 = 0.005;
/// A second part of the step is named from this share on.
const NAMED_TOO: f64 = 0.1;

pub(crate) struct Verdict {
    pub pace: String,
    pub saving: String,
    pub trust: String,
    /// About several ranks; empty for one.
    pub ranks: String,
}

impl Verdict {
    pub fn of(analysis: &Analysis) -> Verdict {
        Verdict { pace: pace(analysis), saving: saving(analysis), trust: trust(analysis), ranks: ranks(analysis) }
    }

    /// The sentences that there are, in order; `after_trust` ends the one about trust.
    pub fn sentences(self, after_trust: &str) -> Vec<String> {
        let trust = self.trust + after_trust;
        [self.pace, self.saving, trust, self.ranks].into_iter().filter(|text| !text.is_empty()).collect()
    }
}

/// The kinds of parts of a step that may set its pace.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pace {
    Compute,
    Communication,
    Copies,
    Host,
    Stalled,
    Waits,
    Loading,
    Unknown,
}

fn pace_of(part: &str) -> Pace {
    match part {
        "compute" => Pace::Compute,
        "communication, exposed" => Pace::Communication,
        "copies and fills, exposed" => Pace::Copies,
        "idle: host busy" | "idle: launch delay" => Pace::Host,
        "idle: work queued" => Pace::Stalled,
        "idle: host waiting" => Pace::Waits,
        "idle: data loading" => Pace::Loading,
        _ => Pace::Unknown,
    }
}

/// Whether the trace says little about the run's usual steps, so that nothing can be promised.
pub(super) fn is_doubtful(analysis: &Analysis) -> bool {
    analysis.trust.verdict == Trusted::Broken || withholds(analysis, "steady-state")
}

fn withholds(analysis: &Analysis, what: &str) -> bool {
    analysis.trust.withheld.contains(&what)
}

fn pace(analysis: &Analysis) -> String {
    let breakdown = &analysis.measures.breakdown;
    let wall = breakdown.wall_seconds / analysis.steps.count();
    if wall <= 0.0 {
        return "Nothing can be measured in this trace.".into();
    }
    if withholds_idle(analysis) {
        return "The trace does not show what sets the pace: busy and idle time are withheld.".into();
    }
    if withholds(analysis, "steady-state") {
        return "One-time set-up fills much of the window, so the pace of later steps is unknown.".into();
    }
    let mut shares: Vec<(Pace, f64)> = Vec::new();
    for (name, seconds) in parts(analysis) {
        let pace = pace_of(name);
        match shares.iter_mut().find(|(other, _)| *other == pace) {
            Some((_, sum)) => *sum += seconds / wall,
            None => shares.push((pace, seconds / wall)),
        }
    }
    shares.sort_by(|left, right| right.1.total_cmp(&left.1));
    let Some(&(first, share)) = shares.first() else { return "No work was recorded in the steps.".into() };
    let on_host = breakdown.where_work_runs == WhereWorkRuns::Host;
    let second = shares.get(1).filter(|(second, share)| {
        // The sentence about the host names busy time itself.
        *share >= NAMED_TOO && (first, *second) != (Pace::Host, Pace::Compute)
    });
    let second = second.map(|&(pace, share)| also(pace, share, on_host)).unwrap_or_default();
    format!("{}{second}.", sentence(first, share, breakdown.busy_share, on_host))
}

fn sentence(pace: Pace, share: f64, busy: f64, on_host: bool) -> String {
    let (share, busy) = (percent(share), percent(busy));
    match (pace, on_host) {
        (Pace::Compute, true) => format!("Operators on the processor set the pace: they run for {share} of the step"),
        (Pace::Compute, false) => format!("The device sets the pace: it computes for {share} of the step"),
        (Pace::Communication, _) => {
            format!("Communication sets the pace: for {share} of the step nothing else runs")
        }
        (Pace::Copies, _) => format!("Copies and fills set the pace: for {share} of the step nothing else runs"),
        (Pace::Host, true) => {
            format!("Code between the operators sets the pace: for {share} of the step no operator runs")
        }
        (Pace::Host, false) => format!(
            "The host sets the pace: the device is busy for {busy} of the step and waits {share} of it for the next launch"
        ),
        (Pace::Stalled, _) => {
            format!("The device stands still for {share} of the step although work is queued")
        }
        (Pace::Waits, _) => {
            format!("Waits set the pace: for {share} of the step the device is idle while the host waits")
        }
        (Pace::Loading, _) => format!("Data loading sets the pace: for {share} of the step the next batch is awaited"),
        (Pace::Unknown, _) => format!("For {share} of the step nothing runs, and nothing recorded says why"),
    }
}

/// The second largest part, after a semicolon.
fn also(pace: Pace, share: f64, on_host: bool) -> String {
    let what = match (pace, on_host) {
        (Pace::Compute, true) => "operators run for",
        (Pace::Compute, false) => "the device computes for",
        (Pace::Communication, _) => "communication that nothing hides takes",
        (Pace::Copies, _) => "copies and fills take",
        (Pace::Host, true) => "no operator runs for",
        (Pace::Host, false) => "waits for launches take",
        (Pace::Stalled, _) => "the device stands still with work queued for",
        (Pace::Waits, _) => "the host's waits leave the device idle for",
        (Pace::Loading, _) => "data loading takes",
        (Pace::Unknown, _) => "unexplained idle time takes",
    };
    format!("; {what} {}", percent(share))
}

fn saving(analysis: &Analysis) -> String {
    let roadmap = &analysis.roadmap;
    if roadmap.total_saving_expected_share < LEAST_SAVING {
        return match () {
            () if analysis.findings.is_empty() || is_doubtful(analysis) => String::new(),
            () => "No saving is estimated for what was found.".into(),
        };
    }
    let [now, then] = [roadmap.step_seconds_now, roadmap.step_seconds_expected].map(seconds);
    let saved = percent(roadmap.total_saving_expected_share);
    match roadmap.items.len() {
        1 => format!("Expected saving: {saved} of the step, from {now} to {then}."),
        _ => format!("Expected saving of all fixes together: {saved} of the step, from {now} to {then}."),
    }
}

/// The first note, which is the worst.
fn trust(analysis: &Analysis) -> String {
    let trust = &analysis.trust;
    let word = match trust.verdict {
        Trusted::Sound => "",
        Trusted::Limited => "needs caution: ",
        Trusted::Broken => "cannot be trusted: ",
    };
    let withheld = match &trust.withheld[..] {
        [] => String::new(),
        figures => {
            let mut figures = figures.to_vec();
            figures.dedup();
            format!(" Withheld: {}.", figures.join(", "))
        }
    };
    let ended = |note: &str| if note.ends_with('.') { note.to_string() } else { format!("{note}.") };
    match (trust.verdict, trust.notes.first()) {
        (Trusted::Sound, note) => {
            let note = note.map(|note| format!("; {note}")).unwrap_or_default();
            let step = match analysis.true_step.from {
                "measured" | "given" | "estimated" => format!("; {}", true_step(analysis)),
                _ => String::new(),
            };
            format!("Trust: sound{step}{note}.")
        }
        (_, None) => format!("Trust: {}{withheld}", word.trim_end_matches(": ")),
        (_, Some(note)) => format!("Trust: {word}{}{withheld}", ended(note)),
    }
}

fn ranks(analysis: &Analysis) -> String {
    let Some(ranks) = &analysis.ranks else { return String::new() };
    let shown = analysis.trace.rank;
    let who = super::ranks::who(ranks);
    let all = format!("Ranks: {} compared; the figures here are those of rank {shown}.", ranks.ranks.len());
    if who.is_empty() { all } else { format!("{all} {who}") }
}
