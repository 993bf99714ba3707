//! The ranks of a run: their figures, one step of each below the other, and the speed of collectives.

use std::fmt::Write as _;

use headroom_diagnosis::Analysis;
use headroom_diagnosis::constants::ranks::FEWEST_MEETINGS;
use headroom_diagnosis::measures::ranks::strips::Strip;
use headroom_diagnosis::measures::ranks::{CollectiveRow, RankRow, Ranks};

use super::{milliseconds, percent};
use crate::numbers::{bytes, metric};
use crate::page::{list, note, table};
use crate::svg::escape;
use crate::table::{Table, columns, markdown_list, markdown_table};

const MOST_COLLECTIVES: usize = 15;

pub const HEAD: [&str; 11] = [
    "rank",
    "per step",
    "busy",
    "compute",
    "exposed",
    "transfer",
    "waited",
    "waits most for",
    "others wait for it",
    "arrived last",
    "pipeline wait",
];

fn cells(row: &RankRow, analysis: &Analysis) -> Vec<String> {
    let waited = row.waited_seconds / analysis.steps.count();
    let waits_for = row.waits_for.map(|rank| format!("rank {rank}: {}", milliseconds(row.waits_for_seconds)));
    let time = |seconds: f64| if seconds > 0.0 { milliseconds(seconds) } else { "-".to_string() };
    vec![
        row.rank.to_string(),
        milliseconds(row.step_seconds),
        percent(row.busy_share),
        milliseconds(row.compute_seconds),
        time(row.exposed_seconds),
        time(row.transfer_seconds),
        time(waited),
        waits_for.unwrap_or_else(|| "-".to_string()),
        time(row.caused_seconds),
        if row.met > 0 { percent(row.last_share) } else { "-".to_string() },
        time(row.pipeline_wait_seconds),
    ]
}

pub const COLLECTIVE_HEAD: [&str; 9] =
    ["collective", "among", "message", "per step", "transfer", "longest wait", "algorithm", "bus", "share of link"];

fn collective(row: &CollectiveRow) -> Vec<String> {
    let rate = |rate: Option<f64>| rate.map(|rate| metric(rate, "B/s")).unwrap_or_else(|| "-".into());
    let of_link = row.bus_bytes_per_second.zip(row.link_bytes_per_second).map(|(bus, link)| percent(bus / link));
    vec![
        row.kind.name().to_string(),
        row.group_size.to_string(),
        if row.bytes > 0 { bytes(row.bytes) } else { "-".into() },
        format!("{:.1}", row.count),
        milliseconds(row.transfer_seconds),
        milliseconds(row.longest_wait_seconds),
        rate(row.algorithm_bytes_per_second),
        rate(row.bus_bytes_per_second),
        of_link.unwrap_or_else(|| "-".into()),
    ]
}

pub(super) fn who(ranks: &Ranks) -> String {
    match ranks.straggler {
        Some(rank) => format!("Rank {rank} is the straggler: the others wait for it."),
        None if ranks.meetings >= FEWEST_MEETINGS.get() && ranks.missing_ranks.is_empty() => {
            "No rank stands out as a straggler.".into()
        }
        None => String::new(),
    }
}

fn notes(ranks: &Ranks) -> Vec<String> {
    Some(who(ranks)).filter(|who| !who.is_empty()).into_iter().chain(ranks.notes.iter().cloned()).collect()
}

fn rank_table(ranks: &Ranks, analysis: &Analysis) -> Table {
    Table { head: HEAD.to_vec(), rows: ranks.ranks.iter().map(|row| cells(row, analysis)).collect() }
}

/// `None` if there are no collectives.
fn collective_table(ranks: &Ranks) -> Option<Table> {
    let rows: Vec<Vec<String>> = ranks.collectives.iter().take(MOST_COLLECTIVES).map(collective).collect();
    (!rows.is_empty()).then(|| Table { head: COLLECTIVE_HEAD.to_vec(), rows })
}

/// The cells of the tables, and notes on them.
pub struct Shown {
    pub notes: Vec<String>,
    pub ranks: Vec<Vec<String>>,
    pub collectives: Vec<Vec<String>>,
}

pub fn shown(analysis: &Analysis) -> Option<Shown> {
    let ranks = analysis.ranks.as_ref()?;
    Some(Shown {
        notes: notes(ranks),
        ranks: rank_table(ranks, analysis).rows,
        collectives: collective_table(ranks).map(|table| table.rows).unwrap_or_default(),
    })
}

