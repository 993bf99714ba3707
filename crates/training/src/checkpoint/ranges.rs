//! A checkpoint written by several ranks: each writes its own range of every tensor, into files that one of them has
//! prepared.

use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

use headroom_record::atomic::FileError;
use headroom_record::reading;
use sha2::{Digest, Sha256};

use super::journal::next_path;
use super::tensor_writer::{head_of, hex};
use super::{CheckpointError, Content, MODEL_FILE, OPTIMIZER_FILE, TensorSpec};
use crate::positioned_file::{read_exact_at, write_all_at};

/// Bytes read at a time to compute a digest.
const PIECE_BYTES: usize = 1 << 20;

/// The tensors of a file, in order.
pub(super) fn sources<'a>(parameters: &'a [TensorSpec], contents: &[Content]) -> Vec<(Content, &'a TensorSpec)> {
    let have = |content: Content| parameters.iter().filter(move |one| one.has(content)).map(move |one| (content, one));
    contents.iter().flat_map(|content| have(*content)).collect()
}

/// The same tensors under their names in the file.
pub(super) fn named(sources: &[(Content, &TensorSpec)]) -> Vec<TensorSpec> {
    sources.iter().map(|(content, one)| TensorSpec::new(content.tensor_name(&one.name), &one.shape)).collect()
}

/// The layout of a tensor file before it is written. Every rank computes the same layout by itself.
struct Layout {
    path: PathBuf,
    head: Vec<u8>,
    /// Content, parameter and first byte of each tensor.
    places: Vec<(Content, String, u64)>,
    bytes: u64,
}

impl Layout {
    fn both(folder: &Path, parameters: &[TensorSpec]) -> Result<[Layout; 2], CheckpointError> {
        let of = |file: &str, contents: &[Content]| -> Result<Layout, CheckpointError> {
            let (path, sources) = (next_path(folder, file), sources(parameters, contents));
            let head = head_of(&path, &named(&sources))?;
            let mut bytes = head.len() as u64;
            let mut places = vec![];
            for (content, one) in sources {
                places.push((content, one.name.clone(), bytes));
                bytes += 4 * one.elements() as u64;
            }
            Ok(Layout { path, head, places, bytes })
        };
        Ok([of(MODEL_FILE, &[Content::Weight])?, of(OPTIMIZER_FILE, &Content::STATES)?])
    }
}

/// Creates both files with their headers and at full length, for all ranks to fill.
pub(super) fn prepare(folder: &Path, parameters: &[TensorSpec]) -> Result<(), CheckpointError> {
    for layout in Layout::both(folder, parameters)? {
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
pub struct Ranges {
    files: Vec<(Layout, File)>,
}

impl Ranges {
    /// `None` if the prepared files are not visible from here, because the folder is not shared by all ranks.
    pub fn open(folder: &Path, parameters: &[TensorSpec]) -> Result<Option<Ranges>, CheckpointError> {
        let mut files = vec![];
        for layout in Layout::both(folder, parameters)? {
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

    /// Writes elements of one of a parameter's tensors, from index `first` on.
    pub fn write(&self, content: Content, name: &str, first: usize, data: &[f32]) -> Result<(), CheckpointError> {
        for (layout, file) in &self.files {
            let place = layout.places.iter().find(|(other, owner, _)| *other == content && owner == name);
            if let Some((.., begin)) = place {
                let bytes: Vec<u8> = data.iter().flat_map(|x| x.to_le_bytes()).collect();
                let written = write_all_at(file, &bytes, begin + 4 * first as u64);
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
