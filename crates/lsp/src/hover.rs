//! A rule's page, shown over its finding or over its code in a comment.

use headroom_diagnosis::trace_rules::TRACE_RULES;
use headroom_lint::{SourceFinding, rules};
use lsp_types::{Hover, HoverContents, MarkupContent, MarkupKind, Position, Range, Uri};

use crate::abilities::Client;
use crate::checked::Checked;
use crate::diagnostics;
use crate::documents::{Documents, Unit};

/// The page that `headroom explain CODE` prints.
fn page(code: &str) -> Option<&'static str> {
    let of_trace = TRACE_RULES.iter().find(|rule| rule.code.eq_ignore_ascii_case(code));
    of_trace.map(|rule| rule.page).or_else(|| rules::find(code).map(|rule| rule.page))
}

pub fn at(
    documents: &Documents,
    unit: &Unit,
    document: &Uri,
    position: Position,
    checked: &Checked,
    client: &Client,
) -> Option<Hover> {
    let open = documents.get(document)?;
    let here = |finding: &&SourceFinding| {
        let part = documents.part(&unit.uri, finding.place.cell);
        let range = diagnostics::range(finding, &open.text, client.encoding);
        part.is_some_and(|(part, _)| part == document) && range.start <= position && position <= range.end
    };
    let found: Vec<&SourceFinding> = checked.findings.iter().filter(here).collect();
    if let Some(first) = found.first() {
        let range = diagnostics::range(first, &open.text, client.encoding);
        let texts: Vec<String> = found.iter().map(|finding| of_finding(finding)).collect();
        return Some(shown(texts.join("\n\n---\n\n"), range, client));
    }
    let (word, range) = word_at(open.text.line(position.line as usize), position, client)?;
    let is_code = word.len() == 5 && (word.starts_with("TP") || word.starts_with("TR"));
    Some(shown(page(&word).filter(|_| is_code)?.to_string(), range, client))
}

fn of_finding(finding: &SourceFinding) -> String {
    let measured =
        finding.measured.as_ref().map(|measured| format!("**{}**\n\n", measured.shown())).unwrap_or_default();
    format!("{}\n\n{measured}{}", finding.message, page(finding.code).unwrap_or_default())
}

fn shown(text: String, range: Range, client: &Client) -> Hover {
    let kind = if client.shows_markdown { MarkupKind::Markdown } else { MarkupKind::PlainText };
    Hover { contents: HoverContents::Markup(MarkupContent { kind, value: text }), range: Some(range) }
}

/// The word of letters and digits around a position.
fn word_at(line: &str, position: Position, client: &Client) -> Option<(String, Range)> {
    let text = crate::text::Text::new(line.to_string());
    let at = text.offset(Position::new(0, position.character), client.encoding);
    let is_part = |letter: char| letter.is_ascii_alphanumeric();
    let start = line[..at]
        .rfind(|letter| !is_part(letter))
        .map_or(0, |before| before + line[before..].chars().next().map_or(1, char::len_utf8));
    let end = line[at..].find(|letter| !is_part(letter)).map_or(line.len(), |length| at + length);
    let mut range = text.range(start, end, client.encoding);
    range.start.line = position.line;
    range.end.line = position.line;
    (start < end).then(|| (line[start..end].to_string(), range))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_found_among_any_letters() {
        let line = "x()  # é noqa: TP101, TR104";
        let word = |character| word_at(line, Position::new(7, character), &Client::default());
        let (found, range) = word(17).expect("a word");
        assert_eq!((found.as_str(), range.start, range.end), ("TP101", Position::new(7, 15), Position::new(7, 20)));
        assert_eq!(word(27).map(|(word, _)| word).as_deref(), Some("TR104"));
        assert_eq!(word(3).map(|(word, _)| word), None);
    }

    #[test]
    fn pages_of_both_kinds_of_rules_are_known() {
        assert!(page("TP101").is_some_and(|page| page.starts_with("# TP101")));
        assert!(page("TR101").is_some_and(|page| page.starts_with("# TR101")));
        assert_eq!(page("TP999"), None);
    }
}
