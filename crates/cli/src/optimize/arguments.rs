//! The command line of `optimize`: the options of headroom's own model, and the refusal of options of the other half.

use super::script::ScriptArguments;
use clap::parser::ValueSource;
use clap::{ArgMatches, Args};
use std::time::Duration;

/// Options of headroom's own model, which is optimized if no script is given.
#[derive(clap::Args)]
#[command(next_help_heading = "For headroom's own model (without --)")]
pub struct OwnArguments {
    /// Model size by name, as for `train`
    #[arg(long, default_value = "tiny")]
    pub size: String,
    /// Sequences per batch [default: as the size has it]
    #[arg(long, value_name = "N")]
    pub batch_size: Option<usize>,
    /// Tokens per sequence [default: as the size has it]
    #[arg(long, value_name = "N")]
    pub seq_len: Option<usize>,
    /// cpu, cuda or cuda:N
    #[arg(long, default_value = "cpu")]
    pub device: String,
    /// Use this list of passes unchanged and try only precisions: all that `--precision auto` needs, in a fraction of the time
    #[arg(long, value_name = "LIST", allow_hyphen_values = true)]
    pub passes: Option<String>,
    /// Precisions to try after the passes, each on top of the fastest one proven before it, or none [default: bf16 on the CPU;
    /// tf32,bf16,fp8 on a GPU that has them]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub precisions: Option<Vec<String>>,
    /// [default: the physical cores]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    pub threads: Option<u16>,
    /// Required speed-up of the kept list (the fastest one) over Version 1, such as 1.3 [default: 1, not slower]. The gate passes if
    /// its whole interval lies above, fails if it lies below, and is undecided otherwise
    #[arg(long, value_name = "RATIO")]
    pub min_speedup: Option<f64>,
    /// Also predict the step of the kept list on these numbers of ranks: time, exposed communication, memory per rank
    #[arg(long, value_name = "N,…", value_delimiter = ',', value_parser = clap::value_parser!(u16).range(2..=1024))]
    pub ranks: Vec<u16>,
    /// Also measure each list that leaves out one of all passes
    #[arg(long)]
    pub ablation: bool,
    /// Steps of the final loss curve
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..))]
    pub curve_steps: u16,
    /// Refuse a baseline that needs more memory than this, such as 4GiB
    #[arg(long, value_name = "SIZE")]
    pub memory_limit: Option<String>,
}

/// A sentence about options that belong to the other half of the command, if any was given.
pub fn misplaced(given: &ArgMatches) -> Option<String> {
    let is_script = given.contains_id("command");
    let nothing = clap::Command::new("");
    let others = if is_script { OwnArguments::augment_args(nothing) } else { ScriptArguments::augment_args(nothing) };
    let is_given = |id: &str| given.value_source(id) == Some(ValueSource::CommandLine);
    let names = others.get_arguments().filter(|argument| is_given(argument.get_id().as_str()));
    let names: Vec<String> = names.filter_map(|argument| Some(format!("--{}", argument.get_long()?))).collect();
    let (all, apply, it) = match names.len() {
        0 => return None,
        1 => (names.join(" "), "applies", "it"),
        _ => (names.join(" and "), "apply", "them"),
    };
    Some(match is_script {
        true => format!(
            "{all} {apply} to headroom's own model, and a script is given after `--`\n  help: leave {it} out, or the script"
        ),
        false => format!(
            "{all} {apply} to a script, and none is given\n  help: name its command after `--`, such as `headroom optimize \
             {all} -- python train.py`"
        ),
    })
}

/// `300`, `300s`, `5m` or `1h`.
pub fn duration(text: &str) -> Result<Duration, String> {
    let (number, unit) = text.split_at(text.find(|letter: char| letter.is_alphabetic()).unwrap_or(text.len()));
    let unit = match unit {
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return Err("a time is seconds, or a number with s, m or h".into()),
    };
    let seconds = number.parse::<f64>().map_err(|_| "a time is seconds, or a number with s, m or h")? * unit;
    if !(0.0..=24.0 * 3600.0).contains(&seconds) {
        return Err("a day at most".into());
    }
    Ok(Duration::from_secs_f64(seconds))
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
        for wrong in ["x", "5d", "-3m", "nan", "inf", "30h", ""] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
    }
}
