//! The decision of each word of the tables: scripts with a gap, linted with each word in the gap and with another word.
//!
//! A script begins with `# words: step, idx`, the words that `WORD` stands for in it; `# other: NAME` is the word that
//! decides nothing (`quux` if there is no such line), `# file: benchmarks/WORD.py` the path it is linted under, and a line
//! `# --- PATH` begins another file. With one of the words its findings are those marked `# <- CODE`, with the other word
//! those marked `# <~ CODE`; `CODE?` is a finding that is held back. `# shows: confidence` adds that to each code
//! (`CODE/high`), `# shows: fix` the first word that the fix writes. Codes that a script does not mark are not compared.

use std::collections::BTreeSet;
use std::path::Path;

use headroom_lint::{Input, Selection, SourceFinding, lint};

const OTHER: &str = "quux";
const NEXT_FILE: &str = "# --- ";

/// Marks by file and line.
type Found = BTreeSet<(String, u32, String)>;

/// The text after `# key: ` in one of the first lines.
fn said<'a>(script: &'a str, key: &str) -> Option<&'a str> {
    let mut heads = script.lines().take_while(|line| line.starts_with("# "));
    heads.find_map(|line| line.strip_prefix("# ")?.strip_prefix(key)?.strip_prefix(": "))
}

/// The files of a script, with a word in its gaps.
fn files(script: &str, word: &str) -> Vec<(String, String)> {
    let path = said(script, "file").unwrap_or("train.py");
    let mut files = vec![(path.replace("WORD", word), String::new())];
    for line in script.replace("WORD", word).lines() {
        if let Some(path) = line.strip_prefix(NEXT_FILE) {
            files.push((path.to_string(), String::new()));
        }
        files.iter_mut().last().expect("a file").1.extend([line, "\n"]);
    }
    files
}

fn marked(files: &[(String, String)], arrow: &str) -> Found {
    let of_line = |(number, line): (u32, &str)| {
        let pieces = line.split("# <").skip(1).filter_map(|piece| piece.strip_prefix(arrow)).collect::<String>();
        pieces.split_whitespace().map(|mark| (number, mark.to_string())).collect::<Vec<_>>()
    };
    let of_file = |(path, text): &(String, String)| {
        let marks = (1..).zip(text.lines()).flat_map(of_line);
        marks.map(|(line, mark)| (path.clone(), line, mark)).collect::<Vec<_>>()
    };
    files.iter().flat_map(of_file).collect()
}

fn code(mark: &str) -> &str {
    mark.split(['?', '/']).next().unwrap_or_default()
}

fn found(files: &[(String, String)], shows: Option<&str>) -> Found {
    let input = |(path, text): &(String, String)| Input { path: path.clone(), bytes: text.clone().into_bytes() };
    let report = lint(&files.iter().map(input).collect::<Vec<_>>(), &Selection::default());
    assert!(report.problems.is_empty(), "{:?}", report.problems);
    let mark = |finding: &SourceFinding, held_back: &str| {
        let more = match shows {
            Some("confidence") => format!("/{:?}", finding.confidence).to_lowercase(),
            Some("fix") => {
                let written = finding.fix.edits.first().and_then(|edit| edit.text.split_whitespace().next());
                format!("/{}", written.unwrap_or("-"))
            }
            _ => String::new(),
        };
        (finding.place.file.clone(), finding.place.line, format!("{}{held_back}{more}", finding.code))
    };
    let shown = report.findings.iter().map(|finding| mark(finding, ""));
    shown.chain(report.held_back.iter().map(|finding| mark(finding, "?"))).collect()
}

/// The words with which a script's findings are not those marked.
pub fn faults(name: &str, script: &str) -> Vec<String> {
    let Some(words) = said(script, "words") else { return vec![format!("{name}: no line `# words: …`")] };
    let other = said(script, "other").unwrap_or(OTHER);
    let cases = words.split(", ").map(|word| (word, "- ", "~ ")).chain([(other, "~ ", "- ")]);
    let fault = |(word, arrow, against): (&str, &str, &str)| {
        let files = files(script, word);
        let (wanted, against) = (marked(&files, arrow), marked(&files, against));
        let codes: BTreeSet<&str> = wanted.iter().chain(&against).map(|(_, _, mark)| code(mark)).collect();
        let mut found = found(&files, said(script, "shows"));
        found.retain(|(_, _, mark)| codes.contains(code(mark)));
        let (missing, beyond) = (wanted.difference(&found), found.difference(&wanted));
        let (missing, beyond): (Vec<_>, Vec<_>) = (missing.collect(), beyond.collect());
        match wanted == against {
            true => Some(format!("{name}, `{word}`: the word decides nothing")),
            false => (found != wanted).then(|| format!("{name}, `{word}`: missing {missing:?}, beyond {beyond:?}")),
        }
    };
    cases.filter_map(fault).collect()
}

#[test]
fn each_word_decides_what_its_scripts_say() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/words");
    let entries = std::fs::read_dir(folder).expect("a folder of scripts");
    let mut wrong = Vec::new();
    for entry in entries {
        let path = entry.expect("an entry").path();
        let script = std::fs::read_to_string(&path).expect("a script");
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        wrong.extend(faults(&name, &script));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
