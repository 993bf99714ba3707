//! The dtype of saved weights: as the configuration says, and exact for resuming.

use super::{Part, check_refused, config, edit, load, saved, saver, state, tensors_of};
use headroom_training::checkpoint::{Checkpoint, Companions, Content, SavedDtype, Snapshot};
use safetensors::{Dtype, SafeTensors};
use tempfile::TempDir;

#[test]
fn a_model_is_saved_in_the_dtype_that_its_config_says_and_resumes_exactly() {
    for (named, dtype) in [("bfloat16", Dtype::BF16), ("float16", Dtype::F16)] {
        let config = config(&format!(r#", "torch_dtype": "{named}""#));
        let (folder, plain) = (saved(&config), saved(&super::config("")));
        let bytes = std::fs::read(folder.path().join("model.safetensors")).unwrap();
        let file = SafeTensors::deserialize(&bytes).unwrap();
        assert!(file.iter().all(|(_, view)| view.dtype() == dtype));
        let data = |folder: &TempDir| {
            let bytes = std::fs::read(folder.path().join("model.safetensors")).unwrap();
            SafeTensors::deserialize(&bytes).unwrap().iter().map(|(_, view)| view.data().len()).sum::<usize>()
        };
        assert_eq!(2 * data(&folder), data(&plain));
        let text = std::fs::read_to_string(folder.path().join("config.json")).unwrap();
        let says: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&says["dtype"], &says["torch_dtype"]), (&named.into(), &named.into()));

        let tensors = tensors_of(&config);
        let all = load(folder.path(), &tensors, Part::All).unwrap();
        assert_eq!(all, load(plain.path(), &tensors, Part::All).unwrap(), "nothing is lost for resuming");
        let weights = load(folder.path(), &tensors, Part::Weights).unwrap();
        let key = (Content::Weight, tensors[0].name.clone());
        let off = weights[&key].iter().zip(&all[&key]).map(|(rounded, exact)| (rounded - exact).abs());
        let most = off.fold(0.0, f32::max);
        assert!(most > 0.0 && most < 0.004, "weights alone are the rounded ones: off by up to {most}");
    }
}

#[test]
fn a_config_without_a_dtype_takes_that_of_the_tensors() {
    let folder = saved(&config(r#", "dtype": "bfloat16""#));
    let path = folder.path().join("config.json");
    let without = std::fs::read_to_string(&path).unwrap().replace("torch_dtype", "a").replace("dtype", "b");
    std::fs::write(&path, without).unwrap();
    assert_eq!(Checkpoint::open(folder.path()).unwrap().config().dtype, SavedDtype::Bf16);
    edit(&folder.path().join("model.safetensors"), |tensors| {
        let (_, dtype, _, bytes) = &mut tensors[0];
        (*dtype, *bytes) = (Dtype::F32, vec![0; 2 * bytes.len()]);
    });
    assert_eq!(Checkpoint::open(folder.path()).unwrap().config().dtype, SavedDtype::F32, "of two dtypes, neither");
}

#[test]
fn exact_weights_that_are_missing_are_not_replaced_by_rounded_ones() {
    let config = config(r#", "dtype": "bfloat16""#);
    let folder = saved(&config);
    edit(&folder.path().join("optimizer.safetensors"), |tensors| {
        tensors.retain(|(name, ..)| name != "master.model.norm.weight");
    });
    check_refused(folder.path(), &config, Part::All, &["optimizer.safetensors", "master.model.norm.weight is missing"]);
}

#[test]
fn a_weight_beyond_the_dtype_is_told_and_the_checkpoint_before_it_stays() {
    let config = config(r#", "dtype": "float16""#);
    let folder = saved(&config);
    let before = load(folder.path(), &tensors_of(&config), Part::All).unwrap();
    let (tensors, state) = (tensors_of(&config), state(11));
    let snapshot = Snapshot { config: &config, tensors: &tensors, state: &state, companions: &Companions::default() };
    let error = saver(&folder, 1).save(snapshot, &mut |_, name, take| {
        let tensor = tensors.iter().find(|tensor| tensor.name == name).unwrap();
        take(&vec![1e5; tensor.elements()])
    });
    let error = error.unwrap_err().to_string();
    assert!(error.contains("100000, which is beyond fp16") && error.contains("--save-dtype fp32"), "{error}");
    assert_eq!(load(folder.path(), &tensors_of(&config), Part::All).unwrap(), before);
}
