//! Finds files that an import may lead to, from their words alone.
//!
//! A project may hold thousands of files besides the few that are asked about. Parsing all of them to learn that most
//! are never imported would take most of the time. A scan of the import lines finds every file that an import could
//! mean, and some that it does not. Files that no scan connects to one that is asked about are not parsed.

use std::collections::VecDeque;

use memchr::memmem::Finder;
use rustc_hash::{FxHashMap, FxHashSet};

use super::vocabulary::Role;
use super::{Input, Projects, file};

/// Whether imports may connect each input to one that is asked about.
pub fn within_reach(inputs: &[Input], projects: &Projects) -> Vec<bool> {
    let mut reached: Vec<bool> = (0..inputs.len()).map(|input| projects.is_asked(input)).collect();
    if reached.iter().all(|asked| *asked) {
        return reached;
    }
    let import = Finder::new("import");
    for members in projects.members() {
        let modules: Vec<Vec<String>> =
            members.iter().map(|member| file::module_of(&projects.belongings[*member].within)).collect();
        let mut named: FxHashMap<&str, Vec<usize>> = FxHashMap::default();
        for (local, module) in modules.iter().enumerate() {
            named.entry(module.last().map_or("", String::as_str)).or_default().push(local);
        }
        let mut joined: Vec<Vec<usize>> = vec![Vec::new(); members.len()];
        for (local, member) in members.iter().enumerate() {
            let mut words = words_of_imports(&inputs[*member].bytes, &import);
            if words.contains(RELATIVE) {
                words.extend(modules[local].iter().map(String::as_str));
            }
            for other in words.iter().filter_map(|word| named.get(word)).flatten().filter(|other| **other != local) {
                joined[local].push(*other);
                joined[*other].push(local);
            }
        }
        let mut open: VecDeque<usize> = (0..members.len()).filter(|local| reached[members[*local]]).collect();
        while let Some(local) = open.pop_front() {
            for other in &joined[local] {
                if !std::mem::replace(&mut reached[members[*other]], true) {
                    open.push_back(*other);
                }
            }
        }
    }
    reached
}

/// Marks an import of a package that is not named: `from . import steps`.
const RELATIVE: &str = ".";

/// All words of every line that contains `import`, including lines continued by a bracket or a backslash.
fn words_of_imports<'t>(bytes: &'t [u8], import: &Finder) -> FxHashSet<&'t str> {
    let mut words = FxHashSet::default();
    let mut from = 0;
    while let Some(found) = import.find(&bytes[from..]) {
        let at = from + found;
        let start = memchr::memrchr(b'\n', &bytes[..at]).map_or(0, |line_end| line_end + 1).max(from);
        let end = end_of_import(bytes, at);
        if !is_of_another_library(&bytes[start..end]) {
            add_words(&bytes[start..end], &mut words);
        }
        from = end;
    }
    words
}

/// Whether this is a single import of a library that is never looked for among the files.
fn is_of_another_library(import: &[u8]) -> bool {
    let line = import.trim_ascii_start();
    let module = match line.strip_prefix(b"from ") {
        Some(module) => module,
        None => match line.strip_prefix(b"import ") {
            Some(modules) if !modules.contains(&b',') => modules,
            _ => return false,
        },
    };
    let first = module.split(|byte| !byte.is_ascii_alphanumeric() && *byte != b'_').next().unwrap_or_default();
    std::str::from_utf8(first).is_ok_and(|first| Role::Foreign.fits(first)) && !import.contains(&b';')
}

/// The end of the line, or of the last line that a bracket or a backslash continues.
fn end_of_import(bytes: &[u8], from: usize) -> usize {
    let (mut open, mut at) = (false, from);
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'(' => open = true,
            b')' => open = false,
            b'\n' if !open => return at + 1,
            b'\\' => at += 1 + usize::from(bytes.get(at + 1) == Some(&b'\r')),
            _ => {}
        }
        at += 1;
    }
    bytes.len()
}

