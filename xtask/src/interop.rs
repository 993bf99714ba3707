//! `cargo xtask interop`: real readers from Python packages open the files that `headroom` writes.
//!
//! A check is a script in `xtask/interop/`, called with the `headroom` binary and an empty working folder; it exits
//! with 0 or reports what is wrong.

use std::fmt;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::{Outcome, process, python};

/// Selects the readers to install: torch and transformers take gigabytes, so CI does without them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readers {
    Small,
    WithTransformers,
}

struct Environment {
    /// Its folder under `target/`.
    name: &'static str,
    packages: &'static [&'static str],
    checks: &'static [Check],
}

struct Check {
    name: &'static str,
    script: &'static str,
}

const SMALL: Environment = Environment {
    name: "interop-venv",
    packages: &[python::NUMPY, python::SAFETENSORS],
    checks: &[Check {
        name: "a saved checkpoint opens with safetensors",
        script: "checkpoint_opens_with_safetensors.py",
    }],
};

/// Readers of a profile. The plugin parses without torch.
const TRACE_READERS: Environment = Environment {
    name: "trace-readers-venv",
    packages: &[python::NUMPY, python::TENSORBOARD, python::TENSORBOARD_PROFILER, python::HOLISTIC_TRACE_ANALYSIS],
    checks: &[
        Check { name: "a profile's scalars open in TensorBoard", script: "events_open_in_tensorboard.py" },
        Check { name: "a trace loads in TensorBoard's PyTorch plugin", script: "trace_loads_in_tensorboard_plugin.py" },
        Check { name: "a trace loads in Holistic Trace Analysis", script: "trace_loads_in_holistic_trace_analysis.py" },
        Check {
            name: "operator and kernel times agree with Holistic Trace Analysis",
            script: "trace_sums_agree_with_holistic_trace_analysis.py",
        },
    ],
};

/// A client of the Language Server Protocol.
const EDITOR: Environment = Environment {
    name: "editor-venv",
    packages: &[python::PYTEST_LSP],
    checks: &[Check { name: "an editor speaks with headroom lsp", script: "editor_speaks_with_lsp.py" }],
};

/// An MCP client, which checks answers against the schemas that the tools declare.
const AGENTS: Environment = Environment {
    name: "mcp-venv",
    packages: &[python::MCP, python::JSON_SCHEMA],
    checks: &[
        Check { name: "an agent asks by the Model Context Protocol", script: "agent_asks_by_mcp.py" },
        Check { name: "documents are valid under the published schemas", script: "schemas_fit.py" },
    ],
};

const TRANSFORMERS: Environment = Environment {
    name: "transformers-venv",
    packages: &[python::NUMPY, python::SAFETENSORS, python::TORCH, python::TRANSFORMERS],
    checks: &[
        Check { name: "a saved checkpoint loads in transformers", script: "checkpoint_loads_in_transformers.py" },
        Check { name: "a model of transformers loads in headroom", script: "transformers_model_loads_in_headroom.py" },
        Check {
            name: "a saved checkpoint generates in transformers what headroom does",
            script: "checkpoint_generates_as_transformers_does.py",
        },
    ],
};

fn environments(readers: Readers) -> &'static [Environment] {
    match readers {
        Readers::Small => &[SMALL, EDITOR, TRACE_READERS, AGENTS],
        Readers::WithTransformers => &[SMALL, EDITOR, TRACE_READERS, AGENTS, TRANSFORMERS],
    }
}

/// Installs what the checks need.
pub fn make_ready(readers: Readers) -> Result<()> {
    for environment in environments(readers) {
        python::environment(environment.name, environment.packages)?;
    }
    Ok(())
}

