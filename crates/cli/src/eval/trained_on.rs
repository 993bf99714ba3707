//! Whether data is what the checkpoint was trained on, and which part of it the run saw.

use crate::train::settings::whole;
use headroom_training::data::{DataSpec, percent};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

/// Whether two names mean the same data: the same generator, the same file under any path, or a copy of it.
pub fn is_same(data: &str, trained: &str) -> bool {
    if whole(data) == whole(trained) {
        return true;
    }
    let resolved = |given: &str| Path::new(given).canonicalize();
    match (resolved(data), resolved(trained)) {
        (Ok(one), Ok(other)) => one == other || has_same_bytes(&one, &other).unwrap_or(false),
        // A pattern, or a file that is gone.
        _ => false,
    }
}

/// Folders are compared by path alone.
fn has_same_bytes(one: &Path, other: &Path) -> std::io::Result<bool> {
    let (about_one, about_other) = (one.metadata()?, other.metadata()?);
    if !about_one.is_file() || !about_other.is_file() || about_one.len() != about_other.len() {
        return Ok(false);
    }
    let (mut one, mut other) = (BufReader::new(File::open(one)?), BufReader::new(File::open(other)?));
    loop {
        let (left, right) = (one.fill_buf()?, other.fill_buf()?);
        let both = left.len().min(right.len());
        if both == 0 || left[..both] != right[..both] {
            return Ok(left.is_empty() && right.is_empty());
        }
        one.consume(both);
        other.consume(both);
    }
}

/// The part that is read, in words, and how it relates to training. `trained` is the share that training held out of
/// this very data, 0 for none; `None` if the run trained on other data, or does not say.
pub fn part(spec: &DataSpec, share: f64, trained: Option<f64>) -> String {
    let read = match spec {
        DataSpec::Synthetic | DataSpec::Markov => {
            return if trained.is_some() { "different samples from training's" } else { "samples of its own" }.into();
        }
        _ if share < 1.0 => format!("its last {}", percent(share)),
        _ => "all of it".into(),
    };
    let seen = match trained {
        None => String::new(),
        Some(0.0) => ", the same samples that training draws from".into(),
        Some(held_out) if share <= held_out => ", held out of training".into(),
        Some(held_out) => {
            format!(", the same samples that training draws from but for the last {}, held out", percent(held_out))
        }
    };
    read + &seen
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_file_is_the_same_under_any_path_and_as_a_copy() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).display().to_string();
        fs::create_dir(folder.path().join("in")).unwrap();
        fs::write(path("a.txt"), "one two three").unwrap();
        fs::copy(path("a.txt"), path("in/copy.txt")).unwrap();
        fs::write(path("b.txt"), "one two tree!").unwrap();
        fs::write(path("c.txt"), "one").unwrap();
        for same in ["a.txt", "in/../a.txt", "in/copy.txt"] {
            assert!(is_same(&path(same), &path("a.txt")), "{same}");
        }
        for other in ["b.txt", "c.txt", "in", "absent.txt"] {
            assert!(!is_same(&path(other), &path("a.txt")), "{other}");
        }
        assert!(is_same("markov", "markov") && !is_same("markov", "synthetic"));
        assert!(is_same(&path("in/../in"), &path("in")) && is_same(&path("gone"), &path("gone")));
    }

    #[test]
    fn the_part_says_what_training_saw_of_it() {
        let (markov, batch) = (DataSpec::Markov, DataSpec::Batch { path: "b.safetensors".into() });
        let text = DataSpec::Text { path: "a.txt".into() };
        for (spec, share, trained, want) in [
            (&markov, 1.0, Some(0.0), "different samples from training's"),
            (&markov, 1.0, None, "samples of its own"),
            (&batch, 1.0, Some(0.0), "all of it, the same samples that training draws from"),
            (&batch, 1.0, None, "all of it"),
            (&text, 1.0, None, "all of it"),
            (&text, 0.5, None, "its last 50%"),
            (&text, 1.0, Some(0.0), "all of it, the same samples that training draws from"),
            (&text, 0.05, Some(0.05), "its last 5%, held out of training"),
            (
                &text,
                1.0,
                Some(0.05),
                "all of it, the same samples that training draws from but for the last 5%, held out",
            ),
            (
                &text,
                0.5,
                Some(0.05),
                "its last 50%, the same samples that training draws from but for the last 5%, held out",
            ),
        ] {
            assert_eq!(part(spec, share, trained), want, "{spec} {share} {trained:?}");
        }
    }
}
