//! Weights written to a device: a matrix may have a copy in half precision, which products read, and which follows it.

use headroom_engine::Device;
use headroom_graph::Graph;
use headroom_graph::storage::half_name;

/// Writes elements of a parameter from number `first` on, and of its copy; one that the program has no use for is left out.
pub(crate) fn write_weight(
    device: &mut dyn Device,
    (program, graph): (usize, &Graph),
    name: &str,
    first: usize,
    data: &[f32],
) {
    for value in [graph.named(name), graph.named(&half_name(name))].into_iter().flatten() {
        device.write_f32(program, value, first, data);
    }
}
