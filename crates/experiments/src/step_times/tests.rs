//! Real models of two sizes that take turns, and how their steps are divided.

use super::*;
use headroom_engine::{DeviceSpec, Opening};
use headroom_graph::passes::PassList;
use headroom_training::data::BatchShape;
use headroom_training::models::Size;
use headroom_training::optimizer::OptimizerConfig;

fn candidate(passes: &str, batch_size: usize) -> Candidate {
    let step = StepConfig {
        model: Size::named("nano").unwrap().model(),
        shape: BatchShape { batch_size, seq_len: 16 },
        optimizer: OptimizerConfig::default(),
        passes: PassList::parse(passes).unwrap(),
        recomputed_layers: 0,
        precision: Default::default(),
        target: Default::default(),
    };
    Candidate { name: format!("{passes} at {batch_size}"), step, per_turn: 2 }
}

fn setting() -> Setting {
    Setting { seed: 42, device: DeviceSpec::Cpu, opening: Opening::threads(1) }
}

#[test]
fn steps_are_divided_and_not_added() {
    for steps in 10..=300 {
        let Division { run, per_turn } = Division::of(steps, 0).unwrap();
        assert!(run >= LEAST_RUN && per_turn >= 1, "{steps}");
        assert_eq!(run + WARM_UP + LEAST_ROUNDS as u64 * per_turn, steps);
    }
    assert_eq!(Division::of(50, 0), Some(Division { run: 29, per_turn: 4 }));
    assert_eq!(Division::of(10, 0), Some(Division { run: 4, per_turn: 1 }));
    assert_eq!(Division::of(9, 0), None);
    // A profiled run keeps what it records.
    assert_eq!(Division::of(10, 8), Some(Division { run: 8, per_turn: 1 }));
    assert_eq!(Division::of(100_000, 0).unwrap().per_turn, MOST_PER_TURN);
}

#[test]
fn neighbours_that_fit_into_memory_form_a_group() {
    assert_eq!(grouped(&[10, 10, 10], None), [vec![0, 1, 2]]);
    assert_eq!(grouped(&[10, 10, 10], Some(25)), [vec![0, 1], vec![2]]);
    assert_eq!(grouped(&[90, 10, 10], Some(25)), [vec![0], vec![1, 2]]);
    assert!(grouped(&[], Some(25)).is_empty());
}

#[test]
fn the_first_step_of_a_turn_counts_only_if_it_is_alone() {
    let turn = |steps: u64| {
        let mut seconds = [9.0, 1.0, 2.0, 3.0].into_iter();
        seconds_of_turn(steps, || Ok(seconds.next().unwrap())).unwrap()
    };
    assert_eq!([turn(1), turn(2), turn(4)], [9.0, 1.0, 2.0]);
}

#[test]
fn larger_batches_take_longer_and_every_group_says_how_it_went() {
    let candidates = [candidate("v1", 1), candidate("v1", 16), candidate("v2", 16)];
    let go_on = AtomicBool::new(false);
    let mut said = vec![];
    let times = time_in_turns(&candidates, &setting(), None, &go_on, &mut |line| said.push(line.to_string())).unwrap();
    let found = times.ratio(1, 0).unwrap();
    assert!(found.value > 1.5 && found.low > 1.0, "{found:?}");
    let seconds = |of: usize| times.seconds(of).unwrap();
    let product = seconds(1).value / seconds(0).value;
    assert!((found.value / product - 1.0).abs() < 0.5, "{found:?} against {product}");
    assert!(seconds(2).low <= seconds(2).value && seconds(2).value <= seconds(2).high);
    let races = times.races();
    assert_eq!(
        (races.len(), races[0].members.as_slice()),
        (1, ["v1 at 1", "v1 at 16", "v2 at 16"].map(String::from).as_slice())
    );
    assert!((5..=10).contains(&races[0].rounds), "{races:?}");
    assert_eq!(said, ["timing v1 at 1, v1 at 16, v2 at 16 in turns"]);
    assert_eq!(times.seconds(3), None);
    // In too little room they are alone, and there is nothing to pair.
    let apart = time_in_turns(&candidates[..2], &setting(), Some(1), &go_on, &mut |_| ()).unwrap();
    assert!(apart.ratio(1, 0).is_none() && apart.seconds(1).is_some() && apart.races().len() == 2);
}

#[test]
fn a_request_to_stop_ends_the_race() {
    let stopped = AtomicBool::new(true);
    let ended = time_in_turns(&[candidate("v1", 1)], &setting(), None, &stopped, &mut |_| ());
    assert!(matches!(ended, Err(Ended::Stopped)));
}
