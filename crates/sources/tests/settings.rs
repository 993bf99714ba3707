//! Settings of a question: `[tool.headroom]`, patterns of paths, and the project around a file.

use std::fs;
use std::path::Path;

use headroom_sources::configuration::{Choice, Configuration, FailOn};
use headroom_sources::patterns::matches_path;
use headroom_sources::roots::Roots;

/// The settings in a `pyproject.toml`.
fn configured(text: &str) -> Result<Configuration, String> {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("pyproject.toml");
    fs::write(&file, text).unwrap();
    Configuration::read(&file).map_err(|error| error.with_causes())
}

#[test]
fn the_section_is_read_and_others_left_alone() {
    let text = "[tool.ruff]\nline-length = 100\n[tool.headroom]\nignore = [\"TP605\"]\nfail-on = \"high\"\n[tool.headroom.per-path-ignores]\n\"examples/*\" = [\"TP3\"]\n";
    let configuration = configured(text).expect("valid");
    assert!(configuration.fail_on == Some(FailOn::High));
    assert_eq!(configuration.ignored_at(Path::new("a.py")), ["TP605"]);
    assert_eq!(configuration.ignored_at(Path::new("examples/a.py")), ["TP605", "TP3"]);
    let selection = configuration.selection(&Choice::default(), Path::new("examples/a.py")).expect("known codes");
    assert_eq!(["TP101", "TP301", "TP605"].map(|code| selection.wants(code)), [true, false, false]);
}

#[test]
fn an_unknown_key_is_named() {
    let error = configured("[tool.headroom]\nselct = []\n").err();
    assert!(error.is_some_and(|error| error.contains("selct")));
}

#[test]
fn patterns_match_files_folders_and_tails() {
    for (pattern, path, want) in [
        ("*.py", "a/b.py", true),
        ("tests", "a/tests/b.py", true),
        ("examples/**/old_*.py", "examples/x/y/old_z.py", true),
        ("examples/**", "/srv/me/examples/x.py", true),
        ("examples/*.py", "src/x.py", false),
        ("b.py", "a/bb.py", false),
    ] {
        assert_eq!(matches_path(pattern, path), want, "{pattern} on {path}");
    }
}

#[test]
fn the_root_is_found_from_the_file() {
    let place = tempfile::tempdir().unwrap();
    let top = fs::canonicalize(place.path()).unwrap();
    for (file, from, root) in [
        ("with_git/.git/HEAD", "with_git/a/b", "with_git"),
        ("with_git/a/pyproject.toml", "with_git/a/b", "with_git"),
        ("with_project/pyproject.toml", "with_project/src/deep", "with_project"),
        ("bundle/train.py", "bundle", "bundle"),
        ("bundle/align/setup.py", "bundle/align", "bundle"),
        ("plain/train.py", "plain/models/blocks", "plain/models/blocks"),
        ("plain/models/net.py", "plain/models/blocks", "plain"),
        ("lib/site-packages/torch/setup.py", "lib/site-packages/torch/nn", "lib/site-packages/torch"),
        ("other/.git/HEAD", "other/.hidden/a", "other/.hidden/a"),
    ] {
        let (file, from) = (top.join(file), top.join(from));
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::create_dir_all(&from).unwrap();
        fs::write(&file, "").unwrap();
        assert_eq!(Roots::new().of_folder(&from), top.join(root), "{}", file.display());
    }
}
