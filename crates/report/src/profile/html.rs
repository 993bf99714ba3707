//! The report as one HTML page: styles, plots and the few lines of script are inside, nothing is fetched.

use super::Profile;
use super::breakdown_bar::breakdown_bar;
use super::memory_plot::memory_plot;
use super::roofline_plot::roofline_plot;
use super::tables;
use crate::attribution;
use crate::page::{Page, list, matrix, note, table};
use crate::svg::escape;

pub fn html(profile: &Profile) -> String {
    let mut page = Page::new(&tables::title(profile), &tables::subtitle(profile));
    let mut section = |title: &str, content: String| page.section(title, &content);
    section("Summary", table(&tables::summary(profile), "plain"));
    section("Where a step goes", breakdown_bar(profile) + &table(&tables::breakdown(profile), "narrow"));
    section(
        "Top operators by self time",
        table(&tables::top_operators(profile), "")
            + &note(
                "Bytes count every input once and every output once. Above 100% of its roof an operator found its data in a cache.",
            ),
    );
    section("Patterns", table(&tables::patterns(profile), "narrow"));
    section("Roofline", format!("<figure>{}{ROOFLINE_LEGEND}</figure>", roofline_plot(profile)));
    section(
        "Memory",
        format!("<figure>{}{}</figure>", memory_plot(profile), memory_legend(profile))
            + &table(&tables::memory(profile), "narrow")
            + &list(&tables::memory_notes(profile)),
    );
    section(
        "Bottlenecks",
        table(&tables::bottlenecks(profile), "")
            + &note("Speed-ups are upper bounds from measured times and the machine's roofs: computed, not promised."),
    );
    section("Impact against effort", quadrants(profile));
    section("Furthest from the roof", table(&tables::targets(profile), ""));
    section(
        "The workshop's classes",
        table(&tables::workshop_classes(profile), "narrow")
            + &note("Fixed thresholds, shown beside; this report goes by the machine's own ridge point."),
    );
    if let Some(record) = profile.attribution {
        section("What was updated", attribution::html(record));
    }
    page.finish()
}

const ROOFLINE_LEGEND: &str = "<figcaption class=\"legend\"><span><i class=\"compute_bound\"></i>compute roof</span> \
    <span><i class=\"memory_bound\"></i>memory roof</span> <span><i class=\"overhead_bound\"></i>cost of the call itself</span> \
    <span><i class=\"whole\"></i>the whole step</span> A point is one operator at one kind of place; its area stands for time. \
    Points above the memory roof found their data in a cache.</figcaption>";

fn memory_legend(profile: &Profile) -> String {
    let categories = profile.timeline.categories.iter();
    let items: String = categories
        .map(|name| format!("<span><i class=\"{name}\"></i>{}</span> ", escape(&name.replace('_', " "))))
        .collect();
    format!("<figcaption class=\"legend\">{items}Step {}.</figcaption>", profile.steps.0)
}

/// A flag is code, a sentence is not.
fn remedy(text: &str) -> String {
    if text.starts_with("--") { format!("`{text}`") } else { text.into() }
}

fn quadrants(profile: &Profile) -> String {
    let items = tables::matrix(profile).map(|(title, rows)| {
        (title, rows.iter().map(|row| format!("{}: {}", row.category, remedy(&row.remedy))).collect())
    });
    matrix(&items)
}