pub fn run(readers: Readers) -> Result<Outcome> {
    let headroom = process::build_headroom("dev")?;
    let mut tally = Tally::default();
    for environment in environments(readers) {
        match python::environment(environment.name, environment.packages) {
            Ok(python) => {
                for check in environment.checks {
                    tally.count(check.name, run_check(check, &python, &headroom)?);
                }
            }
            Err(reason) => {
                for check in environment.checks {
                    tally.count(check.name, Verdict::Skipped(format!("{reason:#}")));
                }
            }
        }
    }
    println!("interop: {tally}");
    let in_ci = std::env::var_os("CI").is_some_and(|value| !value.is_empty());
    Ok(tally.outcome(if in_ci { Skipping::Fails } else { Skipping::IsReported }))
}

fn run_check(check: &Check, python: &Path, headroom: &Path) -> Result<Verdict> {
    let script = process::workspace_root().join("xtask/interop").join(check.script);
    let folder = process::target_folder().join("interop").join(check.script.trim_end_matches(".py"));
    if folder.exists() {
        fs::remove_dir_all(&folder).with_context(|| format!("cannot empty {}", folder.display()))?;
    }
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let output = Command::new(python)
        .env("PYTHONDONTWRITEBYTECODE", "1") // no __pycache__ beside the scripts
        .arg(script)
        .arg(headroom)
        .arg(&folder)
        .current_dir(&folder)
        .output()?;
    if output.status.success() {
        return Ok(Verdict::Passed);
    }
    let said = [output.stdout, output.stderr].concat();
    Ok(Verdict::Failed(String::from_utf8_lossy(&said).trim().to_string()))
}

#[derive(Debug)]
enum Verdict {
    Passed,
    Failed(String),
    Skipped(String),
}

/// How a check that could not be set up affects the overall result.
#[derive(Clone, Copy)]
enum Skipping {
    IsReported,
    Fails,
}

#[derive(Default)]
struct Tally {
    passed: usize,
    failed: usize,
    skipped: usize,
}

impl Tally {
    fn count(&mut self, name: &str, verdict: Verdict) {
        match verdict {
            Verdict::Passed => {
                self.passed += 1;
                println!("interop: passed: {name}");
            }
            Verdict::Failed(reason) => {
                self.failed += 1;
                println!("interop: FAILED: {name}\n{reason}");
            }
            Verdict::Skipped(reason) => {
                self.skipped += 1;
                println!("interop: SKIPPED: {name}\n{reason}");
            }
        }
    }

    fn outcome(&self, skipping: Skipping) -> Outcome {
        let skipped_counts = match skipping {
            Skipping::IsReported => 0,
            Skipping::Fails => self.skipped,
        };
        Outcome::from_success(self.failed + skipped_counts == 0)
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(verdicts: Vec<Verdict>) -> Tally {
        let mut tally = Tally::default();
        verdicts.into_iter().for_each(|verdict| tally.count("a check", verdict));
        tally
    }

    #[test]
    fn the_closing_line_counts_each_verdict() {
        let verdicts =
            vec![Verdict::Passed, Verdict::Passed, Verdict::Failed("x".into()), Verdict::Skipped("y".into())];
        assert_eq!(tally(verdicts).to_string(), "2 passed, 1 failed, 1 skipped");
    }

    #[test]
    fn a_skipped_check_fails_only_in_ci() {
        let skipped = tally(vec![Verdict::Passed, Verdict::Skipped("no network".into())]);
        assert_eq!(skipped.outcome(Skipping::IsReported), Outcome::Passed);
        assert_eq!(skipped.outcome(Skipping::Fails), Outcome::Failed);
    }

    #[test]
    fn a_failed_check_fails_everywhere() {
        let failed = tally(vec![Verdict::Passed, Verdict::Failed("x".into())]);
        assert_eq!(failed.outcome(Skipping::IsReported), Outcome::Failed);
        assert_eq!(tally(vec![Verdict::Passed]).outcome(Skipping::Fails), Outcome::Passed);
    }

    #[test]
    fn every_check_has_its_script() {
        let all = [SMALL, EDITOR, TRACE_READERS, AGENTS, TRANSFORMERS];
        for check in all.iter().flat_map(|environment| environment.checks) {
            let script = process::workspace_root().join("xtask/interop").join(check.script);
            assert!(script.is_file(), "{} is missing", script.display());
        }
    }
}
