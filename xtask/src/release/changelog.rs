//! The part of CHANGELOG.md that belongs to one version.

use anyhow::{Context, Result};

/// The section `## <version>` without its heading; before a version is cut, the section `## Unreleased`.
pub fn section(changelog: &str, version: &str) -> Result<String> {
    let found = under(changelog, version).or_else(|| under(changelog, "Unreleased"));
    let text = found.with_context(|| format!("CHANGELOG.md has neither `## {version}` nor `## Unreleased`"))?;
    anyhow::ensure!(!text.is_empty(), "the section of {version} in CHANGELOG.md is empty");
    Ok(text)
}

fn under(changelog: &str, heading: &str) -> Option<String> {
    let is_heading = |line: &&str| {
        line.strip_prefix("## ").is_some_and(|rest| {
            rest.trim_start_matches(['[', 'v'])
                .strip_prefix(heading)
                .is_some_and(|after| after.is_empty() || after.starts_with([' ', ']']))
        })
    };
    let mut lines = changelog.lines().skip_while(|line| !is_heading(line));
    lines.next()?;
    let body: Vec<&str> = lines.take_while(|line| !line.starts_with("## ")).collect();
    Some(body.join("\n").trim().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# Changelog\n\n## Unreleased\n\n- new\n\n## 0.2.0 (2026-12-01)\n\n### Part\n\n- second\n\n## 0.2.0-rc\n\n- x\n\n## v0.1.0\n";

    #[test]
    fn a_version_has_its_own_section() {
        assert_eq!(section(TEXT, "0.2.0").expect("there"), "### Part\n\n- second");
    }

    #[test]
    fn a_version_that_was_not_cut_has_what_is_unreleased() {
        assert_eq!(section(TEXT, "0.3.0").expect("there"), "- new");
        assert!(section("# Changelog\n", "0.3.0").is_err());
    }

    #[test]
    fn an_empty_section_is_refused() {
        assert!(section(TEXT, "0.1.0").is_err());
    }
}
