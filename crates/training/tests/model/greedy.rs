//! Greedy generation against transformers (`xtask/cases/greedy.py`).

use crate::case::{CASES, folder, json};
use headroom_engine::{DeviceSpec, Opening};
use headroom_graph::Precision;
use headroom_graph::passes::PassList;
use headroom_training::checkpoint::Checkpoint;
use headroom_training::generate::{GenerateError, Generator, Sampling, Settings};
use serde_json::Value;

/// Gaps between the two largest logits that rounding cannot close.
const SAFE_GAP: f64 = 1e-4;

fn settings<'a>(opening: &'a Opening, passes: PassList, longest: usize) -> Settings<'a> {
    Settings { device: DeviceSpec::Cpu, opening, precision: Precision::Fp32, passes, longest }
}

fn tokens(value: &Value) -> Vec<i32> {
    value.as_array().unwrap().iter().map(|token| token.as_i64().unwrap() as i32).collect()
}

fn generated(generator: &mut Generator, prompt: &[i32], count: usize) -> Vec<i32> {
    let mut made = vec![];
    let mut next = prompt.to_vec();
    for index in 0..count {
        let token = Sampling::GREEDY.choose(generator.read(&next).unwrap(), index as u64);
        made.push(token);
        next = vec![token];
    }
    made
}

#[test]
fn greedy_tokens_are_those_of_transformers() {
    let opening = Opening::threads(2);
    for name in CASES {
        let checkpoint = Checkpoint::open(&folder(name)).unwrap();
        for case in json(name, "greedy.json").as_array().unwrap() {
            let (prompt, want) = (tokens(&case["prompt"]), tokens(&case["tokens"]));
            assert!(case["gap"].as_f64().unwrap() > SAFE_GAP, "{name}: a choice that rounding could change");
            for (list, passes) in [("none", PassList::none()), ("all", PassList::all())] {
                let longest = prompt.len() + want.len();
                let mut generator = Generator::open(&checkpoint, &settings(&opening, passes, longest)).unwrap();
                let made = generated(&mut generator, &prompt, want.len());
                assert_eq!(made, want, "{name} after {} tokens under {list}", prompt.len());
            }
        }
    }
}

/// A prompt is read 32 tokens at a time, by a different program than a single token.
#[test]
fn a_prompt_read_at_once_is_the_same_as_token_by_token() {
    let opening = Opening::threads(2);
    let checkpoint = Checkpoint::open(&folder("qwen3")).unwrap();
    let prompt = tokens(&json("qwen3", "greedy.json")[1]["prompt"]);
    let open = || Generator::open(&checkpoint, &settings(&opening, PassList::all(), prompt.len())).unwrap();
    let (mut whole, mut singly) = (open(), open());
    let at_once = whole.read(&prompt).unwrap().to_vec();
    let mut last = vec![];
    for token in &prompt {
        last = singly.read(&[*token]).unwrap().to_vec();
    }
    let furthest = at_once.iter().zip(&last).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(furthest < 1e-4, "logits differ by {furthest}");
    assert_eq!(whole.tokens(), prompt.len());
}

#[test]
fn tokens_that_do_not_fit_are_refused() {
    let opening = Opening::threads(1);
    let checkpoint = Checkpoint::open(&folder("nano")).unwrap();
    let mut generator = Generator::open(&checkpoint, &settings(&opening, PassList::all(), 4)).unwrap();
    let vocabulary = checkpoint.config().model.vocab_size as i32;
    for outside in [-1, vocabulary] {
        assert!(matches!(generator.read(&[outside]), Err(GenerateError::OutsideVocabulary { .. })));
    }
    assert!(matches!(generator.read(&[1; 5]), Err(GenerateError::TooLong { tokens: 5, longest: 4 })));
    generator.read(&[1; 4]).unwrap();
    assert!(matches!(generator.read(&[1]), Err(GenerateError::TooLong { .. })));
}
