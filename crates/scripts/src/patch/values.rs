//! Values that a patch writes, as the run with the remedies used them.

use crate::note::Note;
use crate::remedies::edit::Value;

/// `PyTorch`'s default, which need not be written.
const PREFETCH: u64 = 2;

/// The value for the loader or optimizer with this index in the note; `None` where the remedy left it alone.
pub fn value_of(value: Value, note: &Note, number: usize) -> Option<String> {
    let truth = |is_so: bool| is_so.then(|| "True".to_string());
    let loader = note.loaders.get(number).filter(|loader| loader.workers > 0);
    let optimizer = note.optimizers.get(number);
    match value {
        Value::Is(text) => Some(text.to_string()),
        Value::Workers => Some(loader?.workers.to_string()),
        Value::Persistent => truth(loader?.persistent),
        Value::Prefetch => loader?.prefetch.filter(|ahead| *ahead != PREFETCH).map(|ahead| ahead.to_string()),
        Value::Pinned => truth(note.loaders.get(number)?.pinned),
        Value::Fused => truth(optimizer?.fused),
        Value::Foreach => truth(optimizer?.foreach == Some(true)),
        Value::FusedName => {
            (optimizer?.fused && optimizer?.class == "AdamW").then(|| "\"adamw_torch_fused\"".to_string())
        }
        Value::Threads => Some(note.settings.threads?.to_string()),
    }
}

/// `"high"` without its quotes, for a command line.
pub fn in_command_line(value: &str) -> &str {
    value.trim_matches('"')
}
