//! The overview of an analysed trace.

use headroom_diagnosis::Analysis;
use headroom_diagnosis::measures::breakdown::WhereWorkRuns;
use headroom_diagnosis::measures::ranks::strips::Strip;
use headroom_diagnosis::measures::trust::Verdict;
use headroom_diagnosis::trace_rules::TraceFinding;
use headroom_record::provenance::Origin;

use super::overview::{Figure, Finding, Overview, Part, RankLine, RankTable, RoadmapRow};
use crate::analyze::ranks as rank_tables;
use crate::analyze::{device_of, how_steps_were_found, no_findings, parts, withholds_idle};
use crate::numbers::{self, bytes, grouped, metric, seconds};

/// Keys refer to the output of `headroom analyze --format json`.
const FILE: &str = "analyze --format json";

pub fn overview(analysis: &Analysis) -> Overview {
    let trace = &analysis.trace;
    let device = device_of(analysis);
    let wall = analysis.measures.breakdown.wall_seconds / analysis.steps.count();
    let mut overview = Overview {
        title: trace.name.clone(),
        subtitle: format!(
            "{} events · {device} · rank {} of {} · {} steps, {}",
            grouped(trace.reading.events),
            trace.rank,
            trace.world_size,
            analysis.steps.list.len(),
            how_steps_were_found(analysis)
        ),
        notes: reserves(analysis),
        headline: headline(analysis, wall),
        findings: findings(analysis),
        no_findings: no_findings(analysis),
        no_roadmap: match trace_is_broken(analysis) {
            true => no_findings(analysis),
            false => "Nothing to gain was found.",
        },
        roadmap: roadmap(analysis),
        roadmap_note: roadmap_note(analysis),
        roadmap_by: "effort",
        ranks: ranks(analysis),
        ..Overview::default()
    };
    if !withholds_idle(analysis) {
        overview.breakdown = parts(analysis)
            .into_iter()
            .map(|(name, seconds)| Part { name: name.into(), seconds, share: seconds / wall.max(f64::MIN_POSITIVE) })
            .collect();
        overview.breakdown_note =
            format!("mean of {} steps; every moment belongs to exactly one part", analysis.steps.list.len());
    }
    overview
}

fn trace_is_broken(analysis: &Analysis) -> bool {
    analysis.trust.verdict == Verdict::Broken
}

fn ranks(analysis: &Analysis) -> Option<RankTable> {
    let ranks = analysis.ranks.as_ref()?;
    let nothing = Strip::default();
    let line = |(at, cells): (usize, Vec<String>)| {
        let strip = ranks.strips.ranks.get(at).unwrap_or(&nothing);
        RankLine {
            rank: ranks.ranks[at].rank,
            cells,
            compute: strip.compute.clone(),
            transfer: strip.transfer.clone(),
            wait: strip.wait.clone(),
        }
    };
    let shown = rank_tables::shown(analysis)?;
    Some(RankTable {
        shown: analysis.trace.rank,
        notes: shown.notes,
        head: rank_tables::HEAD.to_vec(),
        rows: shown.ranks.into_iter().enumerate().map(line).collect(),
        collective_head: rank_tables::COLLECTIVE_HEAD.to_vec(),
        collectives: shown.collectives,
        step: ranks.strips.step.clone(),
        seconds: ranks.strips.seconds,
    })
}

fn reserves(analysis: &Analysis) -> Vec<String> {
    let trust = &analysis.trust;
    let mut notes: Vec<String> = match trust.verdict {
        Verdict::Sound => vec![],
        Verdict::Limited => vec!["Read this trace with caution.".into()],
        Verdict::Broken => vec!["This trace cannot be trusted.".into()],
    };
    notes.extend(trust.notes.iter().cloned());
    if !trust.withheld.is_empty() {
        notes.push(format!("Withheld: {}.", trust.withheld.join(", ")));
    }
    notes
}

