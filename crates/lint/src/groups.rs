//! Topics of a file combined with those of the files it is imported with.

use rustc_hash::FxHashSet;

use super::program::Program;
use super::resolve::ModuleIndex;
use super::symbols::{FileId, Symbols};
use super::topics::{Groups, Topic, bit};

pub fn gather(program: &mut Program) {
    let mut own: Vec<u64> = program.sources.files.iter().map(|file| file.words).collect();
    for index in &program.frequency.training_calls {
        own[program.file_of(program.notes.calls[*index].context)] |= bit(Topic::Trains);
    }
    let imports = imports_of(&program.sources.symbols, &program.sources.index);
    let mut importers: Vec<Vec<FileId>> = vec![Vec::new(); own.len()];
    for (file, imported) in imports.iter().enumerate() {
        for other in imported {
            importers[*other].push(file);
        }
    }
    // The programs that a file runs in: everything that leads to it, with everything those lead to.
    let down = spread(&own, &imports);
    let programs = programs(program, &imports);
    let imported = importers.iter().map(|importers| !importers.is_empty()).collect();
    program.groups = Groups { masks: spread(&down, &importers), own, programs, imported };
}

/// A program has a few models and files of its own. A file that imports more than this selects from a library, or is
/// one.
const MOST_MODELS: usize = 64;
const MOST_FILES: usize = 48;

/// For every file, whether it is part of a program: a file with a loop of steps or a trainer's hook imports it, without
/// importing a whole library.
fn programs(program: &Program, imports: &[Vec<FileId>]) -> Vec<bool> {
    let mut models = vec![0; imports.len()];
    for (class, symbol) in program.sources.symbols.classes.iter().enumerate() {
        models[symbol.file] += usize::from(program.is_module(class));
    }
    let entries: FxHashSet<FileId> = program
        .notes
        .contexts
        .iter()
        .filter(|context| context.is_step_loop())
        .map(|context| context.function)
        .chain(program.frequency.steps.iter().copied())
        .map(|function| program.symbol(function).file)
        .collect();
    // `main.py` combines the loop of `engine.py` with the models.
    let importers = (0..imports.len()).filter(|file| imports[*file].iter().any(|imported| entries.contains(imported)));
    let mut entries: Vec<FileId> = importers.chain(entries.iter().copied()).collect();
    entries.sort_unstable();
    entries.dedup();
    let mut found = vec![false; imports.len()];
    for entry in entries {
        let (mut files, mut open) = (FxHashSet::from_iter([entry]), vec![entry]);
        while let Some(file) = open.pop() {
            open.extend(imports[file].iter().copied().filter(|imported| files.insert(*imported)));
        }
        if files.len() <= MOST_FILES && files.iter().map(|file| models[*file]).sum::<usize>() <= MOST_MODELS {
            files.iter().for_each(|file| found[*file] = true);
        }
    }
    found
}

/// Every file's bits combined with those of all files it leads to.
fn spread(own: &[u64], edges: &[Vec<FileId>]) -> Vec<u64> {
    let mut masks = own.to_vec();
    loop {
        let mut changed = false;
        for (file, others) in edges.iter().enumerate() {
            let mask = others.iter().fold(masks[file], |mask, other| mask | masks[*other]);
            changed |= mask != masks[file];
            masks[file] = mask;
        }
        if !changed {
            return masks;
        }
    }
}

fn imports_of(symbols: &Symbols, index: &ModuleIndex) -> Vec<Vec<FileId>> {
    let resolve = |(file, names): (FileId, &super::symbols::FileSymbols)| {
        let mut found: Vec<FileId> = names
            .imports
            .values()
            .chain(&names.star_imports)
            .filter_map(|dotted| index.find_dotted(file, dotted))
            .collect();
        found.sort_unstable();
        found.dedup();
        found
    };
    symbols.files.iter().enumerate().map(resolve).collect()
}
