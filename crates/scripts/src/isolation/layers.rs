//! A view of the whole file system at its real paths, in which every write goes to a layer that is thrown away.
//!
//! Each mounted file system gets an overlay. The kernel refuses one in two cases: an ordinary user may not look beneath a
//! mount, so a folder with mounts in it is taken apart, entry by entry; and a layer may not lie in the folder that it
//! covers, so the folders above the layers are taken apart too. `/dev` and `/sys` stay as they are, `/proc` shows the
//! processes of the namespace, and `/dev/shm` is a new one.

use super::mounts::Mounts;
use super::spec::{Cache, Layers};
use headroom_record::reading;
use rustix::fs::{Access, Mode, OFlags, access, open};
use rustix::io::Errno;
use rustix::mount::{
    MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_bind, mount_bind_recursive, mount_change,
    mount_remount, unmount,
};
use std::ffi::CString;
use std::fs;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{self, Path, PathBuf};

/// Shown as they are: devices and the kernel's own files.
const AS_THEY_ARE: [&str; 2] = ["/dev", "/sys"];
/// File systems without files of a user.
const KERNELS_OWN: [&str; 16] = [
    "autofs",
    "binfmt_misc",
    "bpf",
    "cgroup",
    "cgroup2",
    "configfs",
    "debugfs",
    "devpts",
    "devtmpfs",
    "efivarfs",
    "mqueue",
    "nsfs",
    "proc",
    "pstore",
    "sysfs",
    "tracefs",
];
/// Sockets and pipes of the GPU's services. An overlay shows a socket, and nobody answers behind it.
const SERVICES: [&str; 3] = ["/tmp/nvidia-mps", "/run/nvidia-persistenced", "/run/nvidia-fabricmanager"];
/// A folder that is taken apart copies its own files up to this size; larger ones are read-only.
const COPIED: u64 = 64 << 20;
/// A folder with more entries than this is not taken apart into a writable one.
const MANY: usize = 4096;

/// The user that mounts the layers: an overlay marks deleted files in another way for an ordinary user.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Mounter {
    Root,
    UserNamespace,
}

/// A step that the system refused.
#[derive(Debug, thiserror::Error)]
#[error("cannot {what} {}: {source}", path.display())]
pub struct Refused {
    what: &'static str,
    path: PathBuf,
    source: io::Error,
}

fn refused<E: Into<io::Error>>(what: &'static str, path: &Path) -> impl FnOnce(E) -> Refused {
    let path = path.to_path_buf();
    move |error| Refused { what, path, source: error.into() }
}

struct Building<'a> {
    layers: &'a Layers,
    mounts: Mounts,
    mounter: Mounter,
    /// The new root, outside of which everything lies still.
    root: PathBuf,
    number: usize,
    /// Folders that have a layer of their own.
    covered: Vec<PathBuf>,
    remarks: Vec<String>,
}

/// Builds the view and makes it this process's root. Returns what is different from outside and worth telling.
pub fn enter(layers: &Layers, mounter: Mounter) -> Result<Vec<String>, Refused> {
    let slash = Path::new("/");
    let list = Path::new("/proc/self/mountinfo");
    let text = reading::read(list, reading::RECORD).map_err(refused("read", list))?;
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
        .map_err(refused("keep mounts in this namespace below", slash))?;
    let root = layers.hidden.join("root");
    fs::create_dir_all(&root).map_err(refused("make the folder", &root))?;
    mount_bind(&root, &root).map_err(refused("mount", &root))?;
    fs::set_permissions(&root, fs::Permissions::from_mode(0o755)).map_err(refused("open", &root))?;
    // The layers' paths are relative to it: their names need no escapes then.
    std::env::set_current_dir(&layers.hidden).map_err(refused("enter", &layers.hidden))?;
    let mut building =
        Building { layers, mounts: Mounts::parse(&text), mounter, root, number: 0, covered: vec![], remarks: vec![] };
    building.take_apart(slash)?;
    building.shared_memory()?;
    for path in &layers.written {
        building.own_folder(path);
    }
    for cache in &layers.caches {
        building.cache(cache)?;
    }
    let named = std::env::var_os("CUDA_MPS_PIPE_DIRECTORY").map(PathBuf::from);
    for path in SERVICES.iter().map(PathBuf::from).chain(named).filter_map(|path| path.canonicalize().ok()) {
        // Without it a GPU works as it does without the service.
        let _ = mount_bind_recursive(&path, building.inside(&path));
    }
    for path in &layers.shown {
        building.show_through(path)?;
    }
    for (text, path) in &layers.replaced {
        let bytes = reading::read(text, reading::SCRIPT).map_err(refused("read", text))?;
        fs::write(building.inside(path), bytes).map_err(refused("write the patch to", path))?;
    }
    let proc = building.inside(Path::new("/proc"));
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("proc", &proc, "proc", flags, None).map_err(refused("mount", Path::new("/proc")))?;
    std::env::set_current_dir(&building.root).map_err(refused("enter", &building.root))?;
    // The old root comes to lie over the new one, and is taken off.
    rustix::process::pivot_root(".", ".").map_err(refused("change the root to", &building.root))?;
    unmount(".", UnmountFlags::DETACH).map_err(refused("take off the old root of", &building.root))?;
    std::env::set_current_dir("/").map_err(refused("enter", slash))?;
    Ok(building.remarks)
}

