//! Matrix products in bfloat16: close to the single-precision reference, and bit-identical on any number of threads.

use crate::case::{CASES, Case, relative, weights};
use headroom_engine::cpu::isa::Isa;
use headroom_graph::Precision;
use headroom_graph::passes::PassList;
use headroom_training::program::Keep;
use headroom_training::trainer::Trainer;

fn trainer(case: &Case, isa: Isa, threads: usize, passes: PassList) -> Trainer {
    case.trainer_at(Precision::Bf16, isa, threads, passes, Keep::Gradients)
}

#[test]
fn gradients_and_loss_curve_stay_near_those_in_single_precision() {
    for name in CASES {
        let case = Case::load(name);
        for isa in Isa::available() {
            for passes in [PassList::none(), PassList::version_2(), PassList::all()] {
                let what = format!("{name} at {isa} under {}", passes.label());
                let mut trainer = trainer(&case, isa, 2, passes);
                for (step, want) in case.losses.iter().enumerate() {
                    let loss = case.step(&mut trainer);
                    assert!((loss - want).abs() <= 2e-3 * want, "{what}: loss {step} is {loss}, wants {want}");
                    if step > 0 {
                        continue;
                    }
                    for parameter in case.weights.keys() {
                        let gradient = trainer.read_output(&format!("grad.{parameter}")).unwrap();
                        let error = relative(&case.expected[&format!("grad.{parameter}")], &gradient);
                        assert!(error <= 2e-2, "{what}: gradient of {parameter} is off by {error:e}");
                        assert!(error > 1e-5, "{what}: {parameter} is as exact as in single precision");
                    }
                }
            }
        }
    }
}

#[test]
fn any_number_of_threads_gives_the_same_bytes_in_bf16() {
    let case = Case::load("nano");
    for isa in Isa::available() {
        for passes in [PassList::none(), PassList::all()] {
            let trained = |threads: usize| {
                let mut trainer = trainer(&case, isa, threads, passes.clone());
                (0..3).for_each(|_| {
                    case.step(&mut trainer);
                });
                let names: Vec<String> = case.weights.keys().cloned().collect();
                names.iter().flat_map(|name| weights(&mut trainer, name)).map(f32::to_bits).collect::<Vec<_>>()
            };
            let alone = trained(1);
            assert!([2, 5].iter().all(|&threads| trained(threads) == alone), "{isa} {}", passes.label());
        }
    }
}
