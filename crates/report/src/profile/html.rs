//! The report as one HTML page: styles, plots and the few lines of script are inside, nothing is fetched.

use super::Profile;
use super::breakdown_bar::breakdown_bar;
use super::memory_plot::memory_plot;
use super::roofline_plot::roofline_plot;
use super::svg::escape;
use super::tables::{self, Table};
use std::fmt::Write;

const STYLE: &str = include_str!("profile.css");
const SCRIPT: &str = include_str!("profile.js");

pub fn html(profile: &Profile) -> String {
    let title = escape(&tables::title(profile));
    let mut body = format!("<h1>{title}</h1>\n<p class=\"sub\">{}</p>\n", escape(&tables::subtitle(profile)));
    let mut section = |title: &str, content: String| {
        let _ = write!(body, "<section><h2>{}</h2>\n{content}</section>\n", escape(title));
    };
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
    section("Impact against effort", matrix(profile));
    section("Furthest from the roof", table(&tables::targets(profile), ""));
    section(
        "The workshop's classes",
        table(&tables::workshop_classes(profile), "narrow")
            + &note("Fixed thresholds, shown beside; this report goes by the machine's own ridge point."),
    );
    page(&title, &body)
}

/// A whole page of ours around `body`; `title` is escaped already.
pub(crate) fn page(title: &str, body: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" \
         content=\"width=device-width, initial-scale=1\"><title>{title}</title>\n<style>{STYLE}</style></head>\n\
         <body><main>\n{body}</main><div id=\"tip\" hidden></div><script>{SCRIPT}</script></body></html>\n"
    )
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

pub(crate) fn table(table: &Table, class: &str) -> String {
    let align = |column: usize| if table.is_numeric(column) { " class=\"number\"" } else { "" };
    let mut out = format!("<div class=\"scroll\"><table class=\"{class}\">");
    if table.head.iter().any(|cell| !cell.is_empty()) {
        out += "<thead><tr>";
        for (column, cell) in table.head.iter().enumerate() {
            let _ = write!(out, "<th{}>{}</th>", align(column), escape(cell));
        }
        out += "</tr></thead>";
    }
    out += "<tbody>";
    for row in &table.rows {
        out += "<tr>";
        for (column, cell) in row.iter().enumerate() {
            let _ = write!(out, "<td{}>{}</td>", align(column), code(cell));
        }
        out += "</tr>";
    }
    out + "</tbody></table></div>\n"
}

/// Escaped, with what stands between backticks as code.
pub(crate) fn code(text: &str) -> String {
    let parts = text.split('`').enumerate();
    parts
        .map(|(index, part)| if index % 2 == 1 { format!("<code>{}</code>", escape(part)) } else { escape(part) })
        .collect()
}

pub(crate) fn list(items: &[String]) -> String {
    let items: String = items.iter().map(|item| format!("<li>{}</li>", code(item))).collect();
    format!("<ul>{items}</ul>\n")
}

pub(crate) fn note(text: &str) -> String {
    format!("<p class=\"note\">{}</p>\n", escape(text))
}

fn matrix(profile: &Profile) -> String {
    let mut out = String::from("<div class=\"matrix\">");
    for (title, rows) in tables::matrix(profile) {
        let items: Vec<String> = rows.iter().map(|row| format!("{}: `{}`", row.category, row.remedy)).collect();
        let items = if items.is_empty() { "<p class=\"note\">none</p>".into() } else { list(&items) };
        let _ = write!(out, "<div><h3>{}</h3>{items}</div>", escape(title));
    }
    out + "</div>\n"
}
