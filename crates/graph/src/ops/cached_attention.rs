//! Attention of the next tokens of one sequence to all earlier ones, with a KV cache that the new tokens are appended
//! to.

use crate::graph::{GraphError, ValueId};
use crate::op;
use crate::op::{Backward, Example, Fill, Operator, ShapeError, arity, expect, matrix};
use crate::tensor::TensorType;

op! {
    /// `q` `[r, heads · hd]`, `k` and `v` `[r, kv_heads · hd]`, `keys` and `values` `[s, kv_heads · hd]` (updated),
    /// `first` `i32[1]` → like `q`.
    ///
    /// Rows of `k` and `v` become rows `first`, `first + 1`, … of the cache; rows beyond its end are dropped. Row i of
    /// `q` sees all rows up to its own.
    pub struct CachedAttention {
        pub heads: usize,
        pub kv_heads: usize,
        pub scale: f64,
    }
}

impl Operator for CachedAttention {
    fn outputs(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>, ShapeError> {
        let [q, k, v, keys, values, first] = arity(inputs)?;
        let ((rows, width), (kept, narrow)) = (matrix(0, q)?, matrix(3, keys)?);
        let fits = self.kv_heads > 0 && self.heads.is_multiple_of(self.kv_heads) && width.is_multiple_of(self.heads);
        if !fits || narrow != width / self.heads * self.kv_heads {
            let what = format!("{} heads cannot share {} key-value heads", self.heads, self.kv_heads);
            return Err(ShapeError::Attribute(what));
        }
        expect(1, k, &[rows, narrow])?;
        expect(2, v, &[rows, narrow])?;
        expect(4, values, &[kept, narrow])?;
        expect(5, first, &[1])?;
        Ok(vec![q.clone()])
    }

    /// Counted for a full cache.
    fn flops(&self, inputs: &[TensorType], _: &[TensorType]) -> u64 {
        let kept = inputs[3].sizes()[0];
        4 * (inputs[0].elements() * kept) as u64
    }

    fn updates(&self) -> Vec<usize> {
        vec![3, 4]
    }

    fn is_product(&self) -> bool {
        true
    }

    fn gradient(&self, at: &mut Backward) -> Result<Vec<Option<ValueId>>, GraphError> {
        at.none()
    }

    fn examples() -> Vec<Example> {
        let example = |heads: usize, kv_heads: usize, width: usize, rows: usize, kept: usize, first: f64| {
            let wide = |rows: usize, heads: usize| (TensorType::f32(&[rows, heads * width]), Fill::Normal);
            Example {
                op: CachedAttention { heads, kv_heads, scale: 0.3 }.into(),
                inputs: vec![
                    wide(rows, heads),
                    wide(rows, kv_heads),
                    wide(rows, kv_heads),
                    wide(kept, kv_heads),
                    wide(kept, kv_heads),
                    (TensorType::i32(&[1]), Fill::Constant(first)),
                ],
            }
        };
        // The last example has rows beyond the end of the cache.
        vec![example(4, 2, 10, 1, 17, 9.0), example(3, 3, 64, 5, 40, 30.0), example(2, 1, 128, 4, 33, 31.0)]
    }
}
