//! The command line of a script's optimisation.

use crate::isolation::IsolationArguments;
use headroom_scripts::candidates::Wanted;
use headroom_scripts::remedies::{REMEDIES, named};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Options of a script that is given after `--`.
#[derive(clap::Args)]
#[command(next_help_heading = "For a PyTorch script (after --)")]
pub struct ScriptArguments {
    /// Try only these remedies
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = remedy_name)]
    pub(super) only: Vec<String>,
    /// Leave these remedies out
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = remedy_name)]
    pub(super) skip: Vec<String>,
    /// Steps to time in each process, and more until two seconds have passed
    #[arg(long, default_value_t = 20, value_name = "N", value_parser = clap::value_parser!(u32).range(4..))]
    pub(super) steps: u32,
    /// Warm-up steps before them; more while something is being compiled
    #[arg(long, default_value_t = 5, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) warmup_steps: u32,
    /// Show remedies and predictions, but try none
    #[arg(long)]
    pub(super) dry_run: bool,
    /// Write the patch into the script's files, if every gate passed
    #[arg(long, conflicts_with = "dry_run")]
    pub(super) apply: bool,
    #[command(flatten)]
    pub(super) isolation: IsolationArguments,
    /// Gone: a script is never run on the user's own files
    #[arg(long, hide = true)]
    pub(super) in_place: bool,
    /// The script's command: python train.py …, accelerate launch …, torchrun …
    #[arg(last = true, value_name = "COMMAND")]
    pub(super) command: Vec<OsString>,
}

impl ScriptArguments {
    pub fn is_given(&self) -> bool {
        !self.command.is_empty()
    }

    pub(super) fn wanted(&self, precision: bool) -> Wanted {
        Wanted { precision, only: self.only.clone(), skip: self.skip.clone() }
    }
}

fn remedy_name(name: &str) -> Result<String, String> {
    if named(name).is_some() {
        return Ok(name.to_string());
    }
    let names: Vec<&str> = REMEDIES.iter().map(|remedy| remedy.name).collect();
    Err(format!("there is no such remedy; choose from {}", names.join(", ")))
}

/// `runs/optimize-train` for `python train.py`.
pub(super) fn results_folder(command: &[OsString]) -> PathBuf {
    let script = main_script(command);
    let name = script.as_deref().or(command.first().map(Path::new)).and_then(Path::file_stem).unwrap_or_default();
    let mut folder = OsString::from("optimize-");
    folder.push(name);
    Path::new("runs").join(folder)
}

/// The first word that is a Python file, or the module of `-m`.
pub(super) fn main_script(command: &[OsString]) -> Option<PathBuf> {
    let file = command.iter().skip(1).map(Path::new).find(|word| word.extension().is_some_and(|end| end == "py"));
    if let Some(file) = file {
        return Some(file.to_path_buf());
    }
    let at = command.iter().position(|word| word == "-m")?;
    let module = command.get(at + 1)?.to_str()?.replace('.', "/");
    let places = [format!("{module}.py"), format!("{module}/__main__.py")];
    places.into_iter().map(PathBuf::from).find(|place| place.exists())
}

/// The notebook that a command runs, in place of a script.
pub(super) fn notebook(command: &[OsString]) -> Option<&Path> {
    command.iter().map(Path::new).find(|word| word.extension().is_some_and(|end| end == "ipynb"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_script_is_the_first_python_file_of_the_command() {
        let command = |text: &str| -> Vec<OsString> { text.split(' ').map(OsString::from).collect() };
        let of = |text: &str| main_script(&command(text));
        assert_eq!(of("python -u train.py --config other.py"), Some("train.py".into()));
        assert_eq!(of("torchrun --nproc_per_node 2 src/main.py"), Some("src/main.py".into()));
        assert_eq!(of("trainer --steps 3"), None);
        assert_eq!(results_folder(&command("python src/train.py")), Path::new("runs/optimize-train"));
        assert_eq!(results_folder(&command("litgpt pretrain")), Path::new("runs/optimize-litgpt"));
    }

    #[test]
    fn a_name_that_is_no_remedy_is_refused_with_those_there_are() {
        assert_eq!(remedy_name("tf32"), Ok("tf32".into()));
        assert!(remedy_name("tf33").unwrap_err().contains("compile-blocks"));
    }
}
