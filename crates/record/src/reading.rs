//! Reads files that others may have written: kind and size are known before the content, and memory has a limit.
//!
//! A FIFO would make its reader wait for ever, a device may have no end, and a file of gigabytes would be taken into
//! memory before anything looks at it. So a file is asked what it is, opened without waiting, and asked again, because
//! another file may have taken its name meanwhile. At most one byte more than the limit is read, even of a file that
//! grows or that lies about its size, as those of `/proc` do.

use std::fs::{self, File, FileType, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::path::Path;

/// A script. A person writes kilobytes, and generated ones stay below a megabyte.
pub const SCRIPT: u64 = 8 << 20;
/// A notebook, most of which is pictures; its code has the limit of a script.
pub const NOTEBOOK: u64 = 64 << 20;
/// Settings that a person writes: `pyproject.toml`, `headroom.toml`, `run.toml`.
pub const SETTINGS: u64 = 4 << 20;
/// JSON of a checkpoint, and of the tokenizer beside it. The index of a model with 100,000 tensors takes 10 MiB.
pub const CHECKPOINT: u64 = 256 << 20;
/// A file of a run. A summary holds the time of every step, some ten bytes each.
pub const RECORD: u64 = 256 << 20;

/// Why a file was not read although it is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("it is a {0}, not a file")]
    Kind(&'static str),
    #[error("it has {bytes} bytes ({}), and at most {} of such a file are read", size(*bytes), size(*most))]
    Size { bytes: u64, most: u64 },
    /// A stream, or a file that grew: how much there would be is not known.
    #[error("it has more than {}, and no more of such a file are read", size(*most))]
    Endless { most: u64 },
}

impl Refusal {
    /// The refusal inside an error of this module.
    pub fn of(error: &io::Error) -> Option<Refusal> {
        error.get_ref()?.downcast_ref().copied()
    }
}

impl From<Refusal> for io::Error {
    fn from(refusal: Refusal) -> io::Error {
        let kind = match refusal {
            Refusal::Kind("folder") => ErrorKind::IsADirectory,
            // Not `FileTooLarge`: that is a write beyond what the system allows.
            _ => ErrorKind::InvalidInput,
        };
        io::Error::new(kind, refusal)
    }
}

/// The content of a file of at most `most` bytes.
pub fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let file = open(path)?;
    let bytes = file.metadata()?.len();
    if bytes > most {
        return Err(Refusal::Size { bytes, most }.into());
    }
    take(file, most)
}

/// Like [`read`], for text in UTF-8.
pub fn read_text(path: &Path, most: u64) -> io::Result<String> {
    let bytes = read(path, most)?;
    String::from_utf8(bytes).map_err(|error| io::Error::new(ErrorKind::InvalidData, error.utf8_error()))
}

/// All of a stream of at most `most` bytes.
pub fn take(stream: impl Read, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    stream.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(Refusal::Endless { most }.into());
    }
    Ok(bytes)
}

/// Opens a plain file, for readers that take it in pieces. Never waits.
pub fn open(path: &Path) -> io::Result<File> {
    let is_stream = names_a_stream(path);
    // Opening some devices already does something, so the kind is asked first.
    check(fs::metadata(path)?.file_type(), is_stream)?;
    let file = options(is_stream).open(path)?;
    check(file.metadata()?.file_type(), is_stream)?;
    Ok(file)
}

/// Whether the path is one of this process's own streams: whoever names one wants what is sent through it.
fn names_a_stream(path: &Path) -> bool {
    path == Path::new("/dev/stdin") || path.starts_with("/dev/fd")
}

fn check(kind: FileType, is_stream: bool) -> io::Result<()> {
    match name_of(kind) {
        Some(name) if !(is_stream && name == FIFO) => Err(Refusal::Kind(name).into()),
        _ => Ok(()),
    }
}

const FIFO: &str = "FIFO";

/// The kind of something that is not a plain file.
fn name_of(kind: FileType) -> Option<&'static str> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::FileTypeExt;
        let names = [
            (kind.is_fifo(), FIFO),
            (kind.is_socket(), "socket"),
            (kind.is_char_device() || kind.is_block_device(), "device"),
        ];
        if let Some((_, name)) = names.into_iter().find(|(is, _)| *is) {
            return Some(name);
        }
    }
    match (kind.is_file(), kind.is_dir()) {
        (true, _) => None,
        (false, true) => Some("folder"),
        (false, false) => Some("special file"),
    }
}

