//! The nodes that a run updated: a table, a plain answer, and a heat map of nodes over steps.

use crate::numbers::grouped;
use crate::page;
use crate::svg::escape;
use crate::table::{Table, columns, markdown_table};
use headroom_record::attribution::AttributionRecord;
use std::fmt::Write;

/// The number of nodes listed in a terminal.
const LISTED: usize = 8;

/// Text before a run's summary.
pub fn terminal(record: &AttributionRecord) -> String {
    let mut table = table(record);
    let left = table.rows.split_off(LISTED.min(table.rows.len()));
    let more = match left.len() {
        0 => String::new(),
        count => format!("  and {count} more in attribution.json\n"),
    };
    format!("{}\n{}{more}{}\n\n", headline(record), columns(&table), record.working_on_now)
}

/// The same for a section of a report.
pub fn markdown(record: &AttributionRecord) -> String {
    format!("{}\n\n{}\n\n{}", record.working_on_now, headline(record), markdown_table(&table(record)))
}

pub fn html(record: &AttributionRecord) -> String {
    format!(
        "<p><strong>{}</strong></p>\n{}{}{}",
        escape(&record.working_on_now),
        page::note(&headline(record)),
        heat_map(record),
        page::table(&table(record), "narrow")
    )
}

fn headline(record: &AttributionRecord) -> String {
    format!(
        "Updated by {} over {} steps: {:.1}% of what a dense run would have updated.",
        if record.update.is_empty() { "a rule of its own" } else { &record.update },
        grouped(record.total_steps),
        100.0 * record.updated_share
    )
}

/// Nodes by number of updates, the most first; ties in the order of the model.
fn table(record: &AttributionRecord) -> Table {
    let mut order: Vec<usize> = (0..record.nodes.len()).collect();
    order.sort_by_key(|&node| (std::cmp::Reverse(record.updates[node]), node));
    let row = |node: usize| {
        let of_steps = 100.0 * record.updates[node] as f64 / record.total_steps.max(1) as f64;
        vec![
            record.nodes[node].clone(),
            record.parameters.get(node).map_or(String::new(), |count| grouped(*count)),
            grouped(record.updates[node]),
            format!("{of_steps:.1}%"),
            record.moved[node].map_or("not finite".into(), |moved| format!("{moved:.4}")),
        ]
    };
    Table {
        head: vec!["node", "parameters", "updates", "share of steps", "moved"],
        rows: order.into_iter().map(row).collect(),
    }
}

/// Columns group several steps so that there are not too many; the darker a cell, the more of its steps updated the
/// node.
fn heat_map(record: &AttributionRecord) -> String {
    const MOST_CELLS: usize = 6000;
    const ROW: f64 = 15.0;
    const LEFT: f64 = 210.0;
    const WIDTH: f64 = 540.0;
    let (nodes, steps) = (record.nodes.len(), record.steps.len());
    if nodes == 0 || steps == 0 {
        return String::new();
    }
    let most = (MOST_CELLS / nodes).clamp(1, 180);
    let together = steps.div_ceil(most);
    let count = steps.div_ceil(together);
    let mut shares = vec![vec![0.0f32; nodes]; count];
    for (step, chosen) in record.chosen.iter().enumerate() {
        for (place, &node) in chosen.iter().enumerate() {
            let share = record.shares.get(step).and_then(|row| row.get(place)).copied().unwrap_or(1.0);
            shares[step / together][node] += share;
        }
    }
    let (cell, height) = (WIDTH / count as f64, 20.0 + ROW * nodes as f64);
    let mut out = format!(
        r#"<figure><svg viewBox="0 0 760 {height:.0}" role="img" aria-label="Nodes over steps: the darker, the more of these steps updated the node">"#
    );
    for (node, name) in record.nodes.iter().enumerate() {
        let top = ROW * node as f64;
        let _ = write!(
            out,
            r#"<text class="tick" x="{:.0}" y="{:.1}" text-anchor="end">{}</text><rect x="{LEFT}" y="{:.1}" width="{WIDTH}" height="{:.1}" style="fill:var(--c1);opacity:.05"/>"#,
            LEFT - 6.0,
            top + 11.0,
            escape(name),
            top + 1.0,
            ROW - 2.0
        );
        for (column, shares) in shares.iter().enumerate().filter(|(_, shares)| shares[node] > 0.0) {
            let (first, last) = (column * together, (column * together + together).min(steps) - 1);
            let mean = shares[node] / (last - first + 1) as f32;
            let _ = write!(
                out,
                r#"<rect x="{:.2}" y="{:.1}" width="{:.2}" height="{:.1}" style="fill:var(--c1);opacity:{:.2}" data-tip="{}"/>"#,
                LEFT + cell * column as f64,
                top + 1.0,
                cell,
                ROW - 2.0,
                0.15 + 0.85 * mean,
                escape(&tip(record, node, first..=last, mean))
            );
        }
    }
    let (first, last) = (record.steps[0], record.steps[steps - 1]);
    let _ = write!(
        out,
        r#"<text class="tick" x="{LEFT}" y="{:.1}">step {first}</text><text class="tick" x="{:.0}" y="{:.1}" text-anchor="end">step {last}</text></svg></figure>"#,
        height - 5.0,
        LEFT + WIDTH,
        height - 5.0
    );
    out + "\n"
}

fn tip(record: &AttributionRecord, node: usize, steps: std::ops::RangeInclusive<usize>, mean: f32) -> String {
    let (first, last) = (record.steps[*steps.start()], record.steps[*steps.end()]);
    let share = format!("{:.0}% of a full step", 100.0 * mean);
    match first == last {
        true => format!("{}\nstep {first}: {share}", record.nodes[node]),
        false => format!("{}\nsteps {first} to {last}: {share} on average", record.nodes[node]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_record::attribution::StepChoice;

    fn record() -> AttributionRecord {
        let choice = |step: u64| StepChoice { step, shares: vec![1.0, 0.0, 0.15], norms: vec![3.0, 4.0, 1.0] };
        AttributionRecord {
            update: "path".into(),
            seed: 42,
            nodes: ["a<b>", "lm_head", "norm"].map(String::from).to_vec(),
            parameters: vec![1000, 100, 10],
            total_steps: 3,
            updates: vec![3, 0, 3],
            updated_parameters: 3030,
            ..AttributionRecord::default()
        }
        .with_choices(&(1..=3).map(choice).collect::<Vec<_>>(), &[0.5, 0.0, 0.125])
    }

    #[test]
    fn the_terminal_lists_nodes_by_updates_and_ends_with_the_answer() {
        let text = terminal(&record());
        assert_eq!(
            text.lines().collect::<Vec<_>>(),
            [
                "Updated by path over 3 steps: 91.0% of what a dense run would have updated.",
                "  node     parameters  updates  share of steps   moved",
                "  a<b>          1,000        3          100.0%  0.5000",
                "  norm             10        3          100.0%  0.1250",
                "  lm_head         100        0            0.0%  0.0000",
                "Steps 1 to 3 worked mostly on a<b> (updated at 3 of 3 steps, 98%); percentages are of the squared gradient \
                 that was followed.",
                "",
            ]
        );
    }

    #[test]
    fn the_page_has_a_cell_where_a_node_was_updated_and_its_names_stay_text() {
        let page = html(&record());
        assert_eq!(page.matches("data-tip").count(), 6);
        assert!(page.contains("step 2: 15% of a full step") && page.contains("a&lt;b&gt;") && !page.contains("<b>"));
    }
}
