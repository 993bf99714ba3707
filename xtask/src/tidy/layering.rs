//! Allowed dependencies between crates: the architecture's table, checked against what cargo sees.

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::{Problem, Tree};
use crate::process;

/// A crate by its folder's name, and those of our crates that it may use. Its package is named `headroom-<folder>`.
const LAYERS: &[(&str, &[&str])] = &[
    ("graph", &[]),
    ("record", &[]),
    ("trace", &["record"]),
    ("rewrite", &["record"]),
    ("lint", &["rewrite"]),
    ("sources", &["lint", "record"]),
    ("engine", &["graph", "trace"]),
    ("training", &["engine", "graph", "trace", "record"]),
    ("diagnosis", &["lint", "trace", "record"]),
    ("experiments", &["training", "diagnosis", "engine", "graph", "trace", "record"]),
    ("report", &["diagnosis", "lint", "trace", "record"]),
    ("lsp", &["diagnosis", "lint", "sources", "trace"]),
    // The engine has the unsafe system calls of the isolation.
    ("scripts", &["rewrite", "diagnosis", "trace", "record", "engine"]),
    (
        "cli",
        &[
            "graph",
            "trace",
            "record",
            "engine",
            "training",
            "lint",
            "diagnosis",
            "experiments",
            "report",
            "lsp",
            "scripts",
            "sources",
        ],
    ),
];

/// Crates that the tests of a crate may use beyond its row above, as (folder, used).
const TESTS_MAY_USE: &[(&str, &str)] = &[];

/// The only crate with its own lints, because the workspace's forbid `unsafe`.
const HAS_ITS_OWN_LINTS: &str = "crates/engine/Cargo.toml";

pub fn check(tree: &Tree) -> Result<Vec<Problem>> {
    let metadata = process::capture("cargo", &["metadata", "--no-deps", "--format-version", "1", "--offline"])?;
    let metadata: Value = serde_json::from_str(&metadata).context("cargo metadata wrote no JSON")?;
    let mut problems = Vec::new();
    for package in &packages(&metadata, &tree.root.to_string_lossy())? {
        problems.extend(problems_of(tree, package));
    }
    problems.extend(lints_not_inherited(tree));
    Ok(problems)
}

struct Package {
    name: String,
    /// Relative to the root.
    manifest: String,
    /// Name and kind (`normal`, `dev`, `build`) of every path dependency, which makes it one of ours.
    uses: Vec<(String, String)>,
}

fn packages(metadata: &Value, root: &str) -> Result<Vec<Package>> {
    let Some(packages) = metadata["packages"].as_array() else { bail!("cargo metadata lists no packages") };
    let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
    let as_package = |package: &Value| {
        let dependencies = package["dependencies"].as_array().into_iter().flatten();
        let ours = dependencies.filter(|dependency| dependency["path"].is_string());
        Package {
            name: text(&package["name"]),
            manifest: text(&package["manifest_path"]).replacen(root, "", 1).trim_start_matches('/').to_string(),
            uses: ours
                .map(|used| (text(&used["name"]), used["kind"].as_str().unwrap_or("normal").to_string()))
                .collect(),
        }
    };
    Ok(packages.iter().map(as_package).collect())
}

fn problems_of(tree: &Tree, package: &Package) -> Vec<Problem> {
    let at = |words: &str, message: String| {
        let manifest = tree.files.iter().find(|file| file.path == package.manifest);
        let line = manifest.and_then(|file| file.text.lines().position(|line| line.contains(words)));
        Problem { file: package.manifest.clone(), line: line.map_or(1, |index| index + 1), message }
    };
    let folder = package.manifest.trim_end_matches("/Cargo.toml").trim_start_matches("crates/");
    let allowed = match LAYERS.iter().find(|(name, _)| *name == folder) {
        Some((_, allowed)) => *allowed,
        // Its benches take turns as everything else does.
        None if folder == "xtask" => &["record"],
        // The package at the root, for pre-commit.
        None if package.manifest == "Cargo.toml" => &["cli"],
        None => {
            return vec![at(
                "name",
                format!("crate `{folder}` is not in the layering table: add it to LAYERS, or move the code"),
            )];
        }
    };
    let mut problems = Vec::new();
    if folder != "xtask" && package.manifest != "Cargo.toml" && package.name != format!("headroom-{folder}") {
        problems.push(at("name", format!("package `{}` in {folder}: name it `headroom-{folder}`", package.name)));
    }
    for (used, kind) in &package.uses {
        let used_folder = used.trim_start_matches("headroom-");
        let for_tests = kind == "dev" && TESTS_MAY_USE.contains(&(folder, used_folder));
        if !allowed.contains(&used_folder) && !for_tests {
            let may = if allowed.is_empty() { "nothing of ours".to_string() } else { allowed.join(", ") };
            problems.push(at(used, format!("`{folder}` may not use `{used_folder}` ({kind}): it may use {may}")));
        }
    }
    problems
}