fn headline(analysis: &Analysis, wall: f64) -> Vec<Figure> {
    let measures = &analysis.measures;
    let figure = |name: &str, shown: String, number: f64, note: String, key: &str| Figure {
        name: name.into(),
        shown,
        number: Some(number),
        note,
        origin: Some(Origin::Measured),
        file: FILE.into(),
        key: key.into(),
    };
    let step = analysis.roadmap.step_seconds_now;
    let mut list = vec![figure("Step, mean", seconds(wall), step, String::new(), "roadmap.step_seconds_now")];
    if !withholds_idle(analysis) {
        let name = match measures.breakdown.where_work_runs {
            WhereWorkRuns::Device => "Device busy",
            WhereWorkRuns::Host => "Operators run",
        };
        let busy = measures.breakdown.busy_share;
        list.push(figure(
            name,
            format!("{:.1}%", 100.0 * busy),
            busy,
            "of the steps".into(),
            "measures.breakdown.busy_share",
        ));
    }
    if measures.kernels.count > 0 {
        let note = format!("median {:.1} µs, {} distinct", measures.kernels.median_micros, measures.kernels.distinct);
        let count = measures.kernels.per_step;
        list.push(figure("Kernels per step", format!("{count:.0}"), count, note, "measures.kernels.per_step"));
    }
    let roofline = &measures.roofline;
    if roofline.flops_per_step > 0.0 {
        let flops = figure(
            "FLOPs per step",
            metric(roofline.flops_per_step, "FLOP"),
            roofline.flops_per_step,
            "from the shapes of the operators".into(),
            "measures.roofline.flops_per_step",
        );
        list.push(Figure { origin: Some(Origin::Computed), ..flops });
    }
    if let Some(mfu) = roofline.mfu_percent {
        let note = roofline.peak_source.clone().unwrap_or_default();
        let mfu = figure("MFU", numbers::mfu(mfu, 2), mfu, note, "measures.roofline.mfu_percent");
        list.push(Figure { origin: Some(Origin::Computed), ..mfu });
    }
    if measures.memory.peak_bytes > 0 {
        let peak = measures.memory.peak_bytes;
        let note = measures.memory.capacity_bytes.map_or(String::new(), |capacity| format!("of {}", bytes(capacity)));
        list.push(figure("Peak memory", bytes(peak), peak as f64, note, "measures.memory.peak_bytes"));
    }
    list
}

pub fn findings(analysis: &Analysis) -> Vec<Finding> {
    let place = |finding: &TraceFinding| match (&finding.place, &finding.function) {
        (Some(place), _) => Some(place.shown()),
        (None, Some(function)) => Some(format!("in {function}")),
        (None, None) => None,
    };
    let finding = |finding: &TraceFinding| Finding {
        code: finding.code.into(),
        name: finding.name.into(),
        severity: finding.severity.name().into(),
        share: finding.share_of_step,
        message: finding.message.clone(),
        place: place(finding),
        evidence: finding.evidence.clone(),
        advice: finding.advice.clone(),
    };
    analysis.findings.iter().map(finding).collect()
}

fn roadmap(analysis: &Analysis) -> Vec<RoadmapRow> {
    let row = |item: &headroom_diagnosis::roadmap::RoadmapItem| RoadmapRow {
        name: format!("{} {}", item.code, item.name),
        advice: item.advice.clone(),
        effort: format!("{:?}", item.effort).to_lowercase(),
        expected_share: Some(item.expected_share),
        alone_share: item.alone_share,
        additional_share: Some(item.additional_share),
    };
    analysis.roadmap.items.iter().map(row).collect()
}

fn roadmap_note(analysis: &Analysis) -> String {
    let roadmap = &analysis.roadmap;
    if roadmap.items.is_empty() {
        return String::new();
    }
    format!(
        "{}; together, from {} per step to an expected {}, and no less than {}",
        roadmap.method,
        seconds(roadmap.step_seconds_now),
        seconds(roadmap.step_seconds_expected),
        seconds(roadmap.step_seconds_at_best)
    )
}
