//! Table look-up and the sum of gradients back into the table.

use super::Team;

/// Rows handed to a thread at a time.
const ROWS: usize = 64;

pub fn forward(team: &Team, ids: &[i32], table: &[f32], out: &mut [f32]) {
    let width = out.len() / ids.len();
    team.pool.for_each_chunk(out, ROWS * width, |index, out| {
        for (row, &id) in out.chunks_exact_mut(width).zip(&ids[index * ROWS..]) {
            row.copy_from_slice(&table[id as usize * width..][..width]);
        }
    });
}

/// Each thread owns some rows of the table and scans the tokens for them in order, so a row's sum always runs in the
/// same order.
pub fn gradient(team: &Team, ids: &[i32], dy: &[f32], out: &mut [f32]) {
    let width = dy.len() / ids.len();
    team.pool.for_each_chunk(out, ROWS * width, |index, out| {
        let owned = index * ROWS..index * ROWS + out.len() / width;
        out.fill(0.0);
        for (dy, &id) in dy.chunks_exact(width).zip(ids) {
            let id = id as usize;
            if owned.contains(&id) {
                let row = &mut out[(id - owned.start) * width..][..width];
                row.iter_mut().zip(dy).for_each(|(sum, dy)| *sum += dy);
            }
        }
    });
}
