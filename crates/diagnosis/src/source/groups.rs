//! Topics of a file together with those of the files it is imported with.

use super::program::Program;
use super::resolve::ModuleIndex;
use super::symbols::{FileId, Symbols};
use super::topics::{Groups, Topic, bit};

pub fn gather(program: &mut Program) {
    let mut own: Vec<u64> = program.sources.files.iter().map(|file| file.words).collect();
    for index in &program.heat.training_calls {
        own[program.file_of(program.notes.calls[*index].context)] |= bit(Topic::Trains);
    }
    let imports = imports_of(&program.sources.symbols, &program.sources.index);
    let mut importers: Vec<Vec<FileId>> = vec![Vec::new(); own.len()];
    for (file, imported) in imports.iter().enumerate() {
        for other in imported {
            importers[*other].push(file);
        }
    }
    let (down, up) = (spread(&own, &imports), spread(&own, &importers));
    program.groups = Groups { masks: down.iter().zip(up).map(|(down, up)| down | up).collect(), own };
}

/// Every file's bits together with those of all it leads to.
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
