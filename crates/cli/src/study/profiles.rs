//! The recorded profile of a run, a second time where the course looks for it.

use crate::profile::files::{COURSE_FOLDER, is_trace_or_events};
use headroom_record::atomic::{FileError, write_atomically_with};
use headroom_record::reading;
use std::fs;
use std::path::Path;

/// Puts the traces and events of a run into `pytorch_profiles` in its folder: as second names of the same files, or as
/// copies where the file system has no such names. Those of an earlier attempt go.
pub fn name_for_course(folder: &Path) -> Result<(), FileError> {
    let course = folder.join(COURSE_FOLDER);
    fs::create_dir_all(&course).map_err(FileError::new("make the folder", &course))?;
    for name in recorded(&course)? {
        let old = course.join(name);
        fs::remove_file(&old).map_err(FileError::new("replace", &old))?;
    }
    for name in recorded(folder)? {
        let (from, to) = (folder.join(&name), course.join(&name));
        if fs::hard_link(&from, &to).is_err() {
            write_atomically_with(&to, |out| {
                reading::open(&from).and_then(|mut file| std::io::copy(&mut file, out)).map(drop)
            })?;
        }
    }
    Ok(())
}

fn recorded(folder: &Path) -> Result<Vec<String>, FileError> {
    let mut names = vec![];
    for entry in fs::read_dir(folder).map_err(FileError::new("read the folder", folder))? {
        let name = entry.map_err(FileError::new("read the folder", folder))?.file_name();
        names.extend(name.into_string().ok().filter(|name| is_trace_or_events(name)));
    }
    names.sort();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traces_and_events_have_a_second_name_and_old_ones_go() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let kept = ["a.1.2.pt.trace.json", "events.out.tfevents.1.a.2.0"];
        for name in kept.iter().chain(&["report.md", "performance_summary.json"]) {
            fs::write(at(name), name).unwrap();
        }
        fs::create_dir(at(COURSE_FOLDER)).unwrap();
        fs::write(at(COURSE_FOLDER).join("a.1.1.pt.trace.json"), "old").unwrap();
        name_for_course(folder.path()).unwrap();
        assert_eq!(recorded(&at(COURSE_FOLDER)).unwrap(), kept);
        assert_eq!(fs::read(at(COURSE_FOLDER).join(kept[0])).unwrap(), kept[0].as_bytes());
        // The files of the run are where they were, and a new profile or a deletion takes both names.
        assert_eq!(recorded(folder.path()).unwrap(), kept);
        crate::profile::files::clear(folder.path()).unwrap();
        assert!(!at(COURSE_FOLDER).exists() && recorded(folder.path()).unwrap().is_empty());
    }
}
