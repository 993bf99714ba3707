//! Finds the files to read: those named, those in folders, and the rest of their projects.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use headroom_lint::{Belonging, Input, Problem, Projects};
use headroom_record::reading;

use super::configuration::{self, ConfigurationError, Configurations};
use super::roots::{Roots, SKIPPED, is_script};

/// Folders that contain one of these are generated: virtual environments and caches.
const MADE: &[&str] = &["pyvenv.cfg", "CACHEDIR.TAG"];

/// A project with more scripts than this is not read as a whole, only the files asked about.
const MOST_FILES: usize = 20_000;

/// Scripts, each with the path it was read from: the displayed form of a path that is not UTF-8 does not lead back to
/// the file.
#[derive(Default)]
pub struct Scripts {
    pub files: Vec<PathBuf>,
    pub inputs: Vec<Input>,
    pub projects: Projects,
    /// Paths that were asked about and could not be read.
    pub unread: Vec<(String, Problem)>,
    /// The index of the file read from standard input.
    pub from_stdin: Option<usize>,
}

/// Files ordered by full path, each once; those asked about carry the path to display.
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
    /// Every file whose change may change an answer: scripts, configurations, and files that did not exist yet.
    pub fn watched(&self) -> impl Iterator<Item = PathBuf> {
        let roots: BTreeSet<&PathBuf> = self.files.iter().map(|(_, listed)| &listed.root).collect();
        let parents = self.files.iter().filter_map(|(file, _)| file.parent());
        let folders: BTreeSet<&Path> = parents.chain(roots.into_iter().map(PathBuf::as_path)).collect();
        let configurations: Vec<PathBuf> =
            folders.into_iter().flat_map(configuration::files_of).filter(|file| file.exists()).collect();
        self.files.iter().map(|(file, _)| file.clone()).chain(configurations)
    }

    /// Keeps every file once. The first of two equal entries stays: files that are asked about come before the others.
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
    let (mut asked, mut unread) = (Vec::new(), Vec::new());
    for path in paths {
        let whole = match std::fs::canonicalize(path) {
            Ok(whole) => whole,
            Err(error) => {
                unread.push(unread_file(path, &error));
                continue;
            }
        };
        if whole.is_dir() {
            let shown = |file: &Path| path.join(file.strip_prefix(&whole).unwrap_or(file));
            let mut found = Found::default();
            walk(&whole, configurations, usize::MAX, &mut found)?;
            asked.extend(found.files.into_iter().map(|file| (shown(&file), file)));
            unread.extend(found.unread.iter().map(|(folder, error)| unread_file(&shown(folder), error)));
        } else {
            asked.push((path.clone(), whole));
        }
    }
    Ok(Listing { unread, ..list_named(asked, configurations)? })
}

/// Lists files given as (displayed path, full path), whether they exist or not, and their projects.
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

/// Adds the other files of every project that contains a file asked about.
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
            // A subfolder may be a project of its own.
            if roots.of_folder(file.parent().unwrap_or(&root)) == root {
                listing.files.push((file, Listed { shown: None, root: root.clone() }));
            }
        }
    }
    listing.sort();
    Ok(())
}

/// Reads the listed files. A file that is only context may be unreadable; an unreadable file that is asked about is an
/// error of the run.
pub fn read(listing: Listing) -> Scripts {
    read_by(listing, content)
}

/// The content of a script. Kind and size are asked first, so that no file makes the reader wait or fills the memory.
pub fn content(path: &Path) -> std::io::Result<Vec<u8>> {
    reading::read(path, most_bytes(path))
}

/// The most bytes that are read of a script with this name.
pub fn most_bytes(path: &Path) -> u64 {
    if path.extension().is_some_and(|extension| extension == "ipynb") { reading::NOTEBOOK } else { reading::SCRIPT }
}

/// Like [`read`], with `bytes` as the content of one file.
pub fn read_with(listing: Listing, replaced: &Path, bytes: Vec<u8>) -> Scripts {
    let mut scripts = read_by(listing, |whole| if whole == replaced { Ok(bytes.clone()) } else { content(whole) });
    scripts.from_stdin = scripts.files.iter().position(|file| file == replaced);
    scripts
}

/// Like [`read`], with the bytes that `content` returns for a file's full path.
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
            Err(error) if listed.shown.is_some() => scripts.unread.push(unread_file(shown, &error)),
            Err(_) => {}
        }
    }
    scripts
}

/// A project that is itself a package is imported by its folder's name, so that name is part of its module names.
fn above(root: &Path) -> &Path {
    let is_package = root.join("__init__.py").exists();
    root.parent().filter(|_| is_package).unwrap_or(root)
}

fn unread_file(path: &Path, error: &std::io::Error) -> (String, Problem) {
    (path.to_string_lossy().into_owned(), Problem::of_file(format!("cannot read it: {error}")))
}

#[derive(Default)]
struct Found {
    files: Vec<PathBuf>,
    unread: Vec<(PathBuf, std::io::Error)>,
}

/// Collects every script below a folder, given by its full path; stops once there are more than `most`.
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
        // Symbolic links are not followed: they may form cycles.
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
