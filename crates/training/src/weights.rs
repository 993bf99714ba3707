//! Writes weights to a device. A matrix may have a half-precision copy that products read; it is updated along with the
//! matrix.

use headroom_engine::Device;
use headroom_graph::Graph;
use headroom_graph::storage::half_name;

/// Writes elements of a parameter and of its copy from index `first` on; ignores a parameter that the program does not
/// use.
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
