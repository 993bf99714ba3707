//! The result of a race as rows, verdicts, Markdown and JSON.

use std::fmt::Write as _;

use headroom_record::race::{RaceRecord, disturbance_of};
use headroom_record::turns::Speedup;
use serde_json::{Value, json};

use super::contestant::Answer;
use super::machine::Machine;
use super::race::Rounds;
use super::statistics::{Spread, spread};

/// One finished size and pairing.
pub struct Row {
    pub size: String,
    pub pairing: String,
    pub steps: usize,
    pub ours: Side,
    pub peer: Side,
    /// The peer's time over ours, over the rounds that count.
    pub speed: Speedup,
    pub race: RaceRecord,
    /// Our peak memory over the peer's.
    pub memory: f64,
}

pub struct Side {
    pub variant: String,
    /// Milliseconds per step.
    pub time: Spread,
    /// One median per round that counts.
    pub rounds_ms: Vec<f64>,
    pub peak_mb: f64,
    pub loss: f64,
}

/// Thresholds that a row must meet.
pub struct Gate {
    pub pairing: &'static str,
    pub size: &'static str,
    pub speed_at_least: f64,
    pub memory_below: f64,
}

pub struct Verdict {
    pub line: String,
    pub holds: bool,
}

/// The circumstances of a report.
pub struct Setting {
    pub date: String,
    pub machine: Machine,
    pub threads: usize,
    pub headroom: String,
    pub peer: String,
    pub command: String,
}

pub fn row(size: &str, pairing: &str, variants: [&str; 2], rounds: &Rounds) -> Row {
    let [ours, peer] = [(variants[0], &rounds.ours, 0), (variants[1], &rounds.peer, 1)]
        .map(|(variant, answers, side_of)| side(variant, answers, &rounds.raced.times(side_of)));
    Row {
        size: size.to_string(),
        pairing: pairing.to_string(),
        steps: rounds.steps,
        speed: rounds.raced.speedup(0, 1),
        race: RaceRecord::of(&rounds.raced, vec!["headroom".into(), "peer".into()]),
        memory: ours.peak_mb / peer.peak_mb,
        ours,
        peer,
    }
}

fn side(variant: &str, answers: &[Answer], seconds: &[f64]) -> Side {
    let rounds_ms: Vec<f64> = seconds.iter().map(|seconds| 1e3 * seconds).collect();
    Side {
        variant: variant.to_string(),
        time: spread(&rounds_ms),
        rounds_ms,
        peak_mb: answers.iter().map(|answer| answer.peak_mb).fold(0.0, f64::max),
        loss: answers.last().map_or(f64::NAN, |answer| answer.loss),
    }
}

/// The ends of an interval; a single round has none.
fn ends(speed: &Speedup) -> String {
    if speed.rounds < 2 { "no interval".into() } else { format!("{:.2} to {:.2}", speed.low, speed.high) }
}

/// One line per requirement of a gate on a row that was raced.
pub fn verdicts(rows: &[Row], gates: &[Gate]) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    for row in rows {
        for gate in gates.iter().filter(|gate| gate.size == row.size && gate.pairing == row.pairing) {
            let Speedup { ratio, low, high, .. } = row.speed;
            let speed = format!("{ratio:.2}× (95%: {}), at least {:.2}×", ends(&row.speed), gate.speed_at_least);
            let memory = format!("{:.2} of the peer's, below {:.2}", row.memory, gate.memory_below);
            // Speed is judged by its whole interval; one that contains the limit is undecided and does not fail the
            // gate.
            let speed_word = match () {
                () if low >= gate.speed_at_least => "pass",
                () if high < gate.speed_at_least => "FAIL",
                () => "not decided",
            };
            let memory_word = if row.memory < gate.memory_below { "pass" } else { "FAIL" };
            for (what, word) in [(format!("speed {speed}"), speed_word), (format!("peak memory {memory}"), memory_word)]
            {
                let line = format!("{word}: {} {}: {what}", row.size, row.pairing);
                verdicts.push(Verdict { line, holds: word != "FAIL" });
            }
        }
    }
    verdicts
}

