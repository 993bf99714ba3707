//! Forecast of a step on several ranks before it runs there: the measured step of one rank plus the exchanges that the
//! plan adds.

use crate::planning::{MIB, PlannedStep};
use headroom_graph::GraphError;
use headroom_graph::cost::{Link, Rates, predicted_among_ranks};
use headroom_graph::passes::PassList;
use headroom_record::validation::RankForecast;
use headroom_training::program::StepConfig;

/// Ways to combine the gradients of several ranks, as entries of `--passes` in addition to the kept list.
const WAYS: [&str; 3] = ["+dp", "-overlap", "+zero1"];

/// Forecasts each way on this many ranks, given that one rank takes `one_seconds` with the kept list. Every rank keeps
/// its batch.
pub fn forecast(
    step: &StepConfig,
    kept: &PassList,
    (one_seconds, rates, threads): (f64, &Rates, usize),
    (ranks, link): (usize, &Link),
) -> Result<Vec<RankForecast>, GraphError> {
    let alone = PlannedStep::new(&StepConfig { passes: kept.clone(), ..step.clone() }, threads)?;
    // The plan's own prediction is a lower bound, but an exchange is hidden behind the time that computing really
    // takes.
    let slower = one_seconds / alone.predicted_seconds(rates).max(f64::MIN_POSITIVE);
    let measured = Rates {
        product_flops: rates.product_flops / slower,
        bytes: rates.bytes / slower,
        call_seconds: rates.call_seconds * slower,
    };
    let mut rows = Vec::new();
    for way in WAYS {
        let names = if kept.names().is_empty() { "none".to_string() } else { kept.names().join(",") };
        let passes = PassList::parse(&format!("{names},{way}")).unwrap_or_else(|_| kept.clone()).among(ranks);
        let planned = PlannedStep::new(&StepConfig { passes, ..step.clone() }, threads)?;
        let program = &planned.training.program;
        let (seconds, exposed) = predicted_among_ranks(&program.graph, &program.plan, &measured, link);
        rows.push(RankForecast {
            ranks: ranks as u64,
            messages: String::new(),
            way: way.to_string(),
            step_seconds: seconds,
            exposed_seconds: exposed,
            efficiency_percent: 100.0 * one_seconds / seconds.max(f64::MIN_POSITIVE),
            memory_per_rank_mb: planned.need.total() as f64 / MIB,
        });
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_training::data::BatchShape;
    use headroom_training::models::Size;
    use headroom_training::optimizer::OptimizerConfig;

    const RATES: Rates = Rates { product_flops: 1e10, bytes: 1e10, call_seconds: 1e-6 };

    fn nano(link: Link, ranks: usize) -> Vec<RankForecast> {
        let size = Size::named("nano").unwrap();
        let step = StepConfig {
            model: size.model(),
            shape: BatchShape { batch_size: size.batch_size, seq_len: size.seq_len },
            optimizer: OptimizerConfig::default(),
            passes: PassList::none(),
            recomputed_layers: 0,
            precision: Default::default(),
            target: Default::default(),
        };
        forecast(&step, &PassList::version_2(), (0.1, &RATES, 1), (ranks, &link)).unwrap()
    }

    #[test]
    fn a_step_is_what_one_rank_takes_and_what_it_waits_for() {
        let slow = Link { round_seconds: 1e-3, bytes: 1e7 };
        let [hidden, plain, sharded] = nano(slow, 4).try_into().unwrap();
        assert_eq!((&*plain.way, plain.ranks), ("-overlap", 4));
        assert!((plain.step_seconds - 0.1 - plain.exposed_seconds).abs() < 0.01, "{plain:?}");
        // A ring sends the bytes of each gradient one and a half times past every rank.
        let parameters = Size::named("nano").unwrap().model().parameters().total() as f64;
        let least = 1.5 * 4.0 * parameters / slow.bytes;
        assert!(plain.exposed_seconds > least && plain.exposed_seconds < 1.5 * least, "{plain:?} {least}");
        assert!(hidden.step_seconds <= plain.step_seconds);
        assert!(sharded.memory_per_rank_mb < plain.memory_per_rank_mb, "{sharded:?}");
        let quick = nano(Link { round_seconds: 1e-9, bytes: 1e15 }, 4);
        assert!(quick.iter().all(|row| row.efficiency_percent > 90.0), "{quick:?}");
    }
}