/// For a name that became a FIFO since its kind was asked: opening it does not wait for a writer.
#[cfg(unix)]
fn options(is_stream: bool) -> OpenOptions {
    use std::os::unix::fs::OpenOptionsExt;
    let mut options = File::options();
    let flags = rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOCTTY;
    options.read(true).custom_flags(if is_stream { 0 } else { flags.bits().cast_signed() });
    options
}

#[cfg(not(unix))]
fn options(_is_stream: bool) -> OpenOptions {
    let mut options = File::options();
    options.read(true);
    options
}

/// `3.0 GiB`, `8 MiB`, `12 bytes`.
fn size(bytes: u64) -> String {
    let units = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
    let Some((shift, unit)) = units.into_iter().find(|(shift, _)| bytes >> shift > 0) else {
        return format!("{bytes} bytes");
    };
    let tenths = (u128::from(bytes) * 10) >> shift;
    match tenths % 10 {
        0 => format!("{} {unit}", tenths / 10),
        rest => format!("{}.{rest} {unit}", tenths / 10),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(path: &Path, most: u64) -> String {
        let error = read(path, most).unwrap_err();
        assert!(Refusal::of(&error).is_some(), "{error}");
        error.to_string()
    }

    #[test]
    fn a_file_is_read_up_to_its_limit_and_refused_beyond_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("some.json");
        fs::write(&path, [7; 4096]).unwrap();
        assert_eq!(read(&path, 4096).unwrap().len(), 4096);
        assert_eq!(refused(&path, 4095), "it has 4096 bytes (4 KiB), and at most 3.9 KiB of such a file are read");
        assert_eq!(read_text(&path, 4096).unwrap().len(), 4096);
        fs::write(&path, [0xff]).unwrap();
        assert_eq!(read_text(&path, 4096).unwrap_err().kind(), ErrorKind::InvalidData);
        assert_eq!(read(&folder.path().join("absent"), 1).unwrap_err().kind(), ErrorKind::NotFound);
    }

    #[test]
    fn a_file_of_terabytes_is_refused_without_being_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.py");
        File::create(&path).unwrap().set_len(3 << 40).unwrap();
        let began = std::time::Instant::now();
        assert!(refused(&path, 8 << 20).contains("(3072 GiB), and at most 8 MiB"));
        assert!(began.elapsed().as_secs() < 5);
    }

    #[test]
    fn a_stream_without_an_end_is_read_to_the_limit_only() {
        let error = take(io::repeat(1), 1000).unwrap_err();
        assert_eq!(Refusal::of(&error), Some(Refusal::Endless { most: 1000 }));
        assert_eq!(take(&[1u8, 2][..], 2).unwrap(), [1, 2]);
    }

    #[cfg(unix)]
    #[test]
    fn fifos_sockets_devices_and_folders_are_refused_by_name() {
        use rustix::fs::{CWD, FileType, Mode, mknodat};
        let folder = tempfile::tempdir().unwrap();
        let fifo = folder.path().join("x.py");
        mknodat(CWD, &fifo, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        assert_eq!(refused(&fifo, 10), "it is a FIFO, not a file");
        let link = folder.path().join("link.py");
        std::os::unix::fs::symlink(&fifo, &link).unwrap();
        assert_eq!(refused(&link, 10), "it is a FIFO, not a file");
        let socket = folder.path().join("socket");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        assert_eq!(refused(&socket, 10), "it is a socket, not a file");
        assert_eq!(refused(Path::new("/dev/zero"), 10), "it is a device, not a file");
        assert_eq!(refused(folder.path(), 10), "it is a folder, not a file");
        assert_eq!(read(folder.path(), 10).unwrap_err().kind(), ErrorKind::IsADirectory);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn files_that_state_no_size_are_read() {
        assert!(read_text(Path::new("/proc/self/status"), 1 << 20).unwrap().contains("VmRSS"));
        let error = read(Path::new("/proc/self/status"), 10).unwrap_err();
        assert_eq!(Refusal::of(&error), Some(Refusal::Endless { most: 10 }));
    }
}