pub fn markdown(title: &str, setting: &Setting, rows: &[Row], verdicts: &[Verdict]) -> String {
    let Setting { date, machine, threads, headroom, peer, command } = setting;
    let mut text = format!("# {title}\n\n`{command}`, {date}\n\n");
    let Machine { cpu, physical_cores, logical_cores } = machine;
    // Writing to a String cannot fail.
    let _ = writeln!(text, "{cpu}, {physical_cores} cores ({logical_cores} logical), {threads} threads each side.");
    let _ = writeln!(text, "Headroom {headroom}; {peer}.\n");
    text += "Times are milliseconds per step, median over rounds (10th to 90th percentile); sides take turns, and the one that waits is stopped. Ratios are trimmed means over the rounds.\n\n";
    text += "| size | variants | rounds × steps | Headroom | peer | speed ratio (95%) | peak MB | memory ratio |\n";
    text += "|---|---|---|---|---|---|---|---|\n";
    for row in rows {
        let time = |side: &Side| format!("{:.1} ({:.1} to {:.1})", side.time.median, side.time.p10, side.time.p90);
        let _ = writeln!(
            text,
            "| {} | {} : {} | {} × {} | {} | {} | {:.2} ({}) | {:.0} : {:.0} | {:.2} |",
            row.size,
            row.ours.variant,
            row.peer.variant,
            row.ours.rounds_ms.len(),
            row.steps,
            time(&row.ours),
            time(&row.peer),
            row.speed.ratio,
            ends(&row.speed),
            row.ours.peak_mb,
            row.peer.peak_mb,
            row.memory,
        );
    }
    if let Some(disturbed) = disturbance_of(&rows.iter().map(|row| row.race.clone()).collect::<Vec<_>>()) {
        let _ = writeln!(text, "\n{disturbed}");
    }
    if !verdicts.is_empty() {
        text.push('\n');
    }
    for verdict in verdicts {
        let _ = writeln!(text, "- {}", verdict.line);
    }
    text
}

