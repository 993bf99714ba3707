//! Adds rows of a table cyclically and sums them back; splits columns into parts and joins them.

use super::Team;
use super::frame::Frame;

/// Rows handed to a thread at a time.
const ROWS: usize = 32;

pub fn add(team: &Team, period: usize, width: usize, x: &[f32], table: &[f32], y: &mut [f32]) {
    team.pool.for_each_chunk(y, ROWS * width, |index, y| {
        let first = index * ROWS;
        let x = &x[first * width..][..y.len()];
        for (row, (y, x)) in (first..).zip(y.chunks_exact_mut(width).zip(x.chunks_exact(width))) {
            let table = &table[row % period * width..][..width];
            for ((y, x), added) in y.iter_mut().zip(x).zip(table) {
                *y = x + added;
            }
        }
    });
}

/// Elements of scratch that [`sum`] needs if all rows are summed into one: one sum per group of rows.
pub fn sum_scratch(rows: usize, width: usize, period: usize, groups: usize) -> usize {
    if period == 1 { rows.div_ceil(rows_in_group(rows, groups)) * width } else { 0 }
}

fn rows_in_group(rows: usize, groups: usize) -> usize {
    rows.div_ceil(groups).max(1)
}

pub fn sum(team: &Team, period: usize, width: usize, dy: &[f32], out: &mut [f32], scratch: &mut [f32]) {
    let rows = dy.len() / width;
    if period > 1 {
        // Each row of the table has its own rows, a period apart.
        team.pool.for_each_chunk(out, width, |row, out| {
            out.fill(0.0);
            if row < period {
                (row..rows).step_by(period).for_each(|from| add_to(&dy[from * width..][..width], out));
            }
        });
        return;
    }
    let group = rows_in_group(rows, team.parts);
    let partial = &mut scratch[..sum_scratch(rows, width, period, team.parts)];
    team.pool.for_each_chunk(&mut *partial, width, |index, partial| {
        partial.fill(0.0);
        let own = &dy[index * group * width..];
        own.chunks_exact(width).take(group).for_each(|dy| add_to(dy, partial));
    });
    out.fill(0.0);
    partial.chunks_exact(width).for_each(|partial| add_to(partial, &mut out[..width]));
}

fn add_to(x: &[f32], sum: &mut [f32]) {
    for (sum, x) in sum.iter_mut().zip(x) {
        *sum += x;
    }
}

pub fn split(team: &Team, parts: usize, width: usize, at: &Frame) {
    let x = at.input(0);
    for part in 0..parts {
        team.pool.for_each_chunk(at.output(part), ROWS * width, |index, out| {
            for (row, out) in (index * ROWS..).zip(out.chunks_exact_mut(width)) {
                out.copy_from_slice(&x[(row * parts + part) * width..][..width]);
            }
        });
    }
}

pub fn join(team: &Team, parts: usize, width: usize, at: &Frame) {
    team.pool.for_each_chunk(at.output(0), ROWS * parts * width, |index, out| {
        for (row, out) in (index * ROWS..).zip(out.chunks_exact_mut(parts * width)) {
            for (index, part) in out.chunks_exact_mut(width).enumerate() {
                part.copy_from_slice(&at.input(index)[row * width..][..width]);
            }
        }
    });
}
