//! A file system of a few kilobytes, to be full or read-only for a test.

use std::path::{Path, PathBuf};
use std::process::Command;

pub struct SmallFileSystem(PathBuf);

impl SmallFileSystem {
    /// Returns `None` where it cannot be mounted: only an administrator can.
    pub fn mount(at: &Path, size: &str) -> Option<SmallFileSystem> {
        std::fs::create_dir(at).unwrap();
        let options = format!("size={size}");
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(at).output();
        mounted.is_ok_and(|done| done.status.success()).then(|| SmallFileSystem(at.to_path_buf()))
    }

    /// From now on it can be read alone.
    pub fn allow_no_changes(&self) {
        let done = Command::new("mount").args(["-o", "remount,ro"]).arg(&self.0).status();
        assert!(done.is_ok_and(|done| done.success()), "it cannot be made read-only");
    }
}

impl Drop for SmallFileSystem {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}
