//! Joined products give the same bits as each product alone: lengths, layouts, levels and thread counts.

#[allow(dead_code, reason = "other tests look at single elements")]
#[path = "common/operand.rs"]
mod operand;

use headroom_engine::cpu::gemm::{Accumulate, Columns, Joined, MatMut, Product, Rows, Scratch, gemm, gemm_joined};
use headroom_engine::cpu::isa::Isa;
use headroom_engine::cpu::pool::Pool;
use operand::{Operand, Storage, noise, pools, same_bits};

/// Lengths of the parts, the common length, and the depth.
const SHAPES: [(&[usize], usize, usize); 9] = [
    (&[64, 32, 32], 128, 64),
    (&[1, 15, 33, 100], 70, 19),
    (&[40, 40], 3, 530),
    (&[96, 64, 64], 150, 80),
    (&[110, 110], 60, 520),
    (&[7], 9, 5),
    (&[0, 20, 31], 40, 16),
    // Long enough for tiles: all parts, then only some.
    (&[160, 130, 128], 200, 150),
    (&[160, 20], 200, 150),
];

/// Storage of the left and right operand, as in training.
const LAYOUTS: [(Storage, Storage); 3] = [
    (Storage::RowMajor, Storage::Transposed),
    (Storage::Transposed, Storage::RowMajor),
    (Storage::RowMajor, Storage::RowMajor),
];

fn each_case(mut check: impl FnMut(&Pool, Isa, &Scratch, &[usize], usize, usize, (Storage, Storage), Accumulate)) {
    let pools = pools();
    for isa in Isa::available() {
        for (lengths, common, depth) in SHAPES {
            for layouts in LAYOUTS {
                for accumulate in [Accumulate::Overwrite, Accumulate::Add] {
                    for (pool, scratch) in &pools {
                        check(pool, isa, scratch, lengths, common, depth, layouts, accumulate);
                    }
                }
            }
        }
    }
}

#[test]
fn right_operands_joined_give_the_bits_of_each_alone() {
    each_case(|pool, isa, scratch, widths, rows, depth, (left, right), accumulate| {
        let a = Operand::new(rows, depth, left, 1);
        let bs: Vec<Operand> = widths.iter().map(|width| Operand::new(depth, *width, right, 2)).collect();
        let mut alone: Vec<Vec<f32>> = widths.iter().map(|width| noise(rows * width, 3)).collect();
        let mut together = alone.clone();
        for ((b, c), &width) in bs.iter().zip(&mut alone).zip(widths) {
            let c = MatMut::row_major(c, rows, width);
            gemm(pool, isa, scratch, Product { alpha: 0.5, a: a.view(), b: b.view(), accumulate, c });
        }
        let parts = bs.iter().zip(&mut together).zip(widths);
        let mut columns: Vec<Columns> =
            parts.map(|((b, c), &width)| Columns { b: b.view(), c: MatMut::row_major(c, rows, width) }).collect();
        let joined = Joined::columns_of(0.5, accumulate, a.view(), &mut columns);
        gemm_joined(pool, isa, scratch, joined);
        for ((alone, together), width) in alone.iter().zip(&together).zip(widths) {
            let name = format!("{isa} {} threads {rows}×{width}×{depth} {left:?}·{right:?}", pool.threads());
            assert!(same_bits(alone, together), "{name} {accumulate:?}, of {widths:?}");
        }
    });
}

#[test]
fn left_operands_joined_give_the_bits_of_each_alone() {
    each_case(|pool, isa, scratch, heights, columns, depth, (left, right), accumulate| {
        let b = Operand::new(depth, columns, right, 1);
        let lefts: Vec<Operand> = heights.iter().map(|height| Operand::new(*height, depth, left, 2)).collect();
        let mut alone: Vec<Vec<f32>> = heights.iter().map(|height| noise(height * columns, 3)).collect();
        let mut together = alone.clone();
        for ((a, c), &height) in lefts.iter().zip(&mut alone).zip(heights) {
            let c = MatMut::row_major(c, height, columns);
            gemm(pool, isa, scratch, Product { alpha: 1.0, a: a.view(), b: b.view(), accumulate, c });
        }
        let parts = lefts.iter().zip(&mut together).zip(heights);
        let mut rows: Vec<Rows> =
            parts.map(|((a, c), &height)| Rows { a: a.view(), c: MatMut::row_major(c, height, columns) }).collect();
        let joined = Joined::rows_of(1.0, accumulate, &mut rows, b.view());
        gemm_joined(pool, isa, scratch, joined);
        for ((alone, together), height) in alone.iter().zip(&together).zip(heights) {
            let name = format!("{isa} {} threads {height}×{columns}×{depth} {left:?}·{right:?}", pool.threads());
            assert!(same_bits(alone, together), "{name} {accumulate:?}, of {heights:?}");
        }
    });
}
