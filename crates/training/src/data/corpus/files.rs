//! The files that a folder or pattern names, in the order of their names.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::time::UNIX_EPOCH;

use headroom_record::atomic::FileError;

use super::super::DataError;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataFile {
    pub path: PathBuf,
    pub is_jsonl: bool,
    pub bytes: u64,
    /// Modification time since 1970, if the system reports one.
    pub changed_nanos: u128,
}

/// Whether it holds a wildcard character.
pub fn is_pattern(given: &str) -> bool {
    given.contains(['*', '?', '['])
}

pub fn is_jsonl(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending == "jsonl" || ending == "ndjson")
}

/// All files of a folder and its subfolders, those that match a pattern, or the one file. Names that begin with a dot
/// are skipped unless asked for.
pub fn find(given: &Path) -> Result<Vec<DataFile>, DataError> {
    let mut found = vec![];
    if given.is_dir() {
        walk(given, &mut HashSet::new(), &mut found)?;
    } else if given.exists() {
        found.push(given.to_path_buf());
    } else {
        let (base, pattern) = split(given);
        if base.is_dir() {
            walk_matching(&base, &pattern, &mut HashSet::new(), &mut found)?;
        }
    }
    found.sort();
    found.dedup();
    if found.is_empty() {
        return Err(DataError::NoFiles { path: given.to_path_buf() });
    }
    found.iter().map(|path| about(path)).collect()
}

/// The file's size and modification time now.
pub fn about(path: &Path) -> Result<DataFile, DataError> {
    let about = fs::metadata(path).map_err(FileError::new("look at", path))?;
    let changed = about.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    Ok(DataFile {
        path: path.to_path_buf(),
        is_jsonl: is_jsonl(path),
        bytes: about.len(),
        changed_nanos: changed.map_or(0, |since| since.as_nanos()),
    })
}

/// Visits each folder once, whatever links lead to it.
fn walk(folder: &Path, seen: &mut HashSet<PathBuf>, found: &mut Vec<PathBuf>) -> Result<(), DataError> {
    for path in entries(folder, seen)? {
        if path.file_name().is_some_and(is_hidden) {
            continue;
        }
        match path.is_dir() {
            true => walk(&path, seen, found)?,
            false => found.push(path),
        }
    }
    Ok(())
}

fn walk_matching(
    folder: &Path,
    pattern: &[String],
    seen: &mut HashSet<(PathBuf, usize)>,
    found: &mut Vec<PathBuf>,
) -> Result<(), DataError> {
    let Some((first, rest)) = pattern.split_first() else { return Ok(()) };
    let whole = fs::canonicalize(folder).map_err(FileError::new("list", folder))?;
    if !seen.insert((whole, pattern.len())) {
        return Ok(());
    }
    if first == "**" {
        walk_matching(folder, rest, seen, found)?;
    }
    for path in entries(folder, &mut HashSet::new())? {
        let Some(name) = path.file_name() else { continue };
        let is_folder = path.is_dir();
        if first == "**" {
            match (is_folder, is_hidden(name)) {
                (_, true) => {}
                (true, false) => walk_matching(&path, pattern, seen, found)?,
                (false, false) if rest.is_empty() => found.push(path),
                (false, false) => {}
            }
        } else if matches(first, &name.to_string_lossy()) {
            match (is_folder, rest.is_empty()) {
                (true, false) => walk_matching(&path, rest, seen, found)?,
                (false, true) => found.push(path),
                _ => {}
            }
        }
    }
    Ok(())
}

fn entries(folder: &Path, seen: &mut HashSet<PathBuf>) -> Result<Vec<PathBuf>, DataError> {
    let list = || FileError::new("list", folder);
    if !seen.insert(fs::canonicalize(folder).map_err(list())?) {
        return Ok(vec![]);
    }
    let entries = fs::read_dir(folder).map_err(list())?;
    Ok(entries.map(|entry| entry.map(|entry| entry.path())).collect::<Result<_, _>>().map_err(list())?)
}

fn is_hidden(name: &OsStr) -> bool {
    name.as_encoded_bytes().starts_with(b".")
}

/// The folder before the first component with a wildcard, and the components from there on.
fn split(given: &Path) -> (PathBuf, Vec<String>) {
    let mut base = PathBuf::new();
    let mut pattern: Vec<String> = vec![];
    for part in given.components() {
        let text = part.as_os_str().to_string_lossy();
        if pattern.is_empty() && !(matches!(part, Component::Normal(_)) && is_pattern(&text)) {
            base.push(part);
        } else {
            pattern.push(text.into_owned());
        }
    }
    if base.as_os_str().is_empty() {
        base.push(".");
    }
    (base, pattern)
}

/// Glob match: `*` is any characters, `?` is one, `[a-z]` one of those and `[!a-z]` one of the others. A leading dot
/// has to be written out.
fn matches(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<char>, Vec<char>) = (pattern.chars().collect(), name.chars().collect());
    if name.first() == Some(&'.') && pattern.first() != Some(&'.') {
        return false;
    }
    matches_from(&pattern, &name)
}

fn matches_from(pattern: &[char], name: &[char]) -> bool {
    let (mut p, mut n) = (0, 0);
    // Position in the pattern after the last `*`, and where in the name to resume when backtracking to it.
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        if pattern.get(p) == Some(&'*') {
            star = Some((p + 1, n));
            p += 1;
            continue;
        }
        if let Some(width) = one_character(&pattern[p..], name[n]) {
            p += width;
            n += 1;
            continue;
        }
        let Some((after, stands_to)) = star else { return false };
        (p, n) = (after, stands_to + 1);
        star = Some((after, stands_to + 1));
    }
    pattern[p..].iter().all(|rest| *rest == '*')
}

