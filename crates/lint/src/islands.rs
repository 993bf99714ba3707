//! Groups files that may refer to each other into islands, connected by imports directly or through others.
//!
//! Each island is analysed alone. Its trees are dropped once its findings are done, so that a whole folder of libraries
//! takes no more memory than the largest of them. An island that never mentions torch is skipped.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use headroom_rewrite::{Depth, Problem};

use super::file::{self, SourceFile};
use super::mentions;
use super::resolve::ModuleIndex;
use super::symbols::{self, FileId};
use super::vocabulary::Role;
use super::{Input, Projects, STACK_BYTES};

/// Up to this size, the trees of the first pass are kept for the second; beyond it files are parsed twice.
const KEPT_BYTES: usize = 16 << 20;

#[derive(Default)]
pub struct Outline {
    pub path: String,
    pub problem: Option<Problem>,
    refused: bool,
    module: Vec<String>,
    imports: Vec<String>,
    /// Whether it may contain a training step, a model or a loader.
    concerns_torch: bool,
}

/// The outlines of all files, and the islands to analyse, each with its files.
pub struct Map {
    pub outlines: Vec<Outline>,
    pub islands: Vec<Vec<FileId>>,
    kept: Vec<Mutex<Option<SourceFile>>>,
}

impl Map {
    pub fn draw(inputs: &[Input], projects: &Projects) -> Map {
        let reached = mentions::within_reach(inputs, projects);
        let numbers: Vec<FileId> = (0..inputs.len()).collect();
        let keep =
            numbers.iter().filter(|id| reached[**id]).map(|id| inputs[*id].bytes.len()).sum::<usize>() <= KEPT_BYTES;
        let (outlines, kept): (Vec<Outline>, Vec<_>) = in_parallel(&numbers, |id| {
            if !reached[*id] {
                // No import connects it to a file that is asked about.
                let (path, module) = (inputs[*id].path.clone(), file::module_of(&projects.belongings[*id].within));
                return (Outline { path, module, ..Outline::default() }, Mutex::new(None));
            }
            let file = SourceFile::read(&inputs[*id], &projects.belongings[*id], Depth::Unknown);
            (outline(&file), Mutex::new(keep.then_some(file)))
        })
        .into_iter()
        .unzip();
        let islands = join(&outlines, projects);
        Map { outlines, islands, kept }
    }

    pub fn files(&self, island: &[FileId], inputs: &[Input], projects: &Projects) -> Vec<SourceFile> {
        let take = |id: &FileId| {
            let kept = self.kept[*id].lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
            let depth = if self.outlines[*id].refused { Depth::Unknown } else { Depth::Checked };
            kept.unwrap_or_else(|| SourceFile::read(&inputs[*id], &projects.belongings[*id], depth))
        };
        island.iter().map(take).collect()
    }
}

/// Checks that a thread with such a stack can be started. Call it before `in_parallel`, which needs one.
pub fn check_stack() -> std::io::Result<()> {
    let thread = std::thread::Builder::new().stack_size(STACK_BYTES).spawn(|| {})?;
    // The thread does nothing that could panic.
    let _ = thread.join();
    Ok(())
}

/// Does `work` for every item on all processors, with stacks large enough for deep trees. The threads have
/// ended when it returns: their stacks are most of the memory that a small machine has for a script.
pub fn in_parallel<I: Sync, T: Send>(items: &[I], work: impl Fn(&I) -> T + Sync) -> Vec<T> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(items.len());
    let next = AtomicUsize::new(0);
    let run = || {
        let mut done = Vec::new();
        while let Some((index, item)) = {
            let index = next.fetch_add(1, Ordering::Relaxed);
            items.get(index).map(|item| (index, item))
        } {
            done.push((index, work(item)));
        }
        done
    };
    let mut done: Vec<(usize, T)> = std::thread::scope(|scope| {
        let start = |_| std::thread::Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, run);
        let workers: Vec<_> = (0..threads).filter_map(|worker| start(worker).ok()).collect();
        assert!(!workers.is_empty() || items.is_empty(), "a thread can be started");
        let join = |worker: std::thread::ScopedJoinHandle<'_, _>| {
            worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        workers.into_iter().flat_map(join).collect()
    });
    done.sort_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, result)| result).collect()
}

fn outline(file: &SourceFile) -> Outline {
    let symbols = symbols::collect(std::slice::from_ref(file));
    let imports = symbols.files.into_iter().flat_map(|names| names.imports.into_values().chain(names.star_imports));
    Outline {
        path: file.path.clone(),
        problem: file.problem.clone(),
        refused: file.refused,
        module: file.module.clone(),
        imports: imports.collect(),
        concerns_torch: Role::TorchText.fits(&file.text),
    }
}

/// Islands with a file that is asked about, the largest first, so that threads finish together.
fn join(outlines: &[Outline], projects: &Projects) -> Vec<Vec<FileId>> {
    let mut leaders: Vec<FileId> = (0..outlines.len()).collect();
    for project in projects.members() {
        let index = ModuleIndex::new(project.iter().map(|file| outlines[*file].module.clone()).collect());
        for (local, file) in project.iter().enumerate() {
            for dotted in &outlines[*file].imports {
                if let Some(other) = index.find_dotted(local, dotted) {
                    let (one, two) = (leader(&mut leaders, *file), leader(&mut leaders, project[other]));
                    leaders[one.max(two)] = one.min(two);
                }
            }
        }
    }
    let mut islands: Vec<Vec<FileId>> = vec![Vec::new(); outlines.len()];
    for file in 0..outlines.len() {
        islands[leader(&mut leaders, file)].push(file);
    }
    islands.retain(|island| {
        island.iter().any(|file| outlines[*file].concerns_torch) && island.iter().any(|file| projects.is_asked(*file))
    });
    islands.sort_by_key(|island| std::cmp::Reverse(island.len()));
    // Whatever order they were given in.
    for island in &mut islands {
        island.sort_by(|one, other| outlines[*one].path.cmp(&outlines[*other].path));
    }
    islands
}

fn leader(leaders: &mut [FileId], mut file: FileId) -> FileId {
    while leaders[file] != file {
        leaders[file] = leaders[leaders[file]];
        file = leaders[file];
    }
    file
}

#[cfg(test)]
mod tests {
    use super::*;

    fn islands(files: &[(&str, &str)]) -> Vec<Vec<FileId>> {
        let input = |(path, text): &(&str, &str)| Input { path: path.to_string(), bytes: text.as_bytes().to_vec() };
        let inputs: Vec<Input> = files.iter().map(input).collect();
        Map::draw(&inputs, &Projects::of_all(&inputs)).islands
    }

    #[test]
    fn files_are_joined_by_imports_and_by_what_imports_both() {
        let found = islands(&[
            ("a/train.py", "import torch\nfrom a.steps import step\n"),
            ("b/train.py", "import torch\n"),
            ("a/steps.py", "from .tools import mean\n"),
            ("a/tools.py", "def mean(x): return x\n"),
        ]);
        assert_eq!(found, [vec![2, 3, 0], vec![1]]);
    }

    #[test]
    fn what_never_speaks_of_torch_is_left_out() {
        assert_eq!(islands(&[("a.py", "x = 1\n"), ("b.py", "from torch import nn\n")]), [vec![1]]);
    }
}
