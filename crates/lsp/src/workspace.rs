//! Projects around the open documents: files on disk, with the text of open documents in their place.

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use headroom_lint::fix::Safety;
use headroom_lint::{Belonging, Input, Projects, Repaired, Selection, repair_within};
use headroom_sources::configuration::{Choice, ConfigurationError, Configurations, files_of};
use headroom_sources::discovery::{self, Listing, Scripts};
use headroom_sources::roots::Roots;

use crate::documents::{Documents, Unit};
use crate::uri;

/// Interval between scans of a project's files when no change was reported.
const PAUSE: Duration = Duration::from_millis(500);

/// Scanning takes at most 1/20 of the time, however many files there are.
const LARGEST_SHARE: u32 = 20;

/// A fingerprint of the files that changes when one is added, changed or removed.
type Look = Vec<(PathBuf, Option<SystemTime>, u64)>;

#[derive(Default)]
pub struct Workspace {
    roots: Option<Roots>,
    projects: HashMap<PathBuf, Project>,
    /// Counts all changes to all projects.
    generation: u64,
}

struct Project {
    scripts: Scripts,
    configurations: Configurations,
    look: Look,
    looked: Instant,
    took: Duration,
    /// The open documents that were listed with it.
    named: Vec<PathBuf>,
    /// Open documents whose text replaces the file's, by their revisions.
    held: HashMap<PathBuf, u64>,
    generation: u64,
    is_due: bool,
}

/// A question about one unit: its project's files, marked as the one in question, and the rules chosen for it.
pub struct Question<'w> {
    pub inputs: &'w [Input],
    pub projects: &'w Projects,
    pub selection: Selection,
    /// The path that its findings show.
    pub path: &'w str,
}

/// Whether a question to a project can be answered.
pub enum Answerable<'w> {
    Yes(Question<'w>),
    /// The file belongs to an installed package, or the configuration excludes it.
    LeftOut,
}

impl Workspace {
    /// Marks all files as possibly changed: each project is scanned again before the next question.
    pub fn look_again(&mut self) {
        self.roots = None;
        self.projects.values_mut().for_each(|project| project.is_due = true);
    }

    /// A number that changes with everything that an answer about a unit depends on, except its settings.
    pub fn generation(&mut self, documents: &Documents, unit: &Unit) -> Result<u64, ConfigurationError> {
        let Some(path) = &unit.path else { return Ok(unit.revision) };
        let root = self.root_of(path);
        Ok(self.project(&root, documents)?.generation)
    }

    /// The root of a file's project.
    pub fn root_of(&mut self, path: &Path) -> PathBuf {
        self.roots.get_or_insert_with(Roots::new).of_folder(path.parent().unwrap_or(Path::new("/")))
    }

    pub fn ask<T>(
        &mut self,
        documents: &Documents,
        unit: &Unit,
        choice: &Choice,
        then: impl FnOnce(Answerable) -> T,
    ) -> Result<T, ConfigurationError> {
        let Some(path) = unit.path.clone() else { return alone(documents, unit, choice, then) };
        let root = self.root_of(&path);
        let project = self.project(&root, documents)?;
        let Some(number) = project.scripts.files.iter().position(|file| *file == path) else {
            return Ok(then(Answerable::LeftOut));
        };
        let configuration = project.configurations.of_folder(path.parent().unwrap_or(Path::new("/")))?;
        if configuration.excludes(&path) || is_installed(&path) {
            return Ok(then(Answerable::LeftOut));
        }
        let selection = configuration.selection(choice, &path)?;
        for (index, belonging) in project.scripts.projects.belongings.iter_mut().enumerate() {
            belonging.asked = index == number;
        }
        let Scripts { inputs, projects, .. } = &project.scripts;
        Ok(then(Answerable::Yes(Question { inputs, projects, selection, path: &inputs[number].path })))
    }

    /// The project with the texts of all open documents, scanned again if due.
    fn project(&mut self, root: &Path, documents: &Documents) -> Result<&mut Project, ConfigurationError> {
        let open: Vec<&Unit> = self.units_of(root, documents);
        let known = self.projects.remove(root);
        let mut project = match known {
            Some(project) if !project.must_look(&open) => project,
            known => self.look(root, &open, known)?,
        };
        let mut is_changed = false;
        for (file, input) in project.scripts.files.iter().zip(&mut project.scripts.inputs) {
            let Some(unit) = open.iter().find(|unit| unit.path.as_ref() == Some(file)) else { continue };
            if project.held.insert(file.clone(), unit.revision) != Some(unit.revision) {
                input.bytes = documents.content(&unit.uri).unwrap_or_default();
                is_changed = true;
            }
        }
        if is_changed {
            self.generation += 1;
            project.generation = self.generation;
        }
        Ok(self.projects.entry(root.to_path_buf()).or_insert(project))
    }