impl Building<'_> {
    fn inside(&self, path: &Path) -> PathBuf {
        self.root.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// Shows a folder whose place in the new root exists.
    fn show(&mut self, folder: &Path) -> Result<(), Refused> {
        if folder == Path::new("/proc") {
            return Ok(());
        }
        let is_kernels = |kind: &str| KERNELS_OWN.contains(&kind);
        if AS_THEY_ARE.iter().any(|one| folder == Path::new(one))
            || self.mounts.is_mounted(folder) && self.mounts.of(folder).is_some_and(|mount| is_kernels(&mount.kind))
        {
            mount_bind_recursive(folder, self.inside(folder)).map_err(refused("show", folder))?;
            if folder == Path::new("/dev") {
                self.deny_new_devices(folder);
            }
            return Ok(());
        }
        if self.layers.home.starts_with(folder) {
            return self.take_apart(folder);
        }
        match self.overlay(folder, &self.inside(folder), None) {
            Ok(()) => self.show_mounts_in(folder),
            Err(_) if self.mounts.has_any_beneath(folder) => self.take_apart(folder),
            Err(_) => self.show_read_only(folder),
        }
    }

    /// Covers the mounts of a folder that an overlay was mounted for: the overlay shows what lies beneath them.
    fn show_mounts_in(&mut self, folder: &Path) -> Result<(), Refused> {
        for place in self.mounts.directly_beneath(folder) {
            match place.is_dir() {
                true => self.show(&place)?,
                false => self.file_read_only(&place),
            }
        }
        Ok(())
    }

    /// Mounts an overlay of a folder, with a layer of its own or the one given.
    fn overlay(&mut self, folder: &Path, inside: &Path, layer: Option<&Path>) -> io::Result<()> {
        let own;
        let layer = match layer {
            Some(layer) => layer,
            None => {
                self.number += 1;
                own = PathBuf::from(format!("layer-{}", self.number));
                &own
            }
        };
        let (upper, work) = (layer.join("upper"), layer.join("work"));
        fs::create_dir_all(&upper)?;
        fs::create_dir_all(&work)?;
        // A new file in the layer's root is seen by the same people as one in the folder.
        if let Ok(about) = fs::metadata(folder) {
            let _ = fs::set_permissions(&upper, fs::Permissions::from_mode(about.permissions().mode() & 0o7777));
        }
        // By its number, whatever its name.
        let lower = open(folder, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        let places = |upper: &Path, work: &Path| -> io::Result<String> {
            let mut places = format!("lowerdir=/proc/self/fd/{}", lower.as_raw_fd());
            for (name, path) in [("upperdir", upper), ("workdir", work)] {
                let path = path.to_str().ok_or(io::ErrorKind::InvalidFilename)?;
                places += &format!(",{name}={}", path.replace('\\', "\\\\").replace(',', "\\,"));
            }
            Ok(places)
        };
        let manner = match self.mounter {
            // Renames folders that were there before.
            Mounter::Root => "index=off,metacopy=off,redirect_dir=on",
            Mounter::UserNamespace => "index=off,metacopy=off,userxattr",
        };
        let restrictions = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
        let flags = self.mounts.of(folder).map_or(MountFlags::empty(), |mount| mount.flags & restrictions);
        let mounted = |options: &str| -> io::Result<()> {
            Ok(mount("headroom", inside, "overlay", flags, CString::new(options)?.as_c_str())?)
        };
        mounted(&format!("{},{manner}", places(&upper, &work)?)).or_else(|error| match error.raw_os_error() {
            // gVisor takes places from the root on and no other options, and behaves as asked without them.
            Some(code) if code == Errno::INVAL.raw_os_error() => {
                mounted(&places(&path::absolute(&upper)?, &path::absolute(&work)?)?)
            }
            _ => Err(error),
        })?;
        self.covered.push(folder.to_path_buf());
        Ok(())
    }

    /// Shows a folder entry by entry: in a folder of the new root, or read-only where that could not be written anyway.
    fn take_apart(&mut self, folder: &Path) -> Result<(), Refused> {
        let entries: Vec<PathBuf> = match fs::read_dir(folder) {
            Ok(entries) => entries.flatten().map(|entry| entry.path()).collect(),
            // Nobody who may not read it sees it inside either.
            Err(_) => vec![],
        };
        let is_above_the_layers = self.layers.home.starts_with(folder);
        if !is_above_the_layers && (entries.len() > MANY || access(folder, Access::WRITE_OK).is_err()) {
            self.show_read_only(folder)?;
            for entry in entries.iter().filter(|entry| is_folder(entry)) {
                self.show(entry)?;
            }
            return Ok(());
        }
        let inside = self.inside(folder);
        for entry in entries {
            let Ok(about) = fs::symlink_metadata(&entry) else { continue };
            let place = inside.join(entry.file_name().unwrap_or_default());
            if about.is_symlink() {
                let target = fs::read_link(&entry).map_err(refused("read the link", &entry))?;
                symlink(target, &place).map_err(refused("make the link", &entry))?;
            } else if about.is_dir() {
                fs::create_dir(&place).map_err(refused("make the folder", &entry))?;
                if entry == self.layers.home {
                    continue;
                }
                let mode = fs::Permissions::from_mode(about.permissions().mode() & 0o7777);
                fs::set_permissions(&place, mode).map_err(refused("make the folder", &entry))?;
                self.show(&entry)?;
            } else if about.is_file() {
                let is_copied = about.len() <= COPIED && fs::copy(&entry, &place).is_ok();
                if !is_copied {
                    let _ = fs::File::create(&place);
                    self.file_read_only(&entry);
                }
            }
            // Sockets, pipes and devices lead out.
        }
        Ok(())
    }

    /// Shows a folder and everything beneath as it is, without the right to write.
    fn show_read_only(&mut self, folder: &Path) -> Result<(), Refused> {
        let inside = self.inside(folder);
        if mount_bind_recursive(folder, &inside).is_err() {
            // A folder that cannot even be bound, such as another user's mount: it is empty inside.
            self.remarks.push(format!("{} is not visible to the script", folder.display()));
            return Ok(());
        }
        let beneath: Vec<PathBuf> = self.mounts.all_beneath(folder).map(Path::to_path_buf).collect();
        for place in std::iter::once(folder.to_path_buf()).chain(beneath) {
            self.make_read_only(&place).map_err(refused("make read-only", &place))?;
        }
        if access(folder, Access::WRITE_OK).is_ok() {
            self.remarks.push(format!("{} is read-only for the script", folder.display()));
        }
        Ok(())
    }

    /// A file on which something is mounted, or that is too large to be copied.
    fn file_read_only(&mut self, file: &Path) {
        // One that cannot be shown stays empty.
        if mount_bind(file, self.inside(file)).is_ok() && self.make_read_only(file).is_err() {
            let _ = unmount(self.inside(file), UnmountFlags::DETACH);
        }
    }

    /// Denies new files among the devices, which root could make there. The devices themselves can be written all the same,
    /// except under gVisor, where new files stay possible for that reason.
    fn deny_new_devices(&self, folder: &Path) {
        let null = folder.join("null");
        let could_be = access(&null, Access::WRITE_OK).is_ok();
        let is_denied = self.make_read_only(folder).is_ok();
        if is_denied && could_be && access(self.inside(&null), Access::WRITE_OK).is_err() {
            let kept = self.mounts.of(folder).map_or(MountFlags::empty(), |mount| mount.flags);
            let _ = mount_remount(self.inside(folder), MountFlags::BIND | kept, "");
        }
    }

    fn make_read_only(&self, place: &Path) -> rustix::io::Result<()> {
        let kept = self.mounts.of(place).map_or(MountFlags::empty(), |mount| mount.flags);
        mount_remount(self.inside(place), MountFlags::BIND | MountFlags::RDONLY | kept, "")
    }

    /// A new `/dev/shm`, as large as the old one, in which the old one's folders can be read.
    fn shared_memory(&mut self) -> Result<(), Refused> {
        let folder = Path::new("/dev/shm");
        if !folder.is_dir() {
            return Ok(());
        }
        let about = rustix::fs::statvfs(folder).map_err(refused("look at", folder))?;
        let options = format!("mode=1777,size={}", about.f_blocks.saturating_mul(about.f_frsize));
        let options = CString::new(options).unwrap_or_default();
        let flags = MountFlags::NOSUID | MountFlags::NODEV;
        mount("tmpfs", self.inside(folder), "tmpfs", flags, options.as_c_str()).map_err(refused("mount", folder))?;
        let entries = fs::read_dir(folder).map_err(refused("read", folder))?;
        for entry in entries.flatten().map(|entry| entry.path()).filter(|entry| is_folder(entry)).take(MANY) {
            let inside = self.inside(&entry);
            if fs::create_dir(&inside).is_ok() && !self.layers.home.starts_with(&entry) {
                let _ = self.overlay(&entry, &inside, None);
            }
        }
        Ok(())
    }

    /// A layer for the outermost folder around a path that belongs to this user. A layer further out has to copy the folders
    /// in between before the first write, and an ordinary user cannot copy what belongs to somebody else.
    fn own_folder(&mut self, path: &Path) {
        let user = rustix::process::getuid().as_raw();
        let is_own = |folder: &&Path| fs::metadata(folder).is_ok_and(|about| about.uid() == user);
        let folder = path.ancestors().take_while(is_own).last().unwrap_or(path).to_path_buf();
        let is_apart = self.covered.contains(&folder) || self.layers.home.starts_with(&folder);
        if self.mounter == Mounter::UserNamespace && folder.is_dir() && !is_apart {
            // Where this is refused, the trial tells whether the folder can be written.
            let _ = self.overlay(&folder, &self.inside(&folder), None);
        }
    }

    /// A cache of the user's under a layer that all processes of a search share.
    fn cache(&mut self, cache: &Cache) -> Result<(), Refused> {
        let inside = self.inside(&cache.folder);
        if fs::create_dir_all(&inside).is_err() {
            // Where the user may not make it, the script could not either.
            return Ok(());
        }
        fs::create_dir_all(&cache.layer).map_err(refused("make the folder", &cache.layer))?;
        if cache.folder.is_dir() {
            // Where this fails, the cache is covered with the rest and lasts for one process.
            if self.overlay(&cache.folder, &inside, Some(&cache.layer)).is_err() {
                self.remarks.push(format!("{} starts anew in every process", cache.folder.display()));
            }
            return Ok(());
        }
        let plain = cache.layer.join("plain");
        fs::create_dir_all(&plain).map_err(refused("make the folder", &plain))?;
        mount_bind(&plain, &inside).map_err(refused("show", &cache.folder))
    }

    /// Lets a path through as it is outside.
    fn show_through(&mut self, path: &Path) -> Result<(), Refused> {
        let inside = self.inside(path);
        if path.starts_with(&self.layers.home) {
            fs::create_dir_all(&inside).map_err(refused("make the folder", path))?;
        }
        mount_bind_recursive(path, inside).map_err(refused("let through", path))
    }
}

fn is_folder(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|about| about.is_dir())
}
