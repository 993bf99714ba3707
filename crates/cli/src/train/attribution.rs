//! Records the nodes that a run's steps chose to update, in the run's folder.

use super::settings::Settings;
use headroom_record::atomic::write_json;
use headroom_record::attribution::{ATTRIBUTION_FILE, AttributionRecord};
use headroom_training::attribution::{Start, moved};
use headroom_training::checkpoint::CheckpointError;
use headroom_training::trainer::Trainer;
use std::path::Path;

/// Writes `attribution.json` for the steps so far; nothing if steps do not choose or nothing is computed.
pub fn write(
    trainer: &mut Trainer,
    settings: &Settings,
    folder: &Path,
) -> Result<Option<AttributionRecord>, CheckpointError> {
    trainer.read_choices();
    if trainer.choices.as_ref().is_none_or(|choices| choices.steps() == 0) {
        return Ok(None);
    }
    let start = match (&settings.resume, &settings.init_from) {
        (Some(checkpoint), _) | (None, Some(checkpoint)) => Start::Loaded(checkpoint),
        (None, None) => Start::Drawn(settings.seed),
    };
    let moved = moved(trainer, start)?;
    let Some(choices) = &trainer.choices else { return Ok(None) };
    let record = choices.attribution_record(settings.optimizer.update.to_string(), settings.seed, &moved);
    write_json(&folder.join(ATTRIBUTION_FILE), &record)?;
    Ok(Some(record))
}
