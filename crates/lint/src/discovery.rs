//! The files to read: those named, those of folders, and the rest of the projects they belong to.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::configuration::{self, ConfigurationError, Configurations};
use super::roots::{Roots, SKIPPED, is_script};
use super::{Belonging, Input, Problem, Projects};

/// Folders with one of these are made by programs: virtual environments and caches.
const MADE: &[&str] = &["pyvenv.cfg", "CACHEDIR.TAG"];

/// A project beyond this many scripts is left out of sight: only what is asked about is read of it.
const MOST_FILES: usize = 20_000;

/// Scripts, and beside each the place it was read from: what findings show of a path that is not UTF-8 leads elsewhere.
#[derive(Default)]
pub struct Scripts {
    pub files: Vec<PathBuf>,
    pub inputs: Vec<Input>,
    pub projects: Projects,
    /// Paths that were asked about and could not be read.
    pub unread: Vec<(String, Problem)>,
    /// The input that came from standard input.
    pub from_stdin: Option<usize>,
}

/// Files in the order of their whole paths, each once; those that are asked about with the path they are shown by.
#[derive(Default)]
pub struct Listing {
    files: Vec<(PathBuf, Listed)>,
    unread: Vec<(String, Problem)>,
}

struct Listed {
    shown: Option<PathBuf>,
    root: PathBuf,
}

impl Listing {
    /// Every file whose change may change an answer: scripts, configurations, and what was not there yet.
    pub fn watched(&self) -> impl Iterator<Item = PathBuf> {
        let roots: BTreeSet<&PathBuf> = self.files.iter().map(|(_, listed)| &listed.root).collect();
        let parents = self.files.iter().filter_map(|(file, _)| file.parent());
        let folders: BTreeSet<&Path> = parents.chain(roots.into_iter().map(PathBuf::as_path)).collect();
        let configurations: Vec<PathBuf> =
            folders.into_iter().flat_map(configuration::files_of).filter(|file| file.exists()).collect();
        self.files.iter().map(|(file, _)| file.clone()).chain(configurations)
    }

    /// Every file once. Of two that are the same the first stays: those that are asked about come before the others.
    fn sort(&mut self) {
        self.files.sort_by(|(one, _), (other, _)| one.cmp(other));
        self.files.dedup_by(|(later, _), (earlier, _)| later == earlier);
    }

    fn roots(&self) -> Vec<PathBuf> {
        let mut roots: Vec<PathBuf> = self.files.iter().map(|(_, listed)| listed.root.clone()).collect();
        roots.dedup();
        roots.sort();
        roots.dedup();
        roots
    }
}

pub fn list(paths: &[PathBuf], configurations: &Configurations) -> Result<Listing, ConfigurationError> {
    let mut asked = Vec::new();
    let mut listing = Listing::default();
    for path in paths {
        let whole = match std::fs::canonicalize(path) {
            Ok(whole) => whole,
            Err(error) => {
                listing.unread.push(unread(path, &error));
                continue;
            }
        };
        if whole.is_dir() {
            let shown = |file: &Path| path.join(file.strip_prefix(&whole).unwrap_or(file));
            let mut found = Found::default();
            walk(&whole, configurations, usize::MAX, &mut found)?;
            asked.extend(found.files.into_iter().map(|file| (shown(&file), file)));
            listing.unread.extend(found.unread.iter().map(|(folder, error)| unread(&shown(folder), error)));
        } else {
            asked.push((path.clone(), whole));
        }
    }
    let mut roots = Roots::new();
    for (shown, whole) in asked {
        let root = roots.of_folder(whole.parent().unwrap_or(Path::new("/")));
        listing.files.push((whole, Listed { shown: Some(shown), root }));
    }
    add_surroundings(&mut listing, &mut roots, configurations)?;
    Ok(listing)
}

/// Files given by the paths they are shown by and their whole paths, whether they exist or not, and their projects.
pub fn list_named(
    files: impl IntoIterator<Item = (PathBuf, PathBuf)>,
    configurations: &Configurations,
) -> Result<Listing, ConfigurationError> {
    let (mut listing, mut roots) = (Listing::default(), Roots::new());
    for (shown, whole) in files {
        let root = roots.of_folder(whole.parent().unwrap_or(Path::new("/")));
        listing.files.push((whole, Listed { shown: Some(shown), root }));
    }
    add_surroundings(&mut listing, &mut roots, configurations)?;
    Ok(listing)
}

