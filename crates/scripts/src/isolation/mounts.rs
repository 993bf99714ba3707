//! The mounted file systems, as the kernel lists them.

use rustix::mount::MountFlags;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

#[derive(Clone, Debug, PartialEq)]
pub struct Mount {
    pub place: PathBuf,
    pub kind: String,
    /// Restrictions that a mount in its stead keeps: without them, the kernel refuses an ordinary user.
    pub flags: MountFlags,
}

/// All mounts, in the order in which they were made: of several at one place the last one is seen.
#[derive(Clone, Debug, Default)]
pub struct Mounts(Vec<Mount>);

impl Mounts {
    /// Parses `/proc/self/mountinfo`; lines of another form are left out.
    pub fn parse(text: &[u8]) -> Mounts {
        Mounts(text.split(|byte| *byte == b'\n').filter_map(mount).collect())
    }

    /// The mount on which a path lies.
    pub fn of(&self, path: &Path) -> Option<&Mount> {
        let around = self.0.iter().filter(|mount| path.starts_with(&mount.place));
        // The last one counts where several are mounted at one place.
        around.max_by_key(|mount| mount.place.components().count())
    }

    pub fn is_mounted(&self, path: &Path) -> bool {
        self.0.iter().any(|mount| mount.place == path)
    }

    pub fn has_any_beneath(&self, folder: &Path) -> bool {
        self.0.iter().any(|mount| mount.place != folder && mount.place.starts_with(folder))
    }

    /// Places beneath a folder that have no other mount between them and the folder, sorted.
    pub fn directly_beneath(&self, folder: &Path) -> Vec<PathBuf> {
        let beneath: Vec<&Path> = self.all_beneath(folder).collect();
        let is_direct = |place: &&&Path| !beneath.iter().any(|other| other != *place && place.starts_with(other));
        let mut places: Vec<PathBuf> = beneath.iter().filter(is_direct).map(|place| place.to_path_buf()).collect();
        places.sort();
        places.dedup();
        places
    }

    pub fn all_beneath<'a>(&'a self, folder: &'a Path) -> impl Iterator<Item = &'a Path> {
        let places = self.0.iter().map(|mount| mount.place.as_path());
        places.filter(move |place| *place != folder && place.starts_with(folder))
    }
}

/// `36 35 98:0 / /mnt rw,noatime shared:1 - ext3 /dev/root rw`.
fn mount(line: &[u8]) -> Option<Mount> {
    let mut words = line.split(|byte| *byte == b' ');
    let place = PathBuf::from(OsString::from_vec(unescaped(words.nth(4)?)));
    let options = std::str::from_utf8(words.next()?).ok()?;
    words.find(|word| *word == b"-")?;
    let kind = String::from_utf8(words.next()?.to_vec()).ok()?;
    let mut flags = MountFlags::empty();
    for option in options.split(',') {
        flags |= match option {
            "ro" => MountFlags::RDONLY,
            "nosuid" => MountFlags::NOSUID,
            "nodev" => MountFlags::NODEV,
            "noexec" => MountFlags::NOEXEC,
            "noatime" => MountFlags::NOATIME,
            "nodiratime" => MountFlags::NODIRATIME,
            "relatime" => MountFlags::RELATIME,
            _ => MountFlags::empty(),
        };
    }
    Some(Mount { place, kind, flags })
}

/// The kernel writes spaces, tabs, line ends and backslashes as `\040`.
fn unescaped(word: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(word.len());
    let mut rest = word;
    while let [first, after @ ..] = rest {
        let digits = if *first == b'\\' { after.get(..3) } else { None };
        let code = digits.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        bytes.push(code.unwrap_or(*first));
        rest = if code.is_some() { &after[3..] } else { after };
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &[u8] = b"27 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n\
        28 27 0:25 / /disk rw,nosuid,nodev shared:3 master:1 - ext4 /dev/vdb rw\n\
        29 28 0:26 / /disk/a\\040b/data ro - nfs4 far:/data ro\n\
        30 29 0:27 / /disk/a\\040b/data/deep rw - tmpfs tmpfs rw\n\
        broken line\n\
        31 27 0:28 / /proc rw - proc proc rw\n";

    #[test]
    fn mounts_are_found_by_path_and_by_folder() {
        let mounts = Mounts::parse(LIST);
        let kind = |path: &str| mounts.of(Path::new(path)).unwrap().kind.as_str();
        let path = Path::new("/disk/a b/data");
        assert_eq!([kind("/usr"), kind("/disk/x"), kind("/disk/a b/data/y")], ["ext4", "ext4", "nfs4"]);
        assert_eq!(mounts.of(Path::new("/disk/x")).unwrap().flags, MountFlags::NOSUID | MountFlags::NODEV);
        assert_eq!(mounts.directly_beneath(Path::new("/disk")), [path]);
        assert_eq!(mounts.directly_beneath(Path::new("/")).len(), 2);
        assert!(mounts.is_mounted(path) && !mounts.is_mounted(Path::new("/disk/a b")));
        assert!(mounts.has_any_beneath(Path::new("/disk/a b")) && !mounts.has_any_beneath(Path::new("/dis")));
        assert_eq!(mounts.all_beneath(Path::new("/disk")).count(), 2);
    }

    #[test]
    fn escapes_are_octal_numbers_and_anything_else_stays() {
        for (written, meant) in [("a\\040b", "a b"), ("\\134", "\\"), ("a\\9", "a\\9"), ("\\04", "\\04"), ("", "")] {
            assert_eq!(unescaped(written.as_bytes()), meant.as_bytes(), "{written}");
        }
    }
}
