//! The parts of the hook that are loaded when a script is measured, by file name.

pub const PARTS: [(&str, &str); 11] = [
    ("batches.py", include_str!("../../record/parts/batches.py")),
    ("facts.py", include_str!("../../record/parts/facts.py")),
    ("losses.py", include_str!("../../record/parts/losses.py")),
    ("measure.py", include_str!("../../record/parts/measure.py")),
    ("moments.py", include_str!("../../record/parts/moments.py")),
    ("moved.py", include_str!("../../record/parts/moved.py")),
    ("places.py", include_str!("../../record/parts/places.py")),
    ("prints.py", include_str!("../../record/parts/prints.py")),
    ("rereading.py", include_str!("../../record/parts/rereading.py")),
    ("sources.py", include_str!("../../record/parts/sources.py")),
    ("surroundings.py", include_str!("../../record/parts/surroundings.py")),
];