/// The other files of every project that something is asked about in.
fn add_surroundings(
    listing: &mut Listing,
    roots: &mut Roots,
    configurations: &Configurations,
) -> Result<(), ConfigurationError> {
    for root in listing.roots() {
        let mut around = Found::default();
        walk(&root, configurations, MOST_FILES, &mut around)?;
        if around.files.len() > MOST_FILES {
            continue;
        }
        for file in around.files {
            // A folder below may be a project of its own.
            if roots.of_folder(file.parent().unwrap_or(&root)) == root {
                listing.files.push((file, Listed { shown: None, root: root.clone() }));
            }
        }
    }
    listing.sort();
    Ok(())
}

/// Reads what is listed. A file that is only around may be unreadable; one that is asked about is an error of the run.
pub fn read(listing: Listing) -> Scripts {
    read_by(listing, |whole| std::fs::read(whole))
}

/// The same with `bytes` in the place of one file.
pub fn read_with(listing: Listing, replaced: &Path, bytes: Vec<u8>) -> Scripts {
    let content = |whole: &Path| if whole == replaced { Ok(bytes.clone()) } else { std::fs::read(whole) };
    let mut scripts = read_by(listing, content);
    scripts.from_stdin = scripts.files.iter().position(|file| file == replaced);
    scripts
}

/// The same with the bytes that `content` gives for a file's whole path.
pub fn read_by(listing: Listing, content: impl Fn(&Path) -> std::io::Result<Vec<u8>>) -> Scripts {
    let roots = listing.roots();
    let bases: Vec<&Path> = roots.iter().map(|root| above(root)).collect();
    let mut scripts = Scripts { unread: listing.unread, ..Scripts::default() };
    for (whole, listed) in listing.files {
        let shown = listed.shown.as_ref().unwrap_or(&whole);
        match content(&whole) {
            Ok(bytes) => {
                let project = roots.binary_search(&listed.root).unwrap_or(0);
                let within = whole.strip_prefix(bases[project]).unwrap_or(&whole).to_string_lossy().into_owned();
                scripts.projects.belongings.push(Belonging { project, within, asked: listed.shown.is_some() });
                scripts.inputs.push(Input { path: shown.to_string_lossy().into_owned(), bytes });
                scripts.files.push(whole);
            }
            Err(error) if listed.shown.is_some() => scripts.unread.push(unread(shown, &error)),
            Err(_) => {}
        }
    }
    scripts
}

/// A project that is itself a package is imported by its folder's name: that belongs to its modules' names.
fn above(root: &Path) -> &Path {
    let is_package = root.join("__init__.py").exists();
    root.parent().filter(|_| is_package).unwrap_or(root)
}

fn unread(path: &Path, error: &std::io::Error) -> (String, Problem) {
    (path.to_string_lossy().into_owned(), Problem::of_file(format!("cannot read it: {error}")))
}

#[derive(Default)]
struct Found {
    files: Vec<PathBuf>,
    unread: Vec<(PathBuf, std::io::Error)>,
}

/// Every script below a folder, given by its whole path; ends once there are more than `most`.
fn walk(
    folder: &Path,
    configurations: &Configurations,
    most: usize,
    found: &mut Found,
) -> Result<(), ConfigurationError> {
    let configuration = configurations.of_folder(folder)?;
    let mut entries = match std::fs::read_dir(folder).and_then(Iterator::collect::<Result<Vec<_>, _>>) {
        Ok(entries) => entries,
        Err(error) => {
            found.unread.push((folder.to_path_buf(), error));
            return Ok(());
        }
    };
    entries.sort_by_cached_key(std::fs::DirEntry::file_name);
    for entry in entries {
        let (path, name) = (entry.path(), entry.file_name());
        let name = name.to_string_lossy();
        // Links are not followed: they may lead round in circles.
        let Ok(kind) = entry.file_type() else { continue };
        let is_open = kind.is_dir() && !name.starts_with('.') && !SKIPPED.contains(&name.as_ref());
        let is_wanted = is_open || kind.is_file() && is_script(&name);
        if !is_wanted || configuration.excludes(&path) {
            continue;
        }
        if !is_open {
            found.files.push(path);
        } else if !MADE.iter().any(|made| path.join(made).exists()) {
            walk(&path, configurations, most, found)?;
        }
        if found.files.len() > most {
            break;
        }
    }
    Ok(())
}
