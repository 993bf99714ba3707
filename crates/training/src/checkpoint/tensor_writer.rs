//! Writes a safetensors file as a stream: tensor after tensor, in pieces, computing the file's digest on the way.

use std::collections::HashMap;
use std::fs::File;
use std::io::Write;
use std::path::Path;

use headroom_record::atomic::FileError;
use safetensors::tensor::{Metadata, TensorInfo};
use sha2::{Digest, Sha256};

use super::CheckpointError;
use super::stored::StoredTensor;

/// Elements converted to bytes at a time.
const PIECE_ELEMENTS: usize = 1 << 16;

/// Takes a tensor's elements, in order and in any number of pieces.
pub(super) type TakePiece<'a> = dyn FnMut(&[f32]) -> Result<(), CheckpointError> + 'a;

/// Writes `tensors` to a new file and syncs it. Calls `give` once per tensor, in order, with a function that takes the
/// elements. Returns the file's SHA-256.
pub(super) fn write_tensors(
    path: &Path,
    tensors: &[StoredTensor],
    give: &mut dyn FnMut(&StoredTensor, &mut TakePiece) -> Result<(), CheckpointError>,
) -> Result<String, CheckpointError> {
    let head = head_of(path, tensors)?;
    let mut out = DigestedFile::create(path)?;
    out.write(&head)?;
    let mut bytes = Vec::with_capacity(PIECE_ELEMENTS * 4);
    for tensor in tensors {
        let mut have = 0;
        give(tensor, &mut |piece| {
            have += piece.len();
            for elements in piece.chunks(PIECE_ELEMENTS) {
                bytes.clear();
                encode(tensor, elements, &mut bytes)?;
                out.write(&bytes)?;
            }
            Ok(())
        })?;
        let want = tensor.parameter.elements();
        if have != want {
            return Err(CheckpointError::WrongLength { name: tensor.name.clone(), want, have });
        }
    }
    out.finish()
}

/// Appends the elements as the file holds them.
pub(super) fn encode(tensor: &StoredTensor, elements: &[f32], bytes: &mut Vec<u8>) -> Result<(), CheckpointError> {
    let dtype = tensor.dtype;
    let beyond = |value| CheckpointError::BeyondDtype { name: tensor.name.clone(), value, dtype: dtype.name() };
    dtype.encode(elements, bytes).map_err(beyond)
}

/// Writes a small file whole and syncs it; returns its SHA-256.
pub(super) fn write_bytes(path: &Path, bytes: &[u8]) -> Result<String, CheckpointError> {
    let mut out = DigestedFile::create(path)?;
    out.write(bytes)?;
    out.finish()
}

pub(super) fn hex(digest: Sha256) -> String {
    digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The header's length and the header, padded with spaces so that the data begins at a multiple of eight bytes.
pub(super) fn head_of(path: &Path, tensors: &[StoredTensor]) -> Result<Vec<u8>, CheckpointError> {
    let mut offset = 0;
    let infos = tensors
        .iter()
        .map(|tensor| {
            let start = offset;
            offset += tensor.bytes();
            let (dtype, shape) = (tensor.dtype.in_file(), tensor.parameter.shape.clone());
            let info = TensorInfo { dtype, shape, data_offsets: (start, offset) };
            (tensor.name.clone(), info)
        })
        .collect();
    let unwritable = |why: String| CheckpointError::Unreadable { path: path.to_path_buf(), why };
    // Transformers checks which framework's layout the tensors have.
    let format = HashMap::from([("format".to_string(), "pt".to_string())]);
    let metadata = Metadata::new(Some(format), infos).map_err(|error| unwritable(error.to_string()))?;
    let mut header = serde_json::to_vec(&metadata).map_err(|error| unwritable(error.to_string()))?;
    header.resize(header.len().next_multiple_of(8), b' ');
    Ok([&(header.len() as u64).to_le_bytes()[..], &header].concat())
}

struct DigestedFile<'a> {
    file: File,
    path: &'a Path,
    digest: Sha256,
}

impl DigestedFile<'_> {
    fn create(path: &Path) -> Result<DigestedFile<'_>, CheckpointError> {
        Ok(DigestedFile {
            file: File::create(path).map_err(FileError::new("create", path))?,
            path,
            digest: Sha256::new(),
        })
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), CheckpointError> {
        self.digest.update(bytes);
        self.file.write_all(bytes).map_err(FileError::new("write", self.path))?;
        Ok(())
    }

    fn finish(self) -> Result<String, CheckpointError> {
        self.file.sync_all().map_err(FileError::new("write", self.path))?;
        Ok(hex(self.digest))
    }
}
