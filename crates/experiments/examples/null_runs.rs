//! Lets the ladder choose among lists that are all Version 1, many times: how often is something recommended that gains
//! nothing? Build it with optimisation.

#![allow(clippy::print_stdout, reason = "its figures are its answer")]

use headroom_engine::machine::Machine;
use headroom_engine::{DeviceSpec, Opening};
use headroom_experiments::bench::Setting;
use headroom_experiments::ladder::{Ablation, Wanted, Watcher, proved_among_equals};
use headroom_experiments::turns::Patience;
use headroom_graph::cost::Rates;
use headroom_graph::passes::PassList;
use headroom_training::data::BatchShape;
use headroom_training::models::Size;
use headroom_training::optimizer::OptimizerConfig;
use headroom_training::program::StepConfig;
use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

const USAGE: &str = "\
Runs the selection of `headroom optimize` with lists of passes that all run Version 1.

usage: null_runs RUNS SECONDS [SIZE]

  RUNS     how often
  SECONDS  time of each, as `headroom optimize --time` takes it
  SIZE     a size of `headroom train` [default: nano]

Chain, screening, choice of finalists and proof are those of `optimize`; only what runs under the name of a list is not.
Every run prints whether something was proved. The exit code is 1 if that happened in more than 3 of 50 runs.";

/// As many of fifty runs may prove something: an interval misses with one in twenty, and half of these are gains.
const ALLOWED: f64 = 3.0 / 50.0;

/// As `optimize` has them without flags.
const ROUNDS: usize = 9;
const DOUBLINGS: usize = 8;

struct Silent;

impl Watcher for Silent {
    fn doing(&mut self, _: &str) {}
}

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let words = std::env::args_os().skip(1);
    let arguments: Vec<String> = words.map(|word| word.to_string_lossy().into_owned()).collect();
    let (runs, seconds, size) = match &arguments[..] {
        [runs, seconds] => (runs, seconds, "nano"),
        [runs, seconds, size] => (runs, seconds, size.as_str()),
        _ => {
            println!("{USAGE}");
            let is_asked = arguments.iter().any(|word| word == "--help" || word == "-h");
            return if is_asked { Ok(ExitCode::SUCCESS) } else { Err("2 or 3 arguments are needed".into()) };
        }
    };
    let number = |name: &str, text: &str| text.parse::<u64>().map_err(|_| format!("{name} is `{text}`, not a number"));
    let (runs, seconds) = (number("RUNS", runs)?.max(1), number("SECONDS", seconds)?.min(3600));
    let found = Size::named(size).ok_or_else(|| format!("there is no size `{size}`"))?;
    let step = StepConfig {
        model: found.model(),
        shape: BatchShape { batch_size: found.batch_size, seq_len: found.seq_len },
        optimizer: OptimizerConfig::default(),
        passes: PassList::none(),
        recomputed_layers: 0,
        precision: Default::default(),
        target: Default::default(),
    };
    let setting = Setting { seed: 42, device: DeviceSpec::Cpu, opening: Opening::threads(Machine::detect().cores) };
    let wanted = Wanted {
        patience: Patience { rounds: ROUNDS, most_rounds: DOUBLINGS * ROUNDS, time: Duration::from_secs(seconds) },
        curve_steps: 10,
        min_speedup: None,
        ablation: Ablation::No,
        more_if_busy: Duration::ZERO,
        // Only names the order of the lists.
        rates: Rates { product_flops: 1e11, bytes: 1e10, call_seconds: 1e-6 },
        room: None,
    };
    let mut wrong = 0;
    for run in 1..=runs {
        match proved_among_equals(&step, &setting, &wanted, &mut Silent)? {
            None => println!("{run}: nothing is proved"),
            Some(found) => {
                wrong += 1;
                println!("{run}: {:.3}× ({:.3} to {:.3}) is said to be proved", found.ratio, found.low, found.high);
            }
        }
    }
    println!("something was recommended in {wrong} of {runs} runs");
    let is_too_often = f64::from(wrong) > (ALLOWED * runs as f64).max(1.0);
    Ok(if is_too_often { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
