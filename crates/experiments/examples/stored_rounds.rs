//! Records rounds of one and the same model, for simulations of intervals: how times scatter and drift on a machine, and
//! what its counters say about other programs meanwhile. Build it with optimisation.

#![allow(clippy::print_stdout, reason = "its figures are its answer")]

use headroom_engine::machine::Machine;
use headroom_engine::{DeviceSpec, Opening};
use headroom_experiments::bench::{Bench, Setting, Variant};
use headroom_experiments::turns::Contestant;
use headroom_graph::passes::PassList;
use headroom_training::data::BatchShape;
use headroom_training::models::Size;
use headroom_training::optimizer::OptimizerConfig;
use headroom_training::program::{Keep, StepConfig};
use std::error::Error;
use std::fmt::Write as _;
use std::fs;

const USAGE: &str = "\
Records rounds in which the same model takes several turns.

usage: stored_rounds SIZE ROUNDS FILE

  SIZE    a size of `headroom train`, such as nano; it runs Version 1 with the size's own batch and length
  ROUNDS  lines to record; the test draws blocks of neighbouring ones, and 200 are enough
  FILE    where to write them, such as crates/experiments/tests/data/rounds/quiet.tsv

The file has one line per round, in the order of time, with two columns per turn, separated by tabs: seconds per step
(the better of two steps, as in every race), and the share of the turn that other programs took (`-` where the system
does not tell). Lines that begin with # describe the machine. Turns are neither repeated nor left out. Record quiet.tsv
with nothing else running, and disturbed.tsv beside programs that come and go, such as a build.";

/// Models that take a turn in every round.
const CONTESTANTS: usize = 4;

fn main() -> Result<(), Box<dyn Error>> {
    let words = std::env::args_os().skip(1);
    let arguments: Vec<String> = words.map(|word| word.to_string_lossy().into_owned()).collect();
    let [size, rounds, file] = &arguments[..] else {
        println!("{USAGE}");
        let is_asked = arguments.iter().any(|word| word == "--help" || word == "-h");
        return if is_asked { Ok(()) } else { Err(format!("{} arguments instead of 3", arguments.len()).into()) };
    };
    let rounds: usize = rounds.parse().map_err(|_| format!("ROUNDS is `{rounds}`, which is not a number"))?;
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
    let machine = Machine::detect();
    let setting = Setting { seed: 42, device: DeviceSpec::Cpu, opening: Opening::threads(machine.cores) };
    let mut benches = vec![];
    for _ in 0..CONTESTANTS {
        let mut bench = Bench::new(&step, &Variant::baseline(), Keep::OnlyTheLoss, &setting)?;
        bench.losses(bench.warm_up_steps())?;
        benches.push(bench);
    }
    let mut text = format!("# {size}, Version 1, {} cores of {}\n", machine.cores, machine.cpu_name);
    text += "# seconds and share of other programs, turn by turn; one line per round\n";
    for round in 0..rounds {
        let mut columns = vec![];
        for place in 0..CONTESTANTS {
            let place = if round % 2 == 0 { place } else { CONTESTANTS - 1 - place };
            let turn = benches[place].turn()?;
            let share = turn.interference.map_or("-".into(), |share| format!("{share:.5}"));
            columns.push(format!("{:.9}\t{share}", turn.seconds));
        }
        writeln!(text, "{}", columns.join("\t"))?;
    }
    fs::write(file, text).map_err(|error| format!("cannot write {file}: {error}"))?;
    println!("{rounds} rounds of {CONTESTANTS} turns in {file}");
    Ok(())
}
