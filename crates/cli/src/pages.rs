//! `headroom pages FOLDER`: writes man pages of all commands and completions for all shells, in the layout of packages.

use clap::{Command, CommandFactory, ValueEnum};
use clap_complete::Shell;
use headroom_record::atomic::FileError;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(clap::Args)]
pub struct Arguments {
    /// Where `share/man/man1` and the shells' own folders are made
    folder: PathBuf,
}

pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let mut command = crate::Cli::command();
    command.build();
    write_pages(&command, "headroom", &folder(&arguments.folder, "share/man/man1")?)?;
    for shell in Shell::value_variants() {
        // Folders that shells search by default; other shells' files have to be copied by hand.
        let (place, name) = match shell {
            Shell::Bash => ("share/bash-completion/completions", "headroom"),
            Shell::Zsh => ("share/zsh/site-functions", "_headroom"),
            Shell::Fish => ("share/fish/vendor_completions.d", "headroom.fish"),
            Shell::Elvish => ("share/elvish/lib", "headroom.elv"),
            _ => ("share/powershell", "headroom.ps1"),
        };
        let mut script = Vec::new();
        clap_complete::generate(*shell, &mut crate::Cli::command(), "headroom", &mut script);
        write(&folder(&arguments.folder, place)?.join(name), &script)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes a page for the command and one per subcommand, as `git` does: headroom.1, headroom-lint.1,
/// headroom-runs-list.1.
fn write_pages(command: &Command, name: &str, folder: &Path) -> anyhow::Result<()> {
    let page = clap_mangen::Man::new(command.clone().display_name(name.to_string())).title(name.to_uppercase());
    let mut text = Vec::new();
    page.render(&mut text)?;
    write(&folder.join(format!("{name}.1")), &text)?;
    let below = command.get_subcommands().filter(|command| !command.is_hide_set() && command.get_name() != "help");
    for command in below {
        write_pages(command, &format!("{name}-{}", command.get_name()), folder)?;
    }
    Ok(())
}

fn folder(root: &Path, below: &str) -> Result<PathBuf, FileError> {
    let folder = root.join(below);
    fs::create_dir_all(&folder).map_err(FileError::new("make", &folder))?;
    Ok(folder)
}

fn write(path: &Path, text: &[u8]) -> Result<(), FileError> {
    fs::write(path, text).map_err(FileError::new("write", path))
}