pub fn to_json(setting: &Setting, rows: &[Row], verdicts: &[Verdict]) -> Value {
    let side = |side: &Side| {
        let Spread { p10, median, p90 } = side.time;
        json!({
            "variant": side.variant, "ms_per_step": median, "p10": p10, "p90": p90, "rounds": side.rounds_ms,
            "peak_mb": side.peak_mb, "loss": side.loss,
        })
    };
    let rows: Vec<Value> = rows
        .iter()
        .map(|row| {
            json!({
                "size": row.size, "pairing": row.pairing, "steps_per_round": row.steps,
                "headroom": side(&row.ours), "peer": side(&row.peer),
                "speed_ratio": {"value": row.speed.ratio, "low": row.speed.low, "high": row.speed.high},
                "memory_ratio": row.memory, "race": row.race,
            })
        })
        .collect();
    let gates: Vec<Value> =
        verdicts.iter().map(|verdict| json!({"text": verdict.line, "pass": verdict.holds})).collect();
    json!({
        "schema_version": 1, "date": setting.date, "command": setting.command, "machine": setting.machine.to_json(),
        "threads": setting.threads, "headroom": setting.headroom, "peer": setting.peer, "rows": rows, "gates": gates,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_record::turns::{self, Turn};

    const GATES: &[Gate] = &[Gate { pairing: "v1", size: "tiny", speed_at_least: 1.3, memory_below: 1.0 }];

    fn answers(ms_per_step: f64, peak_mb: f64) -> Vec<Answer> {
        // Peak memory only grows, so it is that of the last answer.
        [peak_mb / 2.0, peak_mb].map(|peak_mb| Answer { ms_per_step, peak_mb, loss: 6.9, all: Value::Null }).into()
    }

    fn tiny_row(ours: (f64, f64), peer: (f64, f64)) -> Row {
        let mut raced = turns::Rounds::new(1);
        let sides = [raced.join(), raced.join()];
        let turn = |ms: f64| Turn { seconds: ms / 1e3, interference: None, is_disturbed: false };
        (0..2).for_each(|_| raced.push(&[(sides[0], turn(ours.0)), (sides[1], turn(peer.0))]));
        let rounds = Rounds { steps: 10, ours: answers(ours.0, ours.1), peer: answers(peer.0, peer.1), raced };
        row("tiny", "v1", ["v1-fp32", "v1-fp32"], &rounds)
    }

    fn setting() -> Setting {
        let machine = Machine { cpu: "Some CPU".to_string(), physical_cores: 2, logical_cores: 4 };
        let [headroom, peer] = ["0.1.0 (commit abc)", "PyTorch 2.15.0"].map(str::to_string);
        Setting {
            date: "2026-01-31".into(),
            machine,
            threads: 2,
            headroom,
            peer,
            command: "cargo xtask bench cpu".into(),
        }
    }

    fn check_gates(row: Row, want: [&str; 2]) {
        let found = verdicts(&[row], GATES);
        assert_eq!(found.iter().map(|verdict| verdict.line.as_str()).collect::<Vec<_>>(), want);
        assert!(found.iter().all(|verdict| verdict.holds == verdict.line.starts_with("pass")));
    }

    #[test]
    fn a_row_that_meets_its_gate_passes() {
        check_gates(
            tiny_row((100.0, 50.0), (131.0, 100.0)),
            [
                "pass: tiny v1: speed 1.31× (95%: 1.31 to 1.31), at least 1.30×",
                "pass: tiny v1: peak memory 0.50 of the peer's, below 1.00",
            ],
        );
    }

    #[test]
    fn a_row_that_is_too_slow_or_too_large_fails() {
        check_gates(
            tiny_row((100.0, 100.0), (129.0, 100.0)),
            [
                "FAIL: tiny v1: speed 1.29× (95%: 1.29 to 1.29), at least 1.30×",
                "FAIL: tiny v1: peak memory 1.00 of the peer's, below 1.00",
            ],
        );
    }

    #[test]
    fn a_speed_whose_interval_holds_the_limit_is_not_decided() {
        let mut row = tiny_row((100.0, 50.0), (129.0, 100.0));
        row.speed = Speedup { ratio: 1.29, low: 1.2, high: 1.4, rounds: 9 };
        let found = verdicts(&[row], GATES);
        assert_eq!(found[0].line, "not decided: tiny v1: speed 1.29× (95%: 1.20 to 1.40), at least 1.30×");
        assert!(found[0].holds);
    }

    #[test]
    fn one_round_has_no_interval_and_disturbed_ones_are_counted() {
        let mut row = tiny_row((100.0, 50.0), (129.0, 100.0));
        row.speed = Speedup { ratio: 1.29, low: 0.0, high: f64::MAX, rounds: 1 };
        row.race = RaceRecord { rounds: 9, disturbed_rounds: 1, dropped_rounds: vec![3], ..row.race };
        let text = markdown("t", &setting(), &[row], &[]);
        assert!(
            text.contains("| 1.29 (no interval) |") && text.contains("Rounds that do not count: 1 of 9."),
            "{text}"
        );
    }

    #[test]
    fn a_row_without_a_gate_has_no_verdict() {
        let mut row = tiny_row((1.0, 1.0), (1.0, 1.0));
        row.size = "medium".to_string();
        assert!(verdicts(&[row], GATES).is_empty());
    }

    #[test]
    fn markdown_names_the_setting_and_holds_a_line_a_row_and_verdict() {
        let rows = [tiny_row((100.0, 50.0), (131.0, 100.0))];
        let text = markdown("Training on the CPU", &setting(), &rows, &verdicts(&rows, GATES));
        for part in [
            "# Training on the CPU\n\n`cargo xtask bench cpu`, 2026-01-31\n",
            "Some CPU, 2 cores (4 logical), 2 threads each side.\nHeadroom 0.1.0 (commit abc); PyTorch 2.15.0.\n",
            "| tiny | v1-fp32 : v1-fp32 | 2 × 10 | 100.0 (100.0 to 100.0) | 131.0 (131.0 to 131.0) | 1.31 (1.31 to 1.31) | 50 : 100 | 0.50 |\n",
            "\n- pass: tiny v1: speed 1.31×",
        ] {
            assert!(text.contains(part), "{part:?} is not in\n{text}");
        }
        assert!(text.ends_with('\n') && text.lines().all(|line| !line.ends_with(' ')), "{text}");
    }

    #[test]
    fn json_keeps_every_round() {
        let rows = [tiny_row((100.0, 50.0), (130.0, 100.0))];
        let json = to_json(&setting(), &rows, &verdicts(&rows, GATES));
        let close = |value: &Value, wanted: f64| (value.as_f64().expect("a number") - wanted).abs() < 1e-9;
        let kept = json["rows"][0]["peer"]["rounds"].as_array().expect("rounds");
        assert!(kept.len() == 2 && kept.iter().all(|ms| close(ms, 130.0)), "{kept:?}");
        assert!(close(&json["rows"][0]["speed_ratio"]["value"], 1.3));
        assert_eq!(json["rows"][0]["race"]["dropped_rounds"], json!([]));
        assert_eq!(json["gates"][1]["pass"], json!(true));
        assert_eq!(json["machine"]["cpu"], json!("Some CPU"));
    }
}