/// Length of the pattern element that matches this character; `None` if it does not match.
fn one_character(pattern: &[char], wanted: char) -> Option<usize> {
    match pattern.first()? {
        '?' => Some(1),
        '[' => {
            let negated = pattern.get(1) == Some(&'!');
            let first = if negated { 2 } else { 1 };
            // A `]` right after the opening bracket is a member.
            let close = pattern.iter().skip(first + 1).position(|one| *one == ']').map(|place| place + first + 1);
            let Some(close) = close else { return (wanted == '[').then_some(1) };
            let members = &pattern[first..close];
            let mut found = false;
            let mut at = 0;
            while at < members.len() {
                if members.get(at + 1) == Some(&'-') && at + 2 < members.len() {
                    found |= (members[at]..=members[at + 2]).contains(&wanted);
                    at += 3;
                } else {
                    found |= members[at] == wanted;
                    at += 1;
                }
            }
            (found != negated).then_some(close + 1)
        }
        one => (*one == wanted).then_some(1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_matches_names_as_shells_do() {
        for (pattern, name, want) in [
            ("*.txt", "a.txt", true),
            ("*.txt", "a.txt.gz", false),
            ("*.txt", ".txt", false),
            (".*", ".txt", true),
            ("*", "", true),
            ("a?c*e", "abcde", true),
            ("a?c*e", "abcdef", false),
            ("*a*b*", "xxaxxbxx", true),
            ("*ab", "aab", true),
            ("[a-c]*", "bread", true),
            ("[!a-c]*", "bread", false),
            ("[]x]", "]", true),
            // A dash is literal when it has no character on one side.
            ("[a-]x", "-x", true),
            ("[a-]x", "ax", true),
            ("[a-]x", "bx", false),
            ("[-a]", "-", true),
            ("[!a-]", "-", false),
            ("[!]a]", "b", true),
            ("[!]a]", "]", false),
            ("[a-cx-z]", "y", true),
            ("[a-cx-z]", "d", false),
            ("[a", "[a", true),
            ("[a", "a", false),
            ("[", "[", true),
            ("part-0[0-9].jsonl", "part-07.jsonl", true),
            ("part-0[0-9].jsonl", "part-17.jsonl", false),
            ("ä*", "ähre", true),
        ] {
            assert_eq!(matches(pattern, name), want, "{pattern} {name}");
        }
    }

    #[test]
    fn a_pattern_begins_with_the_first_part_that_is_one() {
        let of = |given: &str| {
            let (base, pattern) = split(Path::new(given));
            (base.display().to_string(), pattern.join("/"))
        };
        let pair = |base: &str, pattern: &str| (base.to_string(), pattern.to_string());
        assert_eq!(of("a/b/*.txt"), pair("a/b", "*.txt"));
        assert_eq!(of("a/[bc]/d/e?.txt"), pair("a", "[bc]/d/e?.txt"));
        assert_eq!(of("*.txt"), pair(".", "*.txt"));
        assert_eq!(of("/a/**"), pair("/a", "**"));
        assert!(is_pattern("a?") && is_pattern("[a]") && is_pattern("*") && !is_pattern("a.txt"));
        let jsonl = ["a.jsonl", "b.ndjson", "c.json", "jsonl"].map(|name| is_jsonl(Path::new(name)));
        assert_eq!(jsonl, [true, true, false, false]);
    }

    #[test]
    fn folders_and_patterns_name_their_files_in_order() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir_all(at("b/deep")).unwrap();
        fs::create_dir_all(at(".git")).unwrap();
        for name in ["z.txt", "a.md", "b/c.txt", "b/deep/d.jsonl", ".git/config.txt", ".hidden.txt"] {
            fs::write(at(name), name).unwrap();
        }
        let found = |given: &str| {
            let files = find(&at(given)).map_err(|error| error.to_string())?;
            let name = |file: &DataFile| file.path.strip_prefix(folder.path()).unwrap().display().to_string();
            Ok::<_, String>(files.iter().map(name).collect::<Vec<_>>())
        };
        assert_eq!(found("").unwrap(), ["a.md", "b/c.txt", "b/deep/d.jsonl", "z.txt"]);
        assert_eq!(found("*.txt").unwrap(), ["z.txt"]);
        assert_eq!(found("**/*.txt").unwrap(), ["b/c.txt", "z.txt"]);
        assert_eq!(found("**").unwrap(), ["a.md", "b/c.txt", "b/deep/d.jsonl", "z.txt"]);
        assert_eq!(found("b/**/d.*").unwrap(), ["b/deep/d.jsonl"]);
        assert_eq!(found("?/*.txt").unwrap(), ["b/c.txt"]);
        assert_eq!(found("z.txt").unwrap(), ["z.txt"]);
        assert!(found("*.csv").unwrap_err().contains("holds no file"));
        assert!(found("none/*.csv").unwrap_err().contains("holds no file"));
    }

    #[cfg(unix)]
    #[test]
    fn a_link_back_to_the_folder_is_gone_into_once() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("in")).unwrap();
        fs::write(folder.path().join("in/a.txt"), "a").unwrap();
        std::os::unix::fs::symlink(folder.path(), folder.path().join("in/again")).unwrap();
        assert_eq!(find(folder.path()).unwrap().len(), 1);
        assert_eq!(find(&folder.path().join("**/a.txt")).unwrap().len(), 1);
    }
}
