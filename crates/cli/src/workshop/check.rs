//! Marks a folder of runs: finds each expected run, and compares its records with what its page asks for.

mod experiments;
mod scripts;
mod training;

use super::course::{Agreement, Expected, ExpectedRun, Machines, PARTS, Part, Step};
use super::folders;
use anyhow::{bail, ensure};
use headroom_record::performance::{PERFORMANCE_FILE, PerformanceRecord};
use headroom_record::workshop::{Check, Marks, PartMarks, RunMarks};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Checks per run, one point each.
const POINTS: u64 = 4;

/// Losses of the same model on the same batches differ by less than this share, whatever the passes and the device.
const SAME_LOSS: f64 = 1e-3;

/// Answers about one run, each with a note: `Err` if the check fails. Later checks are skipped if the first fails.
struct Answers {
    complete: Result<String, String>,
    as_asked: Result<String, String>,
    report: Result<String, String>,
    agree: Result<String, String>,
}

impl Answers {
    /// A run without its records cannot be judged further.
    fn incomplete(why: String) -> Answers {
        let unknown = || Err("not known without that".to_string());
        Answers { complete: Err(why), as_asked: unknown(), report: unknown(), agree: unknown() }
    }

    fn checks(self) -> Vec<Check> {
        let known = self.complete.is_ok();
        let all = [
            ("complete", self.complete),
            ("as asked", self.as_asked),
            ("report", self.report),
            ("figures agree", self.agree),
        ];
        let shown = if known { all.len() } else { 1 };
        all.into_iter().take(shown).map(|(name, answer)| check(name, answer)).collect()
    }
}

fn check(name: &str, answer: Result<String, String>) -> Check {
    let passed = answer.is_ok();
    Check { name: name.into(), passed, note: answer.unwrap_or_else(|why| why) }
}

pub fn marks(root: &Path) -> anyhow::Result<Marks> {
    ensure!(root.is_dir(), "{} is not a folder", root.display());
    let shown = root.display().to_string();
    let mut others = Others::below(root);
    let machine = machine_of(root);
    let parts: Vec<PartMarks> = PARTS.iter().map(|part| part_marks(part, root, machine, &mut others)).collect();
    if parts.iter().any(PartMarks::is_begun) {
        return Ok(Marks::new(shown, parts));
    }
    match single_run(root) {
        Some(part) => Ok(Marks::new(shown, vec![part])),
        None => bail!(
            "{shown} holds no run of the workshop\n  help: name the folder in which its commands were typed, its folder \
             `runs`, or the folder of one run"
        ),
    }
}

/// The kind of machine that trained: a GPU if any run used one.
fn machine_of(root: &Path) -> Machines {
    let on_gpu = |folder: &PathBuf| {
        let record: Result<PerformanceRecord, String> = folders::record(folder, PERFORMANCE_FILE);
        record.is_ok_and(|record| record.system_info.device.starts_with("cuda"))
    };
    if folders::all_below(root).iter().any(on_gpu) { Machines::Gpu } else { Machines::Cpu }
}

fn part_marks(part: &Part, root: &Path, machine: Machines, others: &mut Others) -> PartMarks {
    let mut runs = vec![];
    for step in part.steps {
        let Some(expected) = &step.run else { continue };
        let named = folders::of_page(root, expected.folder);
        let place = named.or_else(|| others.take(expected));
        if place.is_some() || [Machines::All, machine].contains(&expected.machines) {
            runs.push(run_marks(step, expected, place.as_deref(), root));
        }
    }
    runs.extend(part.agreements.iter().map(|agreement| agreement_marks(agreement, root)));
    PartMarks::new(part.number, part.title, runs)
}

fn run_marks(step: &Step, expected: &ExpectedRun, place: Option<&Path>, root: &Path) -> RunMarks {
    let found = place.map(|place| match folders::of_page(root, expected.folder) {
        Some(named) if named == place => expected.folder.to_string(),
        _ => place.strip_prefix(root).unwrap_or(place).display().to_string(),
    });
    RunMarks {
        folder: expected.folder.into(),
        expected: step.title.into(),
        command: step.command.into(),
        found,
        of: POINTS,
        checks: place.map_or_else(Vec::new, |place| answers(&expected.holds, place).checks()),
    }
}

