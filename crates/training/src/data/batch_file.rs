//! One batch from a `.safetensors` file, repeated at every step: used to replay a stored case.

use std::path::{Path, PathBuf};

use safetensors::Dtype;

use super::synthetic::check_room;
use super::{Batch, BatchShape, DataError, file_name};
use crate::safetensors_file::SafetensorsFile;

#[derive(Debug)]
pub struct BatchFile {
    path: PathBuf,
    shape: BatchShape,
    batch: Batch,
}

impl BatchFile {
    pub fn open(path: &Path, vocab_size: usize) -> Result<BatchFile, DataError> {
        let file = SafetensorsFile::open(path)?;
        let (shape, input_ids) = read_ids(&file, "input_ids", vocab_size)?;
        let (targets_shape, targets) = read_ids(&file, "targets", vocab_size)?;
        if shape != targets_shape {
            return Err(DataError::BadBatch {
                path: path.to_path_buf(),
                why: format!(
                    "`input_ids` is [{}, {}] and `targets` is [{}, {}]",
                    shape.batch_size, shape.seq_len, targets_shape.batch_size, targets_shape.seq_len
                ),
            });
        }
        Ok(BatchFile { path: path.to_path_buf(), shape, batch: Batch { input_ids, targets } })
    }

    pub fn fill(&self, batch: &mut Batch) -> Result<(), DataError> {
        check_room(self.shape, batch)?;
        batch.input_ids.copy_from_slice(&self.batch.input_ids);
        batch.targets.copy_from_slice(&self.batch.targets);
        Ok(())
    }

    pub fn shape(&self) -> BatchShape {
        self.shape
    }

    pub fn description(&self) -> String {
        format!("batch file {}, {} × {}", file_name(&self.path), self.shape.batch_size, self.shape.seq_len)
    }
}

fn read_ids(file: &SafetensorsFile, name: &str, vocab_size: usize) -> Result<(BatchShape, Vec<i32>), DataError> {
    let bad = |why: String| DataError::BadBatch { path: file.path().to_path_buf(), why };
    let Some(info) = file.tensor(name) else {
        let names: Vec<&str> = file.tensors().iter().map(|(name, _)| name.as_str()).take(8).collect();
        return Err(bad(format!("no tensor `{name}`; it holds {}", names.join(", "))));
    };
    let decode: fn(&[u8]) -> i64 = match info.dtype {
        Dtype::I64 => |bytes| i64::from_le_bytes(bytes.try_into().unwrap_or_default()),
        Dtype::I32 => |bytes| i64::from(i32::from_le_bytes(bytes.try_into().unwrap_or_default())),
        other => return Err(bad(format!("`{name}` is {other:?}"))),
    };
    let [batch_size, seq_len] = info.shape[..] else {
        return Err(bad(format!("`{name}` has shape {:?}", info.shape)));
    };
    if batch_size == 0 || seq_len == 0 {
        return Err(bad(format!("`{name}` has shape {:?} and holds no token", info.shape)));
    }
    let mut ids = Vec::with_capacity(batch_size * seq_len);
    let mut buffer = vec![0; 1 << 16];
    file.read_pieces(info, &mut buffer, |piece| {
        for encoded in piece.chunks_exact(info.dtype.bitsize() / 8) {
            let id = decode(encoded);
            // As `u64`, a negative id lies beyond any vocabulary.
            if id as u64 >= vocab_size as u64 || id > i64::from(i32::MAX) {
                return Err(DataError::OutsideVocabulary {
                    path: file.path().to_path_buf(),
                    position: format!("[{}, {}] of `{name}`", ids.len() / seq_len, ids.len() % seq_len),
                    id,
                    vocab_size,
                });
            }
            ids.push(id as i32);
        }
        Ok(())
    })?;
    Ok((BatchShape { batch_size, seq_len }, ids))
}
