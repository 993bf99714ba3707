//! Files of a crate must not import each other in a cycle, except those on a list that only shrinks.
//!
//! A file may use what is in the modules around it, and those may use it: that is nesting, not a cycle.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;

use super::{Problem, Tree};

/// Files that are in a cycle today, by crate folder. Nothing may be added; files that are no longer in a cycle must be
/// removed.
const KNOWN: &str = include_str!("known_cycles.txt");
const KNOWN_FILE: &str = "xtask/src/tidy/known_cycles.txt";

pub fn check(tree: &Tree) -> Result<Vec<Problem>> {
    let known: BTreeSet<&str> =
        KNOWN.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
    let mut problems = vec![];
    let mut circular = BTreeSet::new();
    for circle in circles(&modules(tree)) {
        for file in &circle {
            circular.insert(file.clone());
            if !known.contains(file.as_str()) {
                let others: Vec<&str> = circle.iter().filter(|other| *other != file).map(String::as_str).collect();
                let message = format!("imports go in a circle through {}: move what they share", others.join(", "));
                problems.push(Problem { file: file.clone(), line: 1, message });
            }
        }
    }
    for (line, file) in (1..).zip(KNOWN.lines()).filter(|(_, file)| known.contains(file.trim())) {
        if !circular.contains(file.trim()) {
            let message = format!("{} is in no circle any more: take it off the list", file.trim());
            problems.push(Problem { file: KNOWN_FILE.into(), line, message });
        }
    }
    Ok(problems)
}

/// A source file: its crate, its module path, and the absolute module paths that it names.
struct Module {
    file: String,
    folder: String,
    path: Vec<String>,
    named: Vec<Vec<String>>,
}

fn modules(tree: &Tree) -> Vec<Module> {
    tree.files
        .iter()
        .filter_map(|file| {
            let (folder, inside) = file.path.strip_suffix(".rs")?.split_once("/src/")?;
            let is_test = inside.ends_with("tests") || inside.contains("tests/");
            let path: Vec<String> = match inside {
                "lib" | "main" => vec![],
                _ => inside.split('/').map(String::from).collect(),
            };
            // Tests inside a file come last, and may use anything.
            let code = file.code.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
            let named = named_paths(code, &path);
            (!is_test).then(|| Module { file: file.path.clone(), folder: folder.into(), path, named })
        })
        .collect()
}

/// Paths that begin with `crate` or `super`, resolved from the crate's root; every branch of a `use` tree is one.
fn named_paths(code: &str, own: &[String]) -> Vec<Vec<String>> {
    let mut found = vec![];
    for (at, _) in code.match_indices("crate::").chain(code.match_indices("super::")) {
        let before = code[..at].bytes().next_back();
        if before.is_some_and(|byte| byte == b'_' || byte == b':' || byte == b'$' || byte.is_ascii_alphanumeric()) {
            continue;
        }
        let mut base = own.to_vec();
        let mut rest = &code[at..];
        if let Some(after) = rest.strip_prefix("crate::") {
            (base, rest) = (vec![], after);
        }
        while let Some(after) = rest.strip_prefix("super::") {
            base.pop();
            rest = after;
        }
        branches(rest, &base, &mut found);
    }
    found
}

/// Parses `a::b`, `a::{b, c::d}` or `*`; returns the rest of the text.
fn branches<'a>(text: &'a str, base: &[String], found: &mut Vec<Vec<String>>) -> &'a str {
    let text = text.trim_start();
    if let Some(mut rest) = text.strip_prefix('{') {
        loop {
            rest = branches(rest, base, found).trim_start();
            match rest.strip_prefix(',') {
                Some(after) => rest = after,
                None => return rest.strip_prefix('}').unwrap_or(rest),
            }
        }
    }
    let end = text.find(|letter: char| letter != '_' && !letter.is_ascii_alphanumeric()).unwrap_or(text.len());
    let (word, rest) = text.split_at(end);
    let mut path = base.to_vec();
    if !word.is_empty() && word != "self" {
        path.push(word.into());
    }
    match rest.strip_prefix("::") {
        Some(after) if !word.is_empty() => branches(after, &path, found),
        _ => {
            found.push(path);
            let rest = rest.trim_start();
            // `a as b`: the new name is not a path.
            rest.strip_prefix("as ").map_or(rest, |after| {
                after.trim_start_matches(|letter: char| letter == '_' || letter.is_ascii_alphanumeric())
            })
        }
    }
}

/// Groups of files that reach each other, sorted by name.
fn circles(modules: &[Module]) -> Vec<Vec<String>> {
    let by_path: BTreeMap<(&str, &[String]), usize> =
        modules.iter().enumerate().map(|(at, one)| ((one.folder.as_str(), &one.path[..]), at)).collect();
    let uses: Vec<BTreeSet<usize>> = modules
        .iter()
        .map(|one| {
            let target = |path: &Vec<String>| {
                (0..=path.len()).rev().find_map(|end| by_path.get(&(one.folder.as_str(), &path[..end])).copied())
            };
            let is_other = |at: &usize| !one.path.starts_with(&modules[*at].path);
            one.named.iter().filter_map(target).filter(is_other).collect()
        })
        .collect();
    let reach: Vec<BTreeSet<usize>> = (0..modules.len()).map(|from| reached(from, &uses)).collect();
    let mut groups: BTreeSet<Vec<String>> = BTreeSet::new();
    for from in 0..modules.len() {
        let together: Vec<usize> = reach[from].iter().copied().filter(|to| reach[*to].contains(&from)).collect();
        if together.len() > 1 {
            let mut files: Vec<String> = together.iter().map(|&at| modules[at].file.clone()).collect();
            files.sort();
            groups.insert(files);
        }
    }
    groups.into_iter().collect()
}

fn reached(from: usize, uses: &[BTreeSet<usize>]) -> BTreeSet<usize> {
    let mut seen = BTreeSet::new();
    let mut open: Vec<usize> = uses[from].iter().copied().collect();
    while let Some(next) = open.pop() {
        if seen.insert(next) {
            open.extend(&uses[next]);
        }
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::*;

    fn module(file: &str, named: &str) -> Module {
        let path: Vec<String> = file.split('/').map(String::from).collect();
        let named = named_paths(named, &path);
        Module { file: file.into(), folder: "a".into(), path, named }
    }

    #[test]
    fn a_use_tree_names_every_branch() {
        let own = ["a".to_string(), "b".to_string()];
        let paths =
            named_paths("use crate::{c::{self, D}, e as f}; use super::g::*; mycrate::h; let x = crate::i::j();", &own);
        let shown: Vec<String> = paths.iter().map(|path| path.join(".")).collect();
        assert_eq!(shown, ["c", "c.D", "e", "i.j", "a.g"]);
    }

    #[test]
    fn files_that_use_each_other_are_a_circle_and_nesting_is_not() {
        let found = circles(&[
            module("a", "use crate::b::X;"),
            module("b", "use crate::c;"),
            module("c", "use super::a::Y;"),
            module("c/inner", "use super::Z; use crate::d;"),
            module("d", ""),
        ]);
        assert_eq!(found, [["a", "b", "c"]]);
        assert!(circles(&[module("a", "use crate::a::b::X;"), module("a/b", "use super::Y;")]).is_empty());
    }
}