pub fn text(analysis: &Analysis) -> String {
    let Some(ranks) = &analysis.ranks else { return String::new() };
    let mut out = format!("\nRanks ({} collectives in common):\n", ranks.meetings);
    out += &columns(&rank_table(ranks, analysis));
    for note in notes(ranks) {
        let _ = writeln!(out, "  {note}");
    }
    if let Some(table) = collective_table(ranks) {
        let _ = write!(out, "\n{}", columns(&table));
    }
    out
}

pub fn markdown(analysis: &Analysis) -> String {
    let Some(ranks) = &analysis.ranks else { return String::new() };
    let tables = [Some(rank_table(ranks, analysis)), collective_table(ranks)];
    let tables: Vec<String> = tables.iter().flatten().map(markdown_table).collect();
    format!("\n## Ranks\n\n{}\n{}", tables.join("\n"), markdown_list(&notes(ranks)))
}

pub fn html(analysis: &Analysis) -> String {
    let Some(ranks) = &analysis.ranks else { return String::new() };
    let mut out = list(&notes(ranks));
    out += &selector(ranks);
    out += &timelines(ranks);
    out += &table(&rank_table(ranks, analysis), "narrow ranks");
    out += &note(
        "Times per step. Exposed: in collectives that overlap no compute. Waited: in collectives, until the last rank arrived.",
    );
    if let Some(collectives) = collective_table(ranks) {
        out += &table(&collectives, "narrow");
        out += &note(
            "Medians. Algorithm: message size divided by transfer time. Bus: the rate on each link. Share of link: the \
             bus rate as a share of the datasheet's, within one machine.",
        );
    }
    out
}

/// A selector for the rank whose row and timeline stay highlighted.
fn selector(ranks: &Ranks) -> String {
    let option = |row: &RankRow| format!("<option value=\"{0}\">rank {0} ({1})</option>", row.rank, escape(&row.trace));
    let options: String = ranks.ranks.iter().map(option).collect();
    format!("<p><label>Show <select id=\"rank\"><option value=\"\">all ranks</option>{options}</select></label></p>\n")
}

/// One step of every rank, one below the other.
fn timelines(ranks: &Ranks) -> String {
    let strips = &ranks.strips;
    if strips.seconds <= 0.0 {
        return String::new();
    }
    const LEFT: f64 = 60.0;
    const WIDTH: f64 = 690.0;
    const ROW: f64 = 22.0;
    let height = ROW * strips.ranks.len() as f64 + 22.0;
    let mut out =
        format!("<figure><svg viewBox=\"0 0 760 {height}\" role=\"img\" aria-label=\"One step of every rank\">");
    let x = |seconds: f64| LEFT + WIDTH * seconds / strips.seconds;
    let parts = |out: &mut String, row: &RankRow, strip: &Strip, top: f64| {
        for (class, name, spans) in [
            ("part0", "compute", &strip.compute),
            ("part2", "transfer", &strip.transfer),
            ("part5", "waiting", &strip.wait),
        ] {
            // Compute is drawn above collectives, so that hidden communication shows as both.
            let (y, height) = if class == "part0" { (top, 9.0) } else { (top + 9.0, 9.0) };
            for [from, to] in spans {
                let tip = format!("rank {}: {name}\n{}", row.rank, milliseconds(to - from));
                let _ = write!(
                    out,
                    "<rect class=\"{class}\" x=\"{:.2}\" y=\"{y:.1}\" width=\"{:.2}\" height=\"{height}\" data-tip=\"{}\"/>",
                    x(*from),
                    (x(*to) - x(*from)).max(0.3),
                    escape(&tip)
                );
            }
        }
    };
    for (index, (row, strip)) in ranks.ranks.iter().zip(&strips.ranks).enumerate() {
        let top = ROW * index as f64;
        let _ = write!(
            out,
            "<g data-rank=\"{}\"><text class=\"tick\" x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">rank {}</text>",
            row.rank,
            LEFT - 6.0,
            top + 13.0,
            row.rank
        );
        parts(&mut out, row, strip, top);
        out.push_str("</g>");
    }
    for quarter in 0..=4 {
        let seconds = strips.seconds * f64::from(quarter) / 4.0;
        let _ = write!(
            out,
            "<text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"{}\">{}</text>",
            x(seconds),
            height - 6.0,
            if quarter == 4 { "end" } else { "middle" },
            milliseconds(seconds)
        );
    }
    let legend: String = [("part0", "compute"), ("part2", "transfer"), ("part5", "waiting for another rank")]
        .map(|(class, name)| format!("<span><i class=\"{class}\"></i>{name}</span> "))
        .concat();
    out + &format!("</svg><figcaption class=\"legend\">{legend}{}</figcaption></figure>\n", escape(&strips.step))
}
