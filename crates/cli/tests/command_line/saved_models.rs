//! Saved models: in the dtype that they were loaded in, with the files that came with them, and resumed to the byte.

use crate::place::{Place, SMALL};
use safetensors::{Dtype, SafeTensors};
use std::fs;

fn dtype_of(place: &Place, folder: &str) -> (Dtype, String) {
    let bytes = place.read(&format!("{folder}/model.safetensors"));
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let mut dtypes: Vec<Dtype> = file.iter().map(|(_, view)| view.dtype()).collect();
    dtypes.dedup();
    assert_eq!(dtypes.len(), 1, "{dtypes:?}");
    let config = place.json(&format!("{folder}/config.json"));
    assert_eq!(config["dtype"], config["torch_dtype"]);
    (dtypes[0], config["dtype"].as_str().unwrap().to_string())
}

/// A model as from the Hub, in bf16, with everything that comes with one.
fn downloaded() -> Place {
    let place = Place::new();
    place.succeeds(&format!("train {SMALL} --num-steps 1 --save hf --save-dtype bf16"));
    assert_eq!(dtype_of(&place, "hf"), (Dtype::BF16, "bfloat16".into()));
    for file in ["optimizer.safetensors", "training_state.json"] {
        fs::remove_file(place.path(&format!("hf/{file}"))).unwrap();
    }
    for file in FILES {
        place.write(&format!("hf/{file}"), format!("content of {file}"));
    }
    place
}

const FILES: [&str; 10] = [
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "tokenizer.model",
    "chat_template.jinja",
    "chat_template.json",
];

const LINE: &str = "train --init-from hf --batch-size 2 --seq-len 16 --learning-rate 1e-3";

#[test]
fn a_model_loaded_in_bf16_is_saved_in_bf16_and_resumes_to_the_byte() {
    let place = downloaded();
    place.succeeds(&format!("{LINE} --num-steps 6 --save straight"));
    place.succeeds(&format!("{LINE} --num-steps 3 --save half"));
    let resumed = place.succeeds("train --resume half --num-steps 6 --save whole --json");
    assert_eq!(dtype_of(&place, "whole"), (Dtype::BF16, "bfloat16".into()));
    for file in ["model.safetensors", "optimizer.safetensors", "config.json", "training_state.json"] {
        assert!(place.read(&format!("whole/{file}")) == place.read(&format!("straight/{file}")), "{file} differs");
    }
    let straight = place.succeeds(&format!("{LINE} --num-steps 6 --json")).losses();
    assert_eq!(resumed.losses(), straight[3..]);
    let size = |folder: &str| fs::metadata(place.path(&format!("{folder}/model.safetensors"))).unwrap().len();
    assert!(size("whole").abs_diff(size("hf")) < 200, "{} and {} bytes", size("whole"), size("hf"));
}

#[test]
fn the_dtype_of_a_saved_model_can_be_chosen_and_stays() {
    let place = downloaded();
    place.succeeds(&format!("{LINE} --num-steps 2 --save single --save-dtype fp32"));
    assert_eq!(dtype_of(&place, "single"), (Dtype::F32, "float32".into()));
    place.succeeds("train --resume single --num-steps 3 --save single");
    assert_eq!(dtype_of(&place, "single"), (Dtype::F32, "float32".into()));
    place.succeeds("train --resume single --num-steps 4 --save half --save-dtype fp16");
    assert_eq!(dtype_of(&place, "half"), (Dtype::F16, "float16".into()));
    // The dtype of the tensors, if the configuration says nothing.
    let config = String::from_utf8(place.read("hf/config.json")).unwrap();
    place.write("hf/config.json", config.replace("\"torch_dtype\"", "\"a\"").replace("\"dtype\"", "\"b\""));
    place.succeeds(&format!("{LINE} --num-steps 1 --save tensors"));
    assert_eq!(dtype_of(&place, "tensors"), (Dtype::BF16, "bfloat16".into()));
    place.refuses(&format!("train {SMALL} --save x --save-dtype int8"), &["int8", "fp32", "bf16", "fp16"]);
    place.refuses(&format!("train {SMALL} --save-dtype bf16"), &["--save"]);
}

#[test]
fn a_models_other_files_come_along_to_every_checkpoint() {
    let place = downloaded();
    place.succeeds(&format!(
        "{LINE} --num-steps 4 --save ck --save-every 2 --keep 2 --eval-every 2 --eval-batches 1 --keep-best"
    ));
    let check = |folder: &str| {
        for file in FILES {
            let content = place.read(&format!("{folder}/{file}"));
            assert_eq!(content, place.read(&format!("hf/{file}")), "{folder}/{file}");
        }
    };
    for folder in ["ck", "ck/step-00000002", "ck/best"] {
        check(folder);
    }
    place.succeeds("train --resume ck/step-00000002 --num-steps 3 --save again");
    check("again");
}

#[test]
fn another_models_tokenizer_is_not_replaced_unasked_and_does_not_stay() {
    let place = downloaded();
    fs::create_dir(place.path("mine")).unwrap();
    place.write("mine/tokenizer.json", "mine");
    place.refuses(&format!("{LINE} --num-steps 1 --save mine"), &["mine holds another model already (tokenizer.json)"]);
    assert_eq!(place.read("mine/tokenizer.json"), b"mine");
    place.write("text.txt", "a text of bytes ".repeat(50));
    let bytes = format!("train {SMALL} --data text.txt --num-steps 1 --save mine");
    place.refuses(&bytes, &["mine holds another model already (tokenizer.json)", "--overwrite"]);
    place.succeeds(&format!("{bytes} --overwrite"));
    assert!(!place.path("mine/tokenizer.json").exists(), "it is not this model's");
}
