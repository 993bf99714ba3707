//! A checkpoint written by several ranks: each writes its own range of every tensor, into files that one of them has
//! prepared.

use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

use headroom_record::atomic::FileError;
use headroom_record::reading;
use sha2::{Digest, Sha256};

use super::journal::next_path;
use super::stored::{self, StoredTensor};
use super::tensor_writer::{encode, head_of, hex};
use super::{CheckpointError, Content, MODEL_FILE, OPTIMIZER_FILE, SavedDtype, TensorSpec};
use crate::positioned_file::{read_exact_at, write_all_at};

/// Bytes read at a time to compute a digest.
const PIECE_BYTES: usize = 1 << 20;

/// The layout of a tensor file before it is written. Every rank computes the same layout by itself.
struct Layout<'a> {
    path: PathBuf,
    head: Vec<u8>,
    /// Each tensor and its first byte.
    places: Vec<(StoredTensor<'a>, u64)>,
    bytes: u64,
}

impl Layout<'_> {
    fn both<'a>(
        folder: &Path,
        parameters: &'a [TensorSpec],
        dtype: SavedDtype,
    ) -> Result<[Layout<'a>; 2], CheckpointError> {
        let of = |file: &str, tensors: Vec<StoredTensor<'a>>| -> Result<Layout<'a>, CheckpointError> {
            let path = next_path(folder, file);
            let head = head_of(&path, &tensors)?;
            let mut bytes = head.len() as u64;
            let mut places = vec![];
            for tensor in tensors {
                let begin = bytes;
                bytes += tensor.bytes() as u64;
                places.push((tensor, begin));
            }
            Ok(Layout { path, head, places, bytes })
        };
        Ok([
            of(MODEL_FILE, stored::of_model(parameters, dtype))?,
            of(OPTIMIZER_FILE, stored::of_optimizer(parameters, dtype))?,
        ])
    }
}

/// Creates both files with their headers and at full length, for all ranks to fill.
pub(super) fn prepare(folder: &Path, parameters: &[TensorSpec], dtype: SavedDtype) -> Result<(), CheckpointError> {
    for layout in Layout::both(folder, parameters, dtype)? {
        let mut file = File::create(&layout.path).map_err(FileError::new("create", &layout.path))?;
        let made =
            file.write_all(&layout.head).and_then(|()| file.set_len(layout.bytes)).and_then(|()| file.sync_all());
        made.map_err(FileError::new("write", &layout.path))?;
    }
    Ok(())
}

/// SHA-256 of both files as they are on disk.
pub(super) fn digests(folder: &Path) -> Result<[String; 2], CheckpointError> {
    let of = |name: &str| -> Result<String, CheckpointError> {
        let path = next_path(folder, name);
        let mut file = reading::open(&path).map_err(FileError::new("open", &path))?;
        let mut digest = Sha256::new();
        let mut piece = vec![0; PIECE_BYTES];
        loop {
            let read = file.read(&mut piece).map_err(FileError::new("read", &path))?;
            if read == 0 {
                return Ok(hex(digest));
            }
            digest.update(&piece[..read]);
        }
    };
    Ok([of(MODEL_FILE)?, of(OPTIMIZER_FILE)?])
}

/// The prepared files, open for one rank's ranges.
pub struct Ranges<'a> {
    files: Vec<(Layout<'a>, File)>,
}

impl Ranges<'_> {
    /// `None` if the prepared files are not visible from here, because the folder is not shared by all ranks.
    pub fn open<'a>(
        folder: &Path,
        parameters: &'a [TensorSpec],
        dtype: SavedDtype,
    ) -> Result<Option<Ranges<'a>>, CheckpointError> {
        let mut files = vec![];
        for layout in Layout::both(folder, parameters, dtype)? {
            let file = match File::options().read(true).write(true).open(&layout.path) {
                Ok(file) => file,
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
                Err(error) => return Err(FileError::new("open", &layout.path)(error).into()),
            };
            let mut head = vec![0; layout.head.len()];
            let same = read_exact_at(&file, &mut head, 0).is_ok() && head == layout.head;
            let length = fs::metadata(&layout.path).map_err(FileError::new("read", &layout.path))?.len();
            if !same || length != layout.bytes {
                return Ok(None);
            }
            files.push((layout, file));
        }
        Ok(Some(Ranges { files }))
    }

    /// Writes elements of one of a parameter's tensors, from index `first` on, into each file that holds it.
    pub fn write(&self, content: Content, name: &str, first: usize, data: &[f32]) -> Result<(), CheckpointError> {
        for (layout, file) in &self.files {
            let is_it = |one: &StoredTensor| one.content == content && one.parameter.name == name;
            if let Some((tensor, begin)) = layout.places.iter().find(|(one, _)| is_it(one)) {
                let mut bytes = vec![];
                encode(tensor, data, &mut bytes)?;
                let written = write_all_at(file, &bytes, begin + (tensor.dtype.bytes() * first) as u64);
                written.map_err(FileError::new("write", &layout.path))?;
            }
        }
        Ok(())
    }

    /// Syncs this rank's writes to disk.
    pub fn finish(self) -> Result<(), CheckpointError> {
        for (layout, file) in &self.files {
            file.sync_all().map_err(FileError::new("write", &layout.path))?;
        }
        Ok(())
    }
}
