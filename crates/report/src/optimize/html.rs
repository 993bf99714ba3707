//! The ladder as one HTML page.

use super::plots::{ladder_plot, saving_plot};
use super::{phase_3, precisions, tables};
use crate::page::{Page, list, matrix, note, table};
use headroom_record::precisions::PrecisionsRecord;
use headroom_record::validation::ValidationRecord;

/// Builds the page; `others` are precisions that were tried after the passes.
pub fn html(record: &ValidationRecord, others: Option<&PrecisionsRecord>) -> String {
    let mut page = Page::new(&tables::title(record), &tables::subtitle(record));
    page.section("Summary", &list(&tables::summary(record)));
    page.section(
        "Where Version 1's time goes",
        &(table(&tables::operators(record), "narrow") + &note(&tables::one_step(record))),
    );
    page.section(
        "Findings by priority",
        &(table(&tables::findings(record), "")
            + &note(
                "\"At most\" is the step's speed-up if the finding's operators ran at the machine's roof: a bound, not a promise.",
            )),
    );
    let notes = tables::notes(record);
    let notes = if notes.is_empty() { String::new() } else { list(&notes) };
    page.section(
        "Passes, each on top of those above it; first those kept in the recommended list",
        &format!(
            "<figure>{}{SAVING_LEGEND}</figure>{}{notes}",
            saving_plot(record),
            table(&tables::passes(record), "")
        ),
    );
    page.section(
        "The ladder: lists of passes against Version 1",
        &format!(
            "<figure>{}</figure>{}{}",
            ladder_plot(record),
            table(&tables::versions(record), ""),
            note(&tables::one_race(record))
        ),
    );
    if !record.ablation.is_empty() {
        page.section("Ablation: all passes, against all but one", &table(&tables::ablation(record), ""));
    }
    if let Some(others) = others {
        let said = note(&precisions::summary(others));
        page.section(precisions::TITLE, &(table(&precisions::table(others), "") + &said));
    }
    page.section(tables::MATRIX, &(matrix(&tables::matrix(record)) + &note(tables::MATRIX_NOTE)));
    page.section("Roadmap", &table(&tables::roadmap(record), "narrow"));
    page.section("Success metrics", &table(&tables::targets(record), "narrow"));
    if !record.reference_points.is_empty() {
        let few = phase_3::few_rounds(record).map_or(String::new(), |few| note(&few));
        let points = table(&phase_3::points(record), "narrow") + &note(phase_3::POINTS_NOTE) + &few;
        page.section(phase_3::POINTS_TITLE, &points);
    }
    if !record.phase_3.is_empty() {
        page.section(phase_3::TITLE, &(table(&phase_3::table(record), "") + &list(&phase_3::notes(record))));
    }
    let growth = tables::growth(record).map_or(String::new(), |line| note(&line));
    page.section("Memory against sequence length", &(table(&tables::lengths(record), "narrow") + &growth));
    page.section("Gates: the checks on what was kept", &table(&tables::gates(record), ""));
    if let Some(by) = tables::messages(record) {
        page.section(tables::AMONG_RANKS, &(table(&tables::among_ranks(record), "") + &note(&by)));
    }
    page.finish()
}

const SAVING_LEGEND: &str = "<figcaption class=\"legend\"><span><i class=\"predicted\"></i>predicted, before the pass ran</span> \
    <span><i class=\"measured\"></i>measured, with its 95% interval</span> Percent of the step that a pass saves on top of those \
    above it.</figcaption>";
