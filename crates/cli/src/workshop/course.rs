//! The course's parts as data: the runs that each leaves behind, and the figures to write down. The table is in
//! `parts`.

mod figures;
mod parts;

pub use parts::PARTS;

pub struct Part {
    pub number: u64,
    pub title: &'static str,
    pub steps: &'static [Step],
    pub agreements: &'static [Agreement],
}

/// One command of a page.
pub struct Step {
    pub title: &'static str,
    pub command: &'static str,
    /// The folder that the command writes, as the pages name it.
    pub run: Option<ExpectedRun>,
    pub figures: &'static [&'static [Figure]],
}

#[derive(Clone, Copy, Debug)]
pub struct ExpectedRun {
    pub folder: &'static str,
    pub holds: Expected,
    pub machines: Machines,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Machines {
    All,
    /// Too slow, or meaningless, on the other kind of machine: there it counts only if it was run.
    Cpu,
    Gpu,
}

/// The records that a step's folder must have, and their settings.
#[derive(Clone, Copy, Debug)]
pub enum Expected {
    Training(Training),
    Study {
        sizes: &'static [&'static str],
        versions: &'static [&'static str],
    },
    Sweep {
        size: &'static str,
        passes: &'static str,
        batches: &'static [u64],
        sequences: &'static [u64],
    },
    /// Every pass on Version 1.
    Ladder {
        size: &'static str,
    },
    /// The report of a re-analysed folder.
    Report,
    /// K-1's rules on a LLaMA, on its own tree, and its habits timed.
    Rules,
    Tree,
    TreeSpeed,
    /// Traces of a script.
    Recording,
    /// Remedies tried on a script.
    Remedies,
}

#[derive(Clone, Copy, Debug)]
pub struct Training {
    pub size: &'static str,
    /// As `--passes` takes them.
    pub passes: &'static str,
    /// At least this many.
    pub steps: u64,
    pub writes: Writes,
    /// The reservation stays within this many MiB.
    pub within_mb: Option<f64>,
}

/// Files besides those of every run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Writes {
    Nothing,
    Intensity,
    Profile,
}

/// Two runs that must end with the same loss: they train the same model on the same batches.
pub struct Agreement {
    pub first: &'static str,
    pub second: &'static str,
    pub about: &'static str,
}

pub struct Figure {
    pub name: &'static str,
    /// Document, dotted key in it, unit; `None` if the command only prints it.
    pub source: Option<(Document, &'static str, Unit)>,
}

/// The document that holds a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Document {
    /// A file of the step's run folder.
    File(&'static str),
    /// The analysis of the traces in the step's run folder.
    Analysis,
    /// The reader's own answer: no program holds it.
    Reader,
    /// The comparison of the traces in two folders.
    Comparison(&'static str, &'static str),
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Unit {
    Count,
    Seconds,
    Mebibytes,
    Percent,
    /// A part of one, written as a percentage.
    Share,
    /// A change as a part of one, written as a percentage with its sign.
    Change,
    /// The number of entries of a list.
    Entries,
    /// A ratio, written with ×.
    Times,
    /// Per second.
    Rate,
    Number,
    Words,
}
