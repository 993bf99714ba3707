//! `cargo xtask bench dashboard`: half a million events in Chromium, checked against the dashboard's promises.

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::Args;
use serde_json::{Value, json};

use super::machine::{self, Machine};
use super::statistics::{Spread, spread};
use crate::{Outcome, browser, process};

const OPENS_WITHIN_SECONDS: f64 = 2.0;
const FRAMES_A_SECOND: f64 = 30.0;

#[derive(Args)]
pub struct Options {
    /// How often everything is opened and panned anew
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
    rounds: u16,
    /// Where dashboard.md and dashboard.json go, such as docs/benchmarks
    #[arg(long)]
    output: Option<PathBuf>,
}

/// A figure over the rounds, and its limit.
struct Row {
    name: String,
    unit: &'static str,
    rounds: Vec<f64>,
    limit: Option<Limit>,
}

#[derive(Clone, Copy)]
enum Limit {
    Below(f64),
    AtLeast(f64),
}

pub fn run(options: &Options) -> Result<Outcome> {
    browser::make_ready()?;
    let file = process::target_folder().join("bench-dashboard.json");
    let mut rounds = vec![];
    for round in 1..=options.rounds {
        eprintln!("round {round} of {}", options.rounds);
        rounds.push(one_round(&file)?);
    }
    let rows = rows(&rounds);
    let text = markdown(&rounds[0], &rows, options);
    print!("{text}");
    if let Some(folder) = &options.output {
        let folder = process::workspace_root().join(folder);
        fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let json = json!({
            "schema_version": 1, "date": machine::today(), "machine": machine::machine().to_json(),
            "headroom": machine::headroom_version(), "browser": browser::version(), "rounds": rounds,
        });
        for (name, text) in [("dashboard.md", text), ("dashboard.json", format!("{json:#}\n"))] {
            fs::write(folder.join(name), text).with_context(|| format!("cannot write {name}"))?;
        }
    }
    Ok(Outcome::from_success(rows.iter().all(Row::holds)))
}

/// Runs the test itself: it writes the trace, starts server and browser, opens and pans.
fn one_round(file: &PathBuf) -> Result<Value> {
    let _ = fs::remove_file(file);
    let mut command =
        process::cargo(&["test", "--quiet", "--profile", "dist", "--package", "headroom-cli", "--test", "dashboard"]);
    // Figures are judged over all rounds, not round by round.
    command.args(["large_trace"]).env("HEADROOM_DASHBOARD_FIGURES", file);
    if !process::succeeds(&mut command)? {
        bail!("the dashboard's own test fails");
    }
    let text = fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    serde_json::from_str(&text).context("the test's figures do not read")
}

fn rows(rounds: &[Value]) -> Vec<Row> {
    let of = |name: &str, unit, limit, find: &dyn Fn(&Value) -> Option<f64>| Row {
        name: name.into(),
        unit,
        rounds: rounds.iter().filter_map(find).collect(),
        limit,
    };
    let opens = Some(Limit::Below(OPENS_WITHIN_SECONDS));
    let mut rows = vec![
        of("from the command to the first frame", "s", opens, &|round| round["from_the_command_seconds"].as_f64()),
        of("from opening the page to its first frame", "s", opens, &|round| round["page_seconds"].as_f64()),
    ];
    for (at, pan) in rounds[0]["panning"].as_array().into_iter().flatten().enumerate() {
        let view = pan["view"].as_str().unwrap_or_default();
        let smooth = Some(Limit::AtLeast(FRAMES_A_SECOND));
        for (what, unit, limit, key) in [
            ("panning", "frames/s", smooth, "frames_per_second"),
            ("longest frame", "ms", None, "longest_frame_ms"),
            ("longest painting", "ms", None, "longest_paint_ms"),
        ] {
            rows.push(of(&format!("{what}, {view}"), unit, limit, &|round| round["panning"][at][key].as_f64()));
        }
    }
    rows
}

impl Row {
    /// Judged by the worst round.
    fn holds(&self) -> bool {
        match self.limit {
            None => true,
            Some(Limit::Below(limit)) => self.rounds.iter().all(|figure| *figure < limit),
            Some(Limit::AtLeast(limit)) => self.rounds.iter().all(|figure| *figure >= limit),
        }
    }
}

fn markdown(round: &Value, rows: &[Row], options: &Options) -> String {
    let Machine { cpu, physical_cores, .. } = machine::machine();
    let mut text = format!("# The dashboard's timeline\n\n`cargo xtask bench dashboard`, {}\n\n", machine::today());
    // Writing to a String cannot fail.
    let _ = writeln!(
        text,
        "{cpu}, {physical_cores} cores, no GPU: the browser draws on the processor. {}; Headroom {}.\n\n\
         A trace of {} events, {:.0} MB of JSON. Opened {} times, each time with a server and a browser of its own; then a key\n\
         is held for a second at three distances. The whole run is the hardest: almost every event is in view.\n",
        browser::version(),
        machine::headroom_version(),
        round["events"],
        round["json_mb"].as_f64().unwrap_or_default(),
        options.rounds,
    );
    text += "| figure | median | lowest | highest | promised | |\n|---|---|---|---|---|---|\n";
    for row in rows {
        let Spread { median, .. } = spread(&row.rounds);
        let edge = |pick: fn(f64, f64) -> f64| row.rounds.iter().copied().reduce(pick).unwrap_or(f64::NAN);
        let digits = if row.unit == "s" { 2 } else { 1 };
        let (promised, verdict) = match row.limit {
            None => (String::new(), ""),
            Some(Limit::Below(limit)) => {
                (format!("below {limit} {}", row.unit), if row.holds() { "pass" } else { "FAIL" })
            }
            Some(Limit::AtLeast(limit)) => {
                (format!("at least {limit} {}", row.unit), if row.holds() { "pass" } else { "FAIL" })
            }
        };
        let _ = writeln!(
            text,
            "| {} | {median:.digits$} {} | {:.digits$} | {:.digits$} | {promised} | {verdict} |",
            row.name,
            row.unit,
            edge(f64::min),
            edge(f64::max),
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(opens: f64, frames: f64) -> Value {
        json!({ "events": 500_000, "json_mb": 55.0, "from_the_command_seconds": opens, "page_seconds": 0.5,
            "panning": [{ "view": "near", "frames_per_second": frames, "longest_frame_ms": 20.0, "longest_paint_ms": 3.0 }] })
    }

    #[test]
    fn the_worst_round_decides() {
        let verdicts = |rounds: &[Value]| rows(rounds).iter().map(Row::holds).collect::<Vec<_>>();
        assert_eq!(verdicts(&[round(1.9, 30.0), round(1.0, 60.0)]), [true, true, true, true, true]);
        assert_eq!(verdicts(&[round(1.0, 60.0), round(2.0, 29.9)]), [false, true, false, true, true]);
    }

    #[test]
    fn the_table_has_a_line_a_figure_with_its_promise() {
        let rounds = [round(1.5, 60.0), round(2.5, 50.0)];
        let text = markdown(&rounds[0], &rows(&rounds), &Options { rounds: 2, output: None });
        for line in [
            "| from the command to the first frame | 2.00 s | 1.50 | 2.50 | below 2 s | FAIL |",
            "| panning, near | 55.0 frames/s | 50.0 | 60.0 | at least 30 frames/s | pass |",
            "| longest frame, near | 20.0 ms | 20.0 | 20.0 |  |  |",
        ] {
            assert!(text.contains(line), "{line}\nis not in\n{text}");
        }
    }
}
