//! Reference: table look-up and its gradient.

use super::Tensor;

pub fn forward(inputs: &[Tensor], outputs: &mut [Tensor]) {
    let (ids, table) = (&inputs[0], &inputs[1]);
    let width = table.ty.shape.row();
    for (row, &id) in outputs[0].data.chunks_exact_mut(width).zip(&ids.data) {
        row.copy_from_slice(&table.data[id as usize * width..][..width]);
    }
}

pub fn gradient(inputs: &[Tensor], outputs: &mut [Tensor]) {
    let (ids, dy) = (&inputs[0], &inputs[1]);
    let width = dy.ty.shape.row();
    for (row, &id) in dy.rows().zip(&ids.data) {
        let target = &mut outputs[0].data[id as usize * width..][..width];
        target.iter_mut().zip(row).for_each(|(sum, d)| *sum += d);
    }
}
