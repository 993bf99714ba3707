//! Rules for crates from the registry: their licences, and which of them may be built in two versions.
//!
//! `deny.toml` says the same for `cargo deny check`, which also looks for advisories if its database is available.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};
use serde_json::Value;
use spdx::{Expression, ParseMode};

use super::{Problem, Tree};
use crate::process;

/// Licences that let a user redistribute the binary with no more than a notice.
const ALLOWED: &[&str] = &[
    "MIT",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "ISC",
    "Unicode-3.0",
    "Unicode-DFS-2016",
    "Unlicense",
    "Zlib",
];

/// Crates that are built in more than one version, and who needs the older one. A name that is no longer needed here is
/// a problem too.
const SEVERAL_VERSIONS: &[(&str, &str)] = &[
    ("bitflags", "lsp-types"),
    ("compact_str", "tokenizers"),
    ("foldhash", "hashbrown of hashlink"),
    ("getrandom", "rand of unicode_names2's build script"),
    ("glam", "nalgebra names every version that it can convert"),
    ("hashbrown", "hashlink, safetensors"),
    ("itertools", "tokenizers and its rayon-cond"),
    ("rand", "phf_generator and unicode_names2's build script; tokenizers"),
    ("rand_chacha", "rand of the same"),
    ("rand_core", "rand of the same"),
    ("syn", "macros of ruff's crates"),
    ("winnow", "toml"),
];

pub fn check(_: &Tree) -> Result<Vec<Problem>> {
    let target = ["--filter-platform", "x86_64-unknown-linux-gnu"];
    let metadata = [&["metadata", "--format-version", "1", "--locked"][..], &target].concat();
    let metadata: Value =
        serde_json::from_str(&process::capture("cargo", &metadata)?).context("cargo metadata wrote no JSON")?;
    Ok(problems(&built(&metadata)))
}

struct Dependency {
    name: String,
    version: String,
    licence: String,
}

/// The external packages that are part of a build.
fn built(metadata: &Value) -> Vec<Dependency> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
    let resolved: BTreeSet<String> = list(&metadata["resolve"]["nodes"]).iter().map(|node| text(&node["id"])).collect();
    let packages = list(&metadata["packages"]).into_iter();
    let foreign = packages.filter(|package| package["source"].is_string() && resolved.contains(&text(&package["id"])));
    let dependency = |package: Value| Dependency {
        name: text(&package["name"]),
        version: text(&package["version"]),
        licence: text(&package["license"]),
    };
    foreign.map(dependency).collect()
}

fn problems(dependencies: &[Dependency]) -> Vec<Problem> {
    let problem = |message: String| Problem { file: "Cargo.lock".into(), line: 1, message };
    let mut problems = vec![];
    let mut versions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for Dependency { name, version, licence } in dependencies {
        versions.entry(name).or_default().insert(version);
        if !is_allowed(licence) {
            problems.push(problem(format!("{name} {version} is under `{licence}`, which is not in ALLOWED")));
        }
    }
    let known = |name: &str| SEVERAL_VERSIONS.iter().any(|(one, _)| *one == name);
    for (name, versions) in versions.iter().filter(|(name, versions)| versions.len() > 1 && !known(name)) {
        let versions: Vec<&str> = versions.iter().copied().collect();
        problems
            .push(problem(format!("{name} is built in versions {}: move to one, or list it", versions.join(" and "))));
    }
    for (name, _) in SEVERAL_VERSIONS {
        if versions.get(name).is_none_or(|versions| versions.len() < 2) {
            problems.push(problem(format!("{name} is built once: take it off SEVERAL_VERSIONS")));
        }
    }
    problems
}

fn is_allowed(licence: &str) -> bool {
    let allowed = |wanted: &spdx::LicenseReq| ALLOWED.contains(&wanted.to_string().as_str());
    Expression::parse_mode(licence, ParseMode::LAX).is_ok_and(|expression| expression.evaluate(allowed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_licence_is_allowed_by_one_of_its_choices_and_by_all_of_its_parts() {
        for licence in ["MIT", "MIT/Apache-2.0", "GPL-3.0 OR MIT", "(MIT OR Apache-2.0) AND Unicode-3.0"] {
            assert!(is_allowed(licence), "{licence}");
        }
        for licence in ["GPL-3.0-only", "MIT AND GPL-3.0-only", "", "who knows"] {
            assert!(!is_allowed(licence), "{licence}");
        }
    }

    #[test]
    fn a_second_version_and_a_needless_entry_are_said() {
        let one = |name: &str, version: &str| Dependency {
            name: name.into(),
            version: version.into(),
            licence: "MIT".into(),
        };
        let said: Vec<String> =
            problems(&[one("serde", "1.0.0"), one("serde", "2.0.0")]).into_iter().map(|one| one.message).collect();
        assert!(said.iter().any(|message| message.contains("serde is built in versions 1.0.0 and 2.0.0")), "{said:?}");
        assert!(said.iter().any(|message| message.contains("rand is built once")), "{said:?}");
    }
}
