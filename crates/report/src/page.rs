//! The frame of every HTML report: styles and the short script are inlined, nothing is fetched.

use crate::svg::escape;
use crate::table::Table;
use std::fmt::Write;

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

pub struct Page {
    title: String,
    body: String,
}

impl Page {
    pub fn new(title: &str, subtitle: &str) -> Page {
        let title = escape(title);
        let body = format!("<h1>{title}</h1>\n<p class=\"sub\">{}</p>\n", escape(subtitle));
        Page { title, body }
    }

    /// `content` is HTML.
    pub fn section(&mut self, title: &str, content: &str) {
        let _ = write!(self.body, "<section><h2>{}</h2>\n{content}</section>\n", escape(title));
    }

    pub fn finish(self) -> String {
        let Page { title, body } = self;
        format!(
            "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" \
             content=\"width=device-width, initial-scale=1\"><title>{title}</title>\n<style>{STYLE}</style></head>\n\
             <body><main>\n{body}</main><div id=\"tip\" hidden></div><script>{SCRIPT}</script></body></html>\n"
        )
    }
}

/// Separates a cell's visible text from its tooltip.
const WHOLE: char = '\u{1f}';

/// A kernel's name, shortened, with the full name as a tooltip.
pub fn kernel_cell(name: &str, most: usize) -> String {
    let short = crate::names::kernel(name, most);
    if short == name { format!("`{short}`") } else { format!("`{short}`{WHOLE}{}", name.replace(WHOLE, " ")) }
}

pub fn table(table: &Table, class: &str) -> String {
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
            let (shown, whole) = cell.split_once(WHOLE).unwrap_or((cell, ""));
            let title = if whole.is_empty() { String::new() } else { format!(" title=\"{}\"", escape(whole)) };
            let _ = write!(out, "<td{}{title}>{}</td>", align(column), code(shown));
        }
        out += "</tr>";
    }
    out + "</tbody></table></div>\n"
}

/// Escapes the text, with parts between backticks set as code.
pub fn code(text: &str) -> String {
    let parts = text.split('`').enumerate();
    parts
        .map(|(index, part)| if index % 2 == 1 { format!("<code>{}</code>", escape(part)) } else { escape(part) })
        .collect()
}

pub fn list(items: &[String]) -> String {
    let items: String = items.iter().map(|item| format!("<li>{}</li>", code(item))).collect();
    format!("<ul>{items}</ul>\n")
}

pub fn note(text: &str) -> String {
    format!("<p class=\"note\">{}</p>\n", escape(text))
}

/// Four quadrants of impact against effort, each with its items.
pub fn matrix(quadrants: &[(&str, Vec<String>)]) -> String {
    let mut out = String::from("<div class=\"matrix\">");
    for (title, items) in quadrants {
        let items = if items.is_empty() { "<p class=\"note\">none</p>".into() } else { list(items) };
        let _ = write!(out, "<div><h3>{}</h3>{items}</div>", escape(title));
    }
    out + "</div>\n"
}