fn answers(expected: &Expected, place: &Path) -> Answers {
    match *expected {
        Expected::Training(asked) => training::answers(&asked, place),
        Expected::Study { sizes, versions } => experiments::study(sizes, versions, place),
        Expected::Sweep { size, passes, batches, sequences } => {
            experiments::sweep(size, passes, batches, sequences, place)
        }
        Expected::Ladder { size } => experiments::ladder(size, place),
        Expected::Rules => experiments::rules(place),
        Expected::Tree => experiments::tree(place),
        Expected::TreeSpeed => experiments::tree_speed(place),
        Expected::Report => scripts::report(place),
        Expected::Recording => scripts::recording(place),
        Expected::Remedies => scripts::remedies(place),
    }
    .unwrap_or_else(Answers::incomplete)
}

/// Marks for an agreement, which needs both runs.
fn agreement_marks(agreement: &Agreement, root: &Path) -> RunMarks {
    let loss = |folder: &str| -> Option<f64> {
        let place = folders::of_page(root, folder)?;
        let record: PerformanceRecord = folders::record(&place, PERFORMANCE_FILE).ok()?;
        record.performance_summary.final_loss
    };
    let names = format!("{} and {}", agreement.first, agreement.second);
    let losses = loss(agreement.first).zip(loss(agreement.second));
    let checks = losses.map(|(first, second)| {
        let same = (first - second).abs() <= SAME_LOSS * first.abs();
        let said = format!("final losses {first:.4} and {second:.4}");
        check("agrees", if same { Ok(said) } else { Err(format!("{said}: not the same model, steps or data")) })
    });
    RunMarks {
        folder: names.clone(),
        expected: agreement.about.into(),
        command: String::new(),
        found: losses.map(|_| names),
        of: 1,
        checks: checks.into_iter().collect(),
    }
}

/// Folders with names other than the pages'; each can match one expected run.
struct Others(Vec<PathBuf>);

impl Others {
    fn below(root: &Path) -> Others {
        let expected = PARTS.iter().flat_map(|part| part.steps).filter_map(|step| step.run);
        let named: BTreeSet<PathBuf> = expected.filter_map(|run| folders::of_page(root, run.folder)).collect();
        Others(folders::all_below(root).into_iter().filter(|folder| !named.contains(folder)).collect())
    }

    /// Takes the first folder that passes every check and has exactly the requested steps: more steps would match
    /// several pages.
    fn take(&mut self, expected: &ExpectedRun) -> Option<PathBuf> {
        let fits = |folder: &PathBuf| {
            let exact = match expected.holds {
                Expected::Training(asked) => training::steps_of(folder) == Some(asked.steps),
                _ => true,
            };
            exact
                && answers(&expected.holds, folder).checks().iter().filter(|check| check.passed).count() as u64
                    == POINTS
        };
        let at = self.0.iter().position(fits)?;
        Some(self.0.remove(at))
    }
}

/// Marks the folder itself as the run it fits best: most points, then a matching name.
fn single_run(root: &Path) -> Option<PartMarks> {
    let mut best: Option<((u64, bool), PartMarks)> = None;
    for part in PARTS {
        for step in part.steps {
            let Some(expected) = &step.run else { continue };
            let marks = run_marks(step, expected, Some(root), root);
            let name = Path::new(expected.folder).file_name();
            let rank = (marks.points(), name == root.file_name());
            if rank.0 > 0 && best.as_ref().is_none_or(|(most, _)| rank > *most) {
                let marks = RunMarks { found: Some(expected.folder.into()), ..marks };
                best = Some((rank, PartMarks::new(part.number, part.title, vec![marks])));
            }
        }
    }
    best.map(|(_, part)| part)
}
