//! Text for a loaded model: tokenized by the model's own tokenizer, and another choice is said.

use crate::place::{Place, SMALL};
use std::fs;

/// Words separated by white space, as ids 0 to 3.
const WORDS: &str = r#"{
  "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
  "pre_tokenizer": {"type": "Whitespace"}, "post_processor": null, "decoder": null,
  "model": {"type": "WordLevel", "vocab": {"<unk>": 0, "one": 1, "two": 2, "three": 3}, "unk_token": "<unk>"}
}"#;

const LINE: &str = "train --init-from hf --batch-size 2 --seq-len 16 --data words.txt";

/// A model as from the Hub, in `hf`, and a text of 600 words.
fn downloaded() -> Place {
    let place = Place::new();
    place.succeeds(&format!("train {SMALL} --num-steps 1 --save hf"));
    for file in ["optimizer.safetensors", "training_state.json"] {
        fs::remove_file(place.path(&format!("hf/{file}"))).unwrap();
    }
    place.write("words.txt", "one two three ".repeat(200));
    place
}

fn with_tokenizer() -> Place {
    let place = downloaded();
    place.write("hf/tokenizer.json", WORDS);
    place
}

#[test]
fn text_is_tokenized_by_the_loaded_models_own_tokenizer() {
    let place = with_tokenizer();
    let done = place.succeeds(&format!("{LINE} --num-steps 2 --save ck"));
    let said = "text is tokenized by hf/tokenizer.json (4 ids), the model's own";
    assert!(done.stderr.contains(said), "{}", done.stderr);
    let state = place.json("ck/training_state.json");
    assert!(state["data"].as_str().unwrap().contains(", 600 tokens"), "{}", state["data"]);
    assert_eq!(place.read("ck/tokenizer.json"), place.read("hf/tokenizer.json"));

    let eval = "eval --from hf --data words.txt --batch-size 2 --seq-len 16 --json";
    let done = place.succeeds(eval);
    assert!(done.stderr.contains(said), "{}", done.stderr);
    let bytes_per_token =
        |stdout: &str| serde_json::from_str::<serde_json::Value>(stdout).unwrap()["bytes_per_token"].clone();
    assert_eq!(bytes_per_token(&done.stdout), 2800.0 / 600.0);
    let bytes = place.succeeds(&format!("{eval} --tokenizer bytes"));
    assert_eq!(bytes_per_token(&bytes.stdout), 1.0);
    assert!(
        bytes.stderr.contains("text is read as bytes (256 ids), not by the model's own hf/tokenizer.json"),
        "{}",
        bytes.stderr
    );
    let generated = place.succeeds("generate --from ck --prompt two --max-tokens 2 --format json");
    assert!(generated.stdout.contains("\"prompt_tokens\": [\n    2\n  ]"), "{}", generated.stdout);
}

#[test]
fn another_tokenizer_is_said_and_goes_with_the_model() {
    let place = with_tokenizer();
    place.write("hf/merges.txt", "a b");
    place.write("other.json", WORDS.replace("\"three\": 3", "\"three\": 3, \"four\": 4"));
    let done = place.succeeds(&format!("{LINE} --num-steps 2 --tokenizer other.json --save other"));
    let said = "text is tokenized by other.json (5 ids), not by the model's own hf/tokenizer.json";
    assert!(done.stderr.contains(said), "{}", done.stderr);
    assert_eq!(place.read("other/tokenizer.json"), place.read("other.json"));
    assert!(!place.path("other/merges.txt").exists(), "it belongs to the other tokenizer");

    let done = place.succeeds(&format!("{LINE} --num-steps 2 --tokenizer bytes --save bytes"));
    let said = "text is read as bytes (256 ids), not by the model's own hf/tokenizer.json";
    assert!(done.stderr.contains(said), "{}", done.stderr);
    assert!(!place.path("bytes/tokenizer.json").exists());
    let resumed = place.succeeds("train --resume bytes --num-steps 3 --save bytes");
    assert!(!resumed.stderr.contains("text is"), "as it began: {}", resumed.stderr);
}

#[test]
fn a_folder_without_a_tokenizer_says_that_bytes_are_read() {
    let place = downloaded();
    let done = place.succeeds(&format!("{LINE} --num-steps 2"));
    assert!(done.stderr.contains("text is read as bytes (256 ids): hf has no tokenizer.json"), "{}", done.stderr);
    let done = place.succeeds("eval --from hf --data words.txt --batch-size 2 --seq-len 16");
    assert!(done.stderr.contains("text is read as bytes (256 ids): hf has no tokenizer.json"), "{}", done.stderr);
    place.refuses("generate --from hf --prompt one", &["hf has no tokenizer.json", "--tokenizer bytes"]);
    place.succeeds("generate --from hf --prompt one --tokenizer bytes --max-tokens 1");
}

#[test]
fn a_tokenizer_that_does_not_fit_the_model_or_the_data_is_refused() {
    let place = with_tokenizer();
    place.write("hf/tokenizer.json", WORDS.replace("\"three\": 3", "\"three\": 1000"));
    let words = ["hf/tokenizer.json has ids up to 1000", "at least 1001", "the model's has 1000", "--tokenizer bytes"];
    place.refuses(LINE, &words);
    place.refuses("eval --from hf --data words.txt", &words);
    place.write("hf/tokenizer.json", "{\"model\": 3}");
    place.refuses(LINE, &["hf/tokenizer.json", "cannot be used"]);
    place.refuses(&format!("train {SMALL} --tokenizer bytes"), &["`synthetic` is not text to tokenize"]);
    place.refuses("eval --from hf --data markov --tokenizer bytes", &["`markov` is not text to tokenize"]);
    // A tokenizer that is not used is not looked at.
    place.succeeds("train --init-from hf --batch-size 2 --seq-len 16 --num-steps 1");
}

#[test]
fn a_resumed_run_finds_its_tokenizer_in_the_checkpoint() {
    let place = with_tokenizer();
    place.succeeds(&format!("{LINE} --num-steps 4 --save straight"));
    place.succeeds(&format!("{LINE} --num-steps 2 --save half"));
    fs::remove_file(place.path("hf/tokenizer.json")).unwrap();
    let done = place.succeeds("train --resume half --num-steps 4 --save whole");
    assert!(!done.stderr.contains("trained on other data"), "{}", done.stderr);
    for file in ["model.safetensors", "optimizer.safetensors", "training_state.json", "tokenizer.json"] {
        assert!(place.read(&format!("whole/{file}")) == place.read(&format!("straight/{file}")), "{file} differs");
    }
    // A checkpoint from before only names the file.
    fs::remove_file(place.path("half/tokenizer.json")).unwrap();
    let words = ["half was trained with the tokenizer", "hf/tokenizer.json, which is missing", "--tokenizer"];
    place.refuses("train --resume half --num-steps 4", &words);
    place.refuses("eval --from half", &words);
}