fn add_words<'t>(line: &'t [u8], words: &mut FxHashSet<&'t str>) {
    let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_' || *byte >= 0x80;
    let mut at = 0;
    while let Some(byte) = line.get(at) {
        if is_part(byte) {
            let length = line[at..].iter().take_while(|byte| is_part(byte)).count();
            words.extend(std::str::from_utf8(&line[at..at + length]));
            at += length;
        } else {
            if *byte == b'.' && line[..at].ends_with(b"from ") || line[at..].starts_with(b"..") {
                words.insert(RELATIVE);
            }
            // `\n` in a notebook's text is not a letter.
            at += if *byte == b'\\' { 2 } else { 1 };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Belonging;

    fn reach(files: &[(&str, &str)]) -> Vec<bool> {
        let inputs: Vec<Input> = files
            .iter()
            .map(|(path, text)| Input { path: path.to_string(), bytes: text.as_bytes().to_vec() })
            .collect();
        let belonging =
            |(number, input): (usize, &Input)| Belonging { project: 0, within: input.path.clone(), asked: number == 0 };
        within_reach(&inputs, &Projects { belongings: inputs.iter().enumerate().map(belonging).collect() })
    }

    #[test]
    fn imports_lead_in_both_directions_and_through_others() {
        let found = reach(&[
            ("a/steps.py", "from a.tools import mean\n"),
            ("a/tools.py", "def mean(x): return x\n"),
            ("a/train.py", "from a.steps import step\nimport torch\n"),
            ("a/other.py", "import torch\n"),
            ("a/config.py", "steps = 3\n"),
        ]);
        assert_eq!(found, [true, true, true, false, false]);
    }

    #[test]
    fn every_form_of_an_import_is_seen() {
        for line in [
            "import b",
            "import x.b as y",
            "if True: import os, b",
            "from b import f",
            "from .b import f",
            "from . import b",
            "from x import (\n    a,  # a comment\n    b,\n)",
            "from x import a, \\\n    b",
            "from x import a, \\\r\n    b",
            "try:\n    from b import (f)\nexcept ImportError: pass",
            "importlib.import_module('x.b')",
        ] {
            assert_eq!(reach(&[("p/train.py", line), ("p/b.py", ""), ("p/c.py", "")]), [true, true, false], "{line}");
        }
    }

    #[test]
    fn imports_of_libraries_lead_to_no_file_of_the_same_name() {
        let library = ("fake/torch/__init__.py", "");
        for line in ["import torch", "from torch import b", "    import torch.b as c", "from torch import (\n    b,\n)"]
        {
            assert_eq!(reach(&[("p/train.py", line), library, ("p/b.py", "")]), [true, false, false], "{line}");
        }
        for line in ["import torch, b", "import torch; import b", "from torchless import b", "from fake import torch"] {
            assert!(reach(&[("p/train.py", line), library, ("p/b.py", "")])[1..].contains(&true), "{line}");
        }
    }

    #[test]
    fn a_package_may_be_meant_without_its_name() {
        let found = reach(&[("p/q/train.py", "from . import f\n"), ("p/q/__init__.py", "def f(): pass\n")]);
        assert_eq!(found, [true, true]);
        let found = reach(&[("p/q/r/train.py", "from .. import f\n"), ("p/q/__init__.py", "def f(): pass\n")]);
        assert_eq!(found, [true, true]);
    }

    #[test]
    fn notebooks_are_read_as_text() {
        let notebook = r#"{"cells": [{"source": ["import torch\n", "from b import (\n", "c)\n"]}, {"source": "x = 1\nimport d\ny"}]}"#;
        let found = reach(&[("n.ipynb", notebook), ("b.py", ""), ("c.py", ""), ("d.py", ""), ("e.py", "")]);
        assert_eq!(found, [true, true, true, true, false]);
    }
}
