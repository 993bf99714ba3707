//! `headroom generate`: text from a checkpoint, the same for the same seed.

use crate::place::{Place, SMALL};
use serde_json::Value;

/// The alphabet, repeated: a model that has learned anything continues with the next letter.
fn alphabet() -> String {
    ('a'..='z').collect::<String>().repeat(400)
}

fn trained() -> Place {
    let place = Place::new();
    place.write("letters.txt", alphabet());
    place.succeeds(
        "train --size nano --batch-size 8 --seq-len 32 --data letters.txt --optimizer muon --learning-rate 1e-2 --num-steps 60 --save ck",
    );
    place
}

fn generated(place: &Place, flags: &str) -> Value {
    let done = place.succeeds(&format!("generate --from ck --format json {flags}"));
    serde_json::from_str(&done.stdout).unwrap_or_else(|error| panic!("{error}: {}", done.stdout))
}

#[test]
fn a_model_goes_on_with_what_it_has_learned() {
    let place = trained();
    let most_likely = generated(&place, "--prompt cdefghij --temperature 0 --max-tokens 12");
    assert_eq!(most_likely["text"], "klmnopqrstuv", "{most_likely}");
    assert_eq!(most_likely["prompt_tokens"].as_array().unwrap().len(), 8);
    assert_eq!(most_likely["end"], "max_tokens");
    let by_tokens = generated(&place, "--prompt-tokens 99,100,101,102,103,104,105,106 --temperature 0 --max-tokens 12");
    assert_eq!(by_tokens["tokens"], most_likely["tokens"]);
    let shown = place.succeeds("generate --from ck --prompt cdefghij --temperature 0 --max-tokens 12");
    assert_eq!(shown.stdout, "cdefghijklmnopqrstuv\n");
    assert!(shown.stderr.contains("12 tokens in"), "{}", shown.stderr);
}

#[test]
fn a_text_ends_where_the_generation_settings_say() {
    let place = trained();
    let go_on = "--prompt cdefghij --temperature 0 --max-tokens 6";
    place.write("ck/generation_config.json", r#"{"eos_token_id": [0, 109]}"#);
    let ended = generated(&place, go_on);
    assert_eq!((&ended["text"], &ended["end"]), (&"kl".into(), &"end_token".into()));
    let config = String::from_utf8(place.read("ck/config.json")).unwrap();
    place.write("ck/config.json", config.replace("\"eos_token_id\": null", "\"eos_token_id\": 110"));
    place.write("ck/generation_config.json", "{}");
    assert_eq!(generated(&place, go_on)["text"], "klmnop", "the settings decide alone");
    std::fs::remove_file(place.path("ck/generation_config.json")).unwrap();
    assert_eq!(generated(&place, go_on)["text"], "klm");
    place.write("ck/generation_config.json", "[");
    place.refuses(&format!("generate --from ck {go_on}"), &["generation_config.json does not parse"]);
}

#[test]
fn a_seed_says_what_is_drawn() {
    let place = trained();
    let drawn = |flags: &str| generated(&place, &format!("--prompt a --max-tokens 40 {flags}"))["tokens"].clone();
    assert_eq!(drawn("--temperature 3 --seed 1"), drawn("--temperature 3 --seed 1"));
    assert_ne!(drawn("--temperature 3 --seed 1"), drawn("--temperature 3 --seed 2"));
    assert_eq!(drawn("--seed 1 --top-k 1"), drawn("--temperature 0 --seed 9"), "one token to draw from");
    assert_eq!(drawn("--seed 1 --top-p 0.000001"), drawn("--seed 2 --top-k 1"));
}

#[test]
fn prompts_and_settings_that_cannot_be_are_refused() {
    let place = Place::new();
    place.succeeds(&format!("train {SMALL} --num-steps 1 --save ck"));
    place.refuses("generate --from ck --prompt=", &["the prompt is empty"]);
    place.refuses("generate --from ck --prompt a --temperature -1", &["--temperature is -1"]);
    place.refuses("generate --from ck --prompt a --top-p 0", &["--top-p is 0"]);
    place.refuses("generate --from ck --prompt a --device null", &["computes nothing"]);
    place.refuses("generate --from nowhere --prompt a", &["nowhere"]);
    place.succeeds(&format!("train {SMALL} --family gpt2 --num-steps 1 --save gpt2"));
    let done = place.run("generate --from ck --prompt-tokens 5000");
    assert!(
        done.code != Some(0) && done.stderr.contains("token 5000 is not in the model's vocabulary of 1000"),
        "{}",
        done.stderr
    );
    place.succeeds("generate --from gpt2 --prompt-tokens 1,2,3 --max-tokens 3 --format json");
}
