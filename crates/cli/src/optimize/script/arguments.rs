//! The command line of a script's optimisation.

use crate::isolation::IsolationArguments;
use crate::optimize::phase_3::Precisions;
use headroom_scripts::candidates::Wanted;
use headroom_scripts::remedies::{REMEDIES, named};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Options of a script that is given after `--`.
#[derive(clap::Args)]
#[command(next_help_heading = "For a PyTorch script (after --)")]
pub struct ScriptArguments {
    /// Also try remedies of this class: `precision` (bf16) changes losses by more than rounding. Without a script: keep the
    /// precision that Phase 3 proves
    #[arg(long, value_name = "CLASS", value_parser = ["precision"])]
    pub(super) allow: Option<String>,
    /// Try only these remedies
    #[arg(long, value_name = "NAMES", value_delimiter = ',', requires = "command", value_parser = remedy_name)]
    pub(super) only: Vec<String>,
    /// Leave these remedies out
    #[arg(long, value_name = "NAMES", value_delimiter = ',', requires = "command", value_parser = remedy_name)]
    pub(super) skip: Vec<String>,
    /// Steps to time in each process, and more until two seconds have passed
    #[arg(long, default_value_t = 20, value_name = "N", value_parser = clap::value_parser!(u32).range(4..))]
    pub(super) steps: u32,
    /// Warm-up steps before them; more while something is being compiled
    #[arg(long, default_value_t = 5, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) warmup_steps: u32,
    /// Time limit for everything, in seconds or as `5m`: remedies that do not fit into it are not tried
    #[arg(long, default_value = "5m", value_name = "TIME", value_parser = duration)]
    pub(super) time_limit: Duration,
    /// Show remedies and predictions, but try none
    #[arg(long, requires = "command")]
    pub(super) dry_run: bool,
    /// Write the patch into the script's files, if every gate passed
    #[arg(long, requires = "command", conflicts_with = "dry_run")]
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

    pub(super) fn wanted(&self) -> Wanted {
        Wanted { precision: self.allow.is_some(), only: self.only.clone(), skip: self.skip.clone() }
    }

    /// Whether a proved precision of our own model is kept or only reported.
    pub(in crate::optimize) fn precisions(&self) -> Precisions {
        if self.allow.is_some() { Precisions::Kept } else { Precisions::Reported }
    }
}

fn remedy_name(name: &str) -> Result<String, String> {
    if named(name).is_some() {
        return Ok(name.to_string());
    }
    let names: Vec<&str> = REMEDIES.iter().map(|remedy| remedy.name).collect();
    Err(format!("there is no such remedy; choose from {}", names.join(", ")))
}

/// `300`, `300s`, `5m` or `1h`.
fn duration(text: &str) -> Result<Duration, String> {
    let (number, unit) = text.split_at(text.find(|letter: char| letter.is_alphabetic()).unwrap_or(text.len()));
    let unit = match unit {
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return Err("a time is seconds, or a number with s, m or h".into()),
    };
    let seconds = number.parse::<f64>().map_err(|_| "a time is seconds, or a number with s, m or h")? * unit;
    if !(10.0..=24.0 * 3600.0).contains(&seconds) {
        return Err("between ten seconds and a day".into());
    }
    Ok(Duration::from_secs_f64(seconds))
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
    fn times_are_given_in_seconds_minutes_or_hours() {
        let seconds = |text: &str| duration(text).map(|time| time.as_secs_f64());
        assert_eq!(seconds("300"), Ok(300.0));
        assert_eq!(seconds("90s"), Ok(90.0));
        assert_eq!(seconds("1.5m"), Ok(90.0));
        assert_eq!(seconds("1h"), Ok(3600.0));
        for wrong in ["5", "x", "5d", "-3m", "nan", "inf", "30h", ""] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
    }

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
