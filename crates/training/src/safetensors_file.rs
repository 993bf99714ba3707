//! A safetensors file read tensor by tensor: the whole header is checked, the data is read by position.

use std::path::Path;

use headroom_record::atomic::FileError;
use safetensors::tensor::{Metadata, TensorInfo};

use crate::positioned_file::PositionedFile;

/// The format's own limit; a larger length is not a safetensors file.
const LARGEST_HEADER_BYTES: u64 = 100_000_000;

#[derive(Debug, thiserror::Error)]
pub enum SafetensorsError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error("{path} is not a whole safetensors file: {why}")]
    Broken { path: String, why: String },
}

#[derive(Debug)]
pub struct SafetensorsFile {
    file: PositionedFile,
    /// The length field and the header, as they stand in the file.
    head: Vec<u8>,
    /// In file order; together they fill the rest of the file without a gap.
    tensors: Vec<(String, TensorInfo)>,
}

impl SafetensorsFile {
    pub fn open(path: &Path) -> Result<SafetensorsFile, SafetensorsError> {
        let file = PositionedFile::open(path)?;
        let broken = |why: String| SafetensorsError::Broken { path: path.display().to_string(), why };
        if file.bytes() < 8 {
            return Err(broken(format!("it has {} bytes, but its header's length alone takes 8", file.bytes())));
        }
        let mut length = [0; 8];
        file.read_exact_at(&mut length, 0)?;
        let header_bytes = u64::from_le_bytes(length);
        if header_bytes > LARGEST_HEADER_BYTES || header_bytes > file.bytes() - 8 {
            return Err(broken(format!(
                "its header should have {header_bytes} bytes, but the file has {} in all",
                file.bytes()
            )));
        }
        let mut head = vec![0; 8 + header_bytes as usize];
        file.read_exact_at(&mut head, 0)?;
        let metadata: Metadata = serde_json::from_slice(&head[8..])
            .map_err(|error| broken(format!("its header does not parse: {error}")))?;
        let want_bytes = (head.len() as u64).checked_add(metadata.data_len() as u64);
        if want_bytes != Some(file.bytes()) {
            return Err(broken(format!(
                "its header declares {} bytes of tensors, but {} follow",
                metadata.data_len(),
                file.bytes() - head.len() as u64
            )));
        }
        let tensors = metadata
            .offset_keys()
            .into_iter()
            .filter_map(|name| metadata.info(&name).cloned().map(|info| (name, info)))
            .collect();
        Ok(SafetensorsFile { file, head, tensors })
    }

    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// The bytes before the tensors' data.
    pub fn head(&self) -> &[u8] {
        &self.head
    }

    pub fn tensors(&self) -> &[(String, TensorInfo)] {
        &self.tensors
    }

    pub fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        self.tensors.iter().find(|(known, _)| known == name).map(|(_, info)| info)
    }

    /// Hands the tensor's bytes to `accept` in pieces of at most `buffer`'s length (which is not 0), in order.
    pub fn read_pieces<E: From<SafetensorsError>>(
        &self,
        tensor: &TensorInfo,
        buffer: &mut [u8],
        mut accept: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let (mut start, end) = tensor.data_offsets;
        while start < end {
            let piece_bytes = (end - start).min(buffer.len());
            let piece = &mut buffer[..piece_bytes];
            let position = (self.head.len() + start) as u64;
            self.file.read_exact_at(piece, position).map_err(SafetensorsError::from)?;
            accept(piece)?;
            start += piece.len();
        }
        Ok(())
    }
}
