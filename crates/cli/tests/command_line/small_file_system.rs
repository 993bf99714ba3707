//! A tiny file system that a test can fill or make read-only.

use std::path::{Path, PathBuf};
use std::process::Command;

pub struct SmallFileSystem(PathBuf);

impl SmallFileSystem {
    /// Mounts it; `None` without the right to mount (root).
    pub fn mount(at: &Path, size: &str) -> Option<SmallFileSystem> {
        std::fs::create_dir(at).unwrap();
        let options = format!("size={size}");
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(at).output();
        mounted.is_ok_and(|done| done.status.success()).then(|| SmallFileSystem(at.to_path_buf()))
    }

    /// Makes it read-only.
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
