//! The tensors of a checkpoint's files: their names, order and dtypes.
//!
//! A model may be saved in fewer bits than it is trained in. Its exact weights are then in the optimizer's file, so that
//! resuming loses nothing.

use half::{bf16, f16};
use safetensors::tensor::Dtype;
use serde_json::{Map, Value};

use super::{Content, TensorSpec};

/// The dtype in which a model's weights are saved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SavedDtype {
    #[default]
    F32,
    Bf16,
    F16,
}

impl SavedDtype {
    pub const ALL: [SavedDtype; 3] = [SavedDtype::F32, SavedDtype::Bf16, SavedDtype::F16];

    pub fn name(self) -> &'static str {
        match self {
            SavedDtype::F32 => "fp32",
            SavedDtype::Bf16 => "bf16",
            SavedDtype::F16 => "fp16",
        }
    }

    /// PyTorch's name, as `config.json` has it.
    pub fn torch_name(self) -> &'static str {
        match self {
            SavedDtype::F32 => "float32",
            SavedDtype::Bf16 => "bfloat16",
            SavedDtype::F16 => "float16",
        }
    }

    /// The dtype that a `config.json` names, under the key of transformers from version 5 on or before it.
    pub(super) fn named_in(entries: &Map<String, Value>) -> Option<SavedDtype> {
        let named = ["dtype", "torch_dtype"].into_iter().find_map(|key| entries.get(key).and_then(Value::as_str))?;
        let name = named.trim_start_matches("torch.");
        SavedDtype::ALL.into_iter().find(|dtype| dtype.torch_name() == name)
    }

    /// The dtype that all these tensors have; `None` if they differ or have another.
    pub(super) fn shared_by(mut dtypes: impl Iterator<Item = Dtype>) -> Option<SavedDtype> {
        let first = dtypes.next()?;
        dtypes.all(|dtype| dtype == first).then_some(())?;
        SavedDtype::ALL.into_iter().find(|dtype| dtype.in_file() == first)
    }

    pub(super) fn in_file(self) -> Dtype {
        match self {
            SavedDtype::F32 => Dtype::F32,
            SavedDtype::Bf16 => Dtype::BF16,
            SavedDtype::F16 => Dtype::F16,
        }
    }

    pub(super) fn bytes(self) -> usize {
        match self {
            SavedDtype::F32 => 4,
            SavedDtype::Bf16 | SavedDtype::F16 => 2,
        }
    }

    /// Appends the elements, rounded to the nearest. A finite one that becomes infinite is returned: it does not fit.
    pub(super) fn encode(self, elements: &[f32], bytes: &mut Vec<u8>) -> Result<(), f32> {
        let beyond =
            |fits: fn(f32) -> bool| elements.iter().copied().find(|x| x.is_finite() && !fits(*x)).map_or(Ok(()), Err);
        match self {
            SavedDtype::F32 => bytes.extend(elements.iter().flat_map(|x| x.to_le_bytes())),
            SavedDtype::Bf16 => {
                bytes.extend(elements.iter().flat_map(|x| bf16::from_f32(*x).to_le_bytes()));
                beyond(|x| bf16::from_f32(x).is_finite())?;
            }
            SavedDtype::F16 => {
                bytes.extend(elements.iter().flat_map(|x| f16::from_f32(*x).to_le_bytes()));
                beyond(|x| f16::from_f32(x).is_finite())?;
            }
        }
        Ok(())
    }
}

/// Begins the name of a weight's exact value in the optimizer's file.
const EXACT: &str = "master";

/// A tensor of a file.
pub(super) struct StoredTensor<'a> {
    pub content: Content,
    pub parameter: &'a TensorSpec,
    /// Its name in the file.
    pub name: String,
    pub dtype: SavedDtype,
}

impl StoredTensor<'_> {
    pub fn bytes(&self) -> usize {
        self.dtype.bytes() * self.parameter.elements()
    }
}

/// The tensors of `model.safetensors`, in order.
pub(super) fn of_model(parameters: &[TensorSpec], dtype: SavedDtype) -> Vec<StoredTensor<'_>> {
    let content = Content::Weight;
    parameters
        .iter()
        .map(|parameter| StoredTensor { content, parameter, name: parameter.name.clone(), dtype })
        .collect()
}

/// The tensors of `optimizer.safetensors`, in order: states, and exact weights if the model is saved in `dtype` and that
/// does not hold them.
pub(super) fn of_optimizer(parameters: &[TensorSpec], dtype: SavedDtype) -> Vec<StoredTensor<'_>> {
    let states = Content::STATES.into_iter().flat_map(|content| {
        let have = parameters.iter().filter(move |one| one.has(content));
        have.map(move |one| (content, one, content.tensor_name(&one.name)))
    });
    let exact = parameters.iter().filter(|_| dtype != SavedDtype::F32);
    let exact = exact.map(|one| (Content::Weight, one, format!("{EXACT}.{}", one.name)));
    let all = states.chain(exact);
    all.map(|(content, parameter, name)| StoredTensor { content, parameter, name, dtype: SavedDtype::F32 }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_dtype_is_known_by_either_key_and_with_or_without_torch() {
        let named = |value: Value| SavedDtype::named_in(value.as_object().unwrap());
        assert_eq!(named(json!({"dtype": "bfloat16"})), Some(SavedDtype::Bf16));
        assert_eq!(named(json!({"torch_dtype": "float16"})), Some(SavedDtype::F16));
        assert_eq!(named(json!({"torch_dtype": "torch.float32"})), Some(SavedDtype::F32));
        assert_eq!(named(json!({"dtype": null, "torch_dtype": "bfloat16"})), Some(SavedDtype::Bf16));
        for other in [json!({}), json!({"dtype": "auto"}), json!({"dtype": 16}), json!({"dtype": "float64"})] {
            assert_eq!(named(other), None);
        }
    }

    #[test]
    fn tensors_of_several_dtypes_share_none() {
        let shared = |dtypes: &[Dtype]| SavedDtype::shared_by(dtypes.iter().copied());
        assert_eq!(shared(&[Dtype::BF16, Dtype::BF16]), Some(SavedDtype::Bf16));
        assert_eq!(shared(&[Dtype::BF16, Dtype::F32]), None);
        assert_eq!((shared(&[Dtype::I64]), shared(&[])), (None, None));
    }

    #[test]
    fn elements_are_rounded_to_the_nearest_and_overflow_is_told() {
        let encoded = |dtype: SavedDtype, elements: &[f32]| {
            let mut bytes = vec![];
            dtype.encode(elements, &mut bytes).map(|()| bytes)
        };
        // Halfway between 1 and the next bf16, ties go to the even one.
        for (bits, want) in
            [(0x3f80_0000, 0x3f80_u16), (0x3f80_8000, 0x3f80), (0x3f80_8001, 0x3f81), (0xc000_0000, 0xc000)]
        {
            assert_eq!(encoded(SavedDtype::Bf16, &[f32::from_bits(bits)]), Ok(want.to_le_bytes().to_vec()), "{bits:x}");
        }
        assert_eq!(encoded(SavedDtype::F16, &[1.5]), Ok(vec![0x00, 0x3e]));
        assert_eq!(encoded(SavedDtype::F32, &[1.5]), Ok(1.5f32.to_le_bytes().to_vec()));
        assert_eq!(encoded(SavedDtype::F16, &[1.0, 70_000.0]), Err(70_000.0));
        assert_eq!(encoded(SavedDtype::Bf16, &[f32::MAX]), Err(f32::MAX));
        assert!(encoded(SavedDtype::F32, &[f32::MAX]).is_ok());
    }
}
