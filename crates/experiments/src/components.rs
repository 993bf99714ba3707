//! Components of a planned step's memory, with attention's quadratic tensors separate from other activations.

use headroom_engine::Program;
use headroom_graph::plan::Buffer;
use headroom_graph::{Category, ValueId};
use headroom_record::study::Components;
use headroom_training::memory::MemoryNeed;

const MIB: f64 = 1024.0 * 1024.0;

/// MiB at the peak.
pub fn at_peak(program: &Program, need: &MemoryNeed) -> Components {
    let fullest = program.plan.peak_call;
    let mut components = Components {
        overhead: (need.total() - need.peak.total().min(need.total())) as f64 / MIB,
        ..Components::default()
    };
    for (value, buffer) in buffers(program).filter(|(_, buffer)| buffer.alive.contains(&fullest)) {
        *part(&mut components, program, value, buffer) += buffer.bytes as f64 / MIB;
    }
    components
}

/// Maximum of each component by itself, in MiB, whenever it occurs: unlike the share at the peak, this does not jump
/// when the peak moves to another call.
pub fn largest(program: &Program) -> Components {
    let calls = program.plan.calls.len();
    let mut change = vec![Components::default(); calls + 1];
    for (value, buffer) in buffers(program) {
        let size = buffer.bytes as f64 / MIB;
        *part(&mut change[buffer.alive.start], program, value, buffer) += size;
        *part(&mut change[buffer.alive.end], program, value, buffer) -= size;
    }
    let (mut live, mut most) = (Components::default(), Components::default());
    for step in &change {
        let slots = |components: &Components| components.entries().map(|(_, size)| size);
        let now: Vec<f64> = slots(&live).iter().zip(slots(step)).map(|(live, change)| live + change).collect();
        live = of_slots(&now);
        let larger: Vec<f64> = slots(&most).iter().zip(slots(&live)).map(|(most, live)| most.max(live)).collect();
        most = of_slots(&larger);
    }
    most
}

fn of_slots(sizes: &[f64]) -> Components {
    Components {
        parameters: sizes[0],
        gradients: sizes[1],
        optimizer_state: sizes[2],
        activations: sizes[3],
        attention: sizes[4],
        temporaries: sizes[5],
        overhead: sizes[6],
    }
}

fn buffers(program: &Program) -> impl Iterator<Item = (ValueId, &Buffer)> {
    program.graph.value_ids().filter_map(|value| Some((value, program.plan.buffer(value)?)))
}

fn part<'a>(components: &'a mut Components, program: &Program, value: ValueId, buffer: &Buffer) -> &'a mut f64 {
    // `[batch, heads, seq, seq]`: nothing else in the model has four dimensions.
    if let [_, _, rows, columns] = program.graph.ty(value).shape.sizes()
        && rows == columns
    {
        return &mut components.attention;
    }
    match buffer.category {
        Category::Parameters => &mut components.parameters,
        Category::Gradients => &mut components.gradients,
        Category::OptimizerState => &mut components.optimizer_state,
        Category::Activations => &mut components.activations,
        Category::Temporaries => &mut components.temporaries,
    }
}