    /// Lists the files, and reads those that changed since the last scan.
    fn look(&mut self, root: &Path, open: &[&Unit], known: Option<Project>) -> Result<Project, ConfigurationError> {
        let start = Instant::now();
        let configurations = Configurations::nearest();
        let named: Vec<PathBuf> = open.iter().filter_map(|unit| unit.path.clone()).collect();
        let listing = discovery::list_named(named.iter().map(|path| (path.clone(), path.clone())), &configurations)?;
        let look = look_at(&listing, root);
        let project = match known {
            Some(known) if known.look == look && known.named == named => Project { configurations, ..known },
            known => {
                self.generation += 1;
                let scripts = read(listing, known, &look);
                Project {
                    scripts,
                    configurations,
                    look,
                    named,
                    looked: start,
                    took: Duration::ZERO,
                    held: HashMap::new(),
                    generation: self.generation,
                    is_due: false,
                }
            }
        };
        Ok(Project { looked: Instant::now(), took: start.elapsed(), is_due: false, ..project })
    }

    /// The open documents that belong to a project.
    fn units_of<'d>(&mut self, root: &Path, documents: &'d Documents) -> Vec<&'d Unit> {
        let mut units: Vec<&Unit> = Vec::new();
        for unit in documents.units().iter().filter(|unit| documents.is_checked(&unit.uri)) {
            // Two URIs may lead to one file: the text that changed last counts.
            let same = units.iter().position(|known| known.path == unit.path);
            match (&unit.path, same) {
                (Some(_), Some(same)) if units[same].revision < unit.revision => units[same] = unit,
                (Some(path), None) if self.root_of(path) == root => units.push(unit),
                _ => {}
            }
        }
        units
    }
}

impl Project {
    fn must_look(&self, open: &[&Unit]) -> bool {
        let pause = PAUSE.max(self.took * LARGEST_SHARE);
        let is_open = |named: &PathBuf| open.iter().any(|unit| unit.path.as_ref() == Some(named));
        self.is_due
            || self.looked.elapsed() > pause
            || self.named.len() != open.len()
            || !self.named.iter().all(is_open)
    }
}

/// The unit's file with all safe fixes applied.
pub fn repaired(question: &Question) -> Option<Repaired> {
    let repairs = repair_within(question.inputs, question.projects, &question.selection, Safety::Safe);
    repairs.files.into_iter().find(|file| file.path == question.path)
}

/// Reads a listing; the bytes of unchanged files are taken from the project as known.
fn read(listing: Listing, known: Option<Project>, look: &Look) -> Scripts {
    let mut before: HashMap<PathBuf, Vec<u8>> = HashMap::new();
    if let Some(known) = known {
        let unchanged: std::collections::HashSet<&(PathBuf, Option<SystemTime>, u64)> = known.look.iter().collect();
        let same: std::collections::HashSet<&Path> =
            look.iter().filter(|one| unchanged.contains(one)).map(|(path, _, _)| path.as_path()).collect();
        for (file, input) in known.scripts.files.into_iter().zip(known.scripts.inputs) {
            if same.contains(file.as_path()) && !known.held.contains_key(&file) {
                before.insert(file, input.bytes);
            }
        }
    }
    let before = RefCell::new(before);
    discovery::read_by(listing, |whole| match before.borrow_mut().remove(whole) {
        Some(bytes) => Ok(bytes),
        // An open document may not be on disk yet; its text replaces the file's in any case.
        None => discovery::content(whole).or_else(|error| match error.kind() {
            std::io::ErrorKind::NotFound => Ok(Vec::new()),
            _ => Err(error),
        }),
    })
}

fn look_at(listing: &Listing, root: &Path) -> Look {
    let state = |path: PathBuf| {
        let about = std::fs::metadata(&path).ok();
        let length = about.as_ref().map_or(0, std::fs::Metadata::len);
        (path, about.and_then(|about| about.modified().ok()), length)
    };
    let above = root.ancestors().skip(1).flat_map(files_of).filter(|file| file.exists());
    listing.watched().chain(above).map(state).collect()
}

/// Asks about a document without a file: it has no project around it and no configuration.
fn alone<T>(
    documents: &Documents,
    unit: &Unit,
    choice: &Choice,
    then: impl FnOnce(Answerable) -> T,
) -> Result<T, ConfigurationError> {
    let name = uri::name(&unit.uri);
    // The extension decides how a file is read.
    let is_misnamed = documents.is_notebook(&unit.uri) && !name.ends_with(".ipynb");
    let path = if is_misnamed { format!("{name}.ipynb") } else { name };
    let bytes = documents.content(&unit.uri).unwrap_or_default();
    let belonging = Belonging { project: 0, within: path.clone(), asked: true };
    let inputs = [Input { path: path.clone(), bytes }];
    let projects = Projects { belongings: vec![belonging] };
    let selection = choice.selection()?;
    Ok(then(Answerable::Yes(Question { inputs: &inputs, projects: &projects, selection, path: &path })))
}

/// Whether the file belongs to an installed package: those are read only for what they tell about our files.
fn is_installed(path: &Path) -> bool {
    path.components().any(|part| matches!(part.as_os_str().to_str(), Some("site-packages" | "dist-packages")))
}