fn lints_not_inherited(tree: &Tree) -> Vec<Problem> {
    let manifests =
        tree.files.iter().filter(|file| file.path.ends_with("/Cargo.toml") && file.path != HAS_ITS_OWN_LINTS);
    manifests
        .filter(|file| {
            let mut section = "";
            !file.text.lines().map(str::trim).any(|line| {
                if line.starts_with('[') {
                    section = line;
                }
                section == "[lints]" && line == "workspace = true"
            })
        })
        .map(|file| file.problem(1, "the workspace's lints do not hold here: add `[lints]` with `workspace = true`"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::{TextFile, problems_in};
    use serde_json::json;

    /// Checks the problems of one package whose dependencies are (package, kind).
    fn check_package(manifest: &str, name: &str, uses: &[(&str, Value)], want: &[&str]) {
        let dependencies: Vec<Value> =
            uses.iter().map(|(name, kind)| json!({"name": name, "kind": kind, "path": "/r/x"})).collect();
        let foreign = json!({"name": "clap", "kind": null});
        let dependencies: Vec<Value> = dependencies.into_iter().chain([foreign]).collect();
        let metadata = json!({"packages": [{
            "name": name, "manifest_path": format!("/r/{manifest}"), "dependencies": dependencies,
        }]});
        let text = format!("[package]\nname = \"{name}\"\n[dependencies]\nheadroom-engine = 1\n");
        let tree = Tree { root: "/r".into(), files: vec![TextFile::new(manifest, text)] };
        let found = packages(&metadata, "/r")
            .expect("packages")
            .iter()
            .flat_map(|package| problems_of(&tree, package))
            .collect::<Vec<_>>();
        assert_eq!(found.iter().map(Problem::to_string).collect::<Vec<_>>(), want);
    }

    #[test]
    fn a_crate_may_use_what_its_row_lists() {
        check_package("crates/training/Cargo.toml", "headroom-training", &[("headroom-engine", Value::Null)], &[]);
        check_package("xtask/Cargo.toml", "xtask", &[("headroom-record", Value::Null)], &[]);
    }

    #[test]
    fn a_use_beyond_the_row_is_named_with_its_line() {
        let graph = |kind: &str| {
            format!("crates/graph/Cargo.toml:4: `graph` may not use `engine` ({kind}): it may use nothing of ours")
        };
        for (kind, spelled) in [(Value::Null, "normal"), (json!("build"), "build"), (json!("dev"), "dev")] {
            check_package(
                "crates/graph/Cargo.toml",
                "headroom-graph",
                &[("headroom-engine", kind)],
                &[&graph(spelled)],
            );
        }
        let report = "crates/report/Cargo.toml:4: `report` may not use `engine` (normal): it may use diagnosis, lint, trace, record";
        check_package("crates/report/Cargo.toml", "headroom-report", &[("headroom-engine", Value::Null)], &[report]);
    }

    #[test]
    fn a_crate_outside_the_table_or_with_another_name_is_refused() {
        let unknown =
            "crates/misc/Cargo.toml:2: crate `misc` is not in the layering table: add it to LAYERS, or move the code";
        check_package("crates/misc/Cargo.toml", "headroom-misc", &[], &[unknown]);
        let misnamed = "crates/graph/Cargo.toml:2: package `graph` in graph: name it `headroom-graph`";
        check_package("crates/graph/Cargo.toml", "graph", &[], &[misnamed]);
    }

    #[test]
    fn the_table_holds_no_circle() {
        for (index, (name, allowed)) in LAYERS.iter().enumerate() {
            for used in *allowed {
                let position = LAYERS.iter().position(|(other, _)| other == used);
                let comes_before = position.is_some_and(|position| position < index);
                assert!(comes_before, "{name} uses {used}, which comes after it");
            }
        }
    }

    #[test]
    fn every_crate_but_the_engine_keeps_the_workspace_lints() {
        let inherits = "[package]\nname = \"a\"\n[lints]\nworkspace = true\n";
        let other = "[package]\nedition.workspace = true\n[features]\nworkspace = true\n";
        let files = [("xtask/Cargo.toml", inherits), ("crates/graph/Cargo.toml", other), (HAS_ITS_OWN_LINTS, other)];
        let found = problems_in(|tree| Ok(lints_not_inherited(tree)), &files);
        let want =
            "crates/graph/Cargo.toml:1: the workspace's lints do not hold here: add `[lints]` with `workspace = true`";
        assert_eq!(found, [want]);
    }
}
