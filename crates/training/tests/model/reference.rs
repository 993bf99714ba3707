//! Models against Hugging Face's: logits, loss, every gradient, weights after AdamW steps, the loss curve.

use crate::case::{CASES, Case, relative, weights};
use headroom_engine::cpu::isa::Isa;

#[test]
fn every_case_computes_what_hugging_face_computes() {
    CASES.into_iter().for_each(check);
}

#[test]
fn any_number_of_threads_gives_the_same_bytes() {
    let case = Case::load("nano");
    let trained = |threads: usize| {
        let mut trainer = case.trainer(Isa::detect(), threads);
        (0..5).for_each(|_| {
            case.step(&mut trainer);
        });
        let names: Vec<String> = case.weights.keys().cloned().collect();
        names.iter().flat_map(|name| weights(&mut trainer, name)).map(f32::to_bits).collect::<Vec<_>>()
    };
    let alone = trained(1);
    assert!([2, 3, 5].iter().all(|&threads| trained(threads) == alone));
}

fn check(name: &str) {
    let case = Case::load(name);
    for isa in Isa::available() {
        let mut trainer = case.trainer(isa, 2);
        for (step, want) in case.losses.iter().enumerate() {
            let loss = case.step(&mut trainer);
            let tolerance = if step == 0 { 1e-5 } else { 1e-4 };
            assert!((loss - want).abs() <= tolerance * want, "{name} at {isa}: loss {step} is {loss}, wants {want}");
            if step == 0 {
                let logits = relative(&case.expected["logits"], &trainer.read_output("logits").unwrap());
                assert!(logits <= 1e-5, "{name} at {isa}: logits are off by {logits:e}");
                for parameter in case.weights.keys() {
                    let gradient = trainer.read_output(&format!("grad.{parameter}")).unwrap();
                    let error = relative(&case.expected[&format!("grad.{parameter}")], &gradient);
                    assert!(error <= 1e-4, "{name} at {isa}: gradient of {parameter} is off by {error:e}");
                }
            }
            if matches!(step, 0 | 4) {
                for parameter in case.weights.keys() {
                    let want = &case.expected[&format!("after{}.{parameter}", step + 1)];
                    let error = relative(want, &weights(&mut trainer, parameter));
                    assert!(error <= 1e-5, "{name} at {isa}: {parameter} after step {} is off by {error:e}", step + 1);
                }
            }
        }
    }
}
