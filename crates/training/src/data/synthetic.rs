//! Uniform noise: every token from 1 up is equally likely. There is nothing else to learn from it.

use super::{Batch, BatchShape, DataError, SourceSettings, place_token};
use crate::rng::Stream;

#[derive(Debug)]
pub struct Synthetic {
    shape: BatchShape,
    vocab_size: u32,
    seed: u64,
    tokens: Stream,
}

impl Synthetic {
    pub fn new(settings: &SourceSettings) -> Result<Synthetic, DataError> {
        let vocab_size = small_vocabulary("synthetic data", 2, settings.vocab_size)?;
        let name = format!("data.synthetic.{}", settings.split.name());
        Ok(Synthetic {
            shape: settings.shape,
            vocab_size,
            seed: settings.seed,
            tokens: Stream::new(settings.seed, &name),
        })
    }

    pub fn fill_from(&self, first: u64, batch: &mut Batch) -> Result<(), DataError> {
        check_room(self.shape, batch)?;
        let BatchShape { batch_size, seq_len } = self.shape;
        for row in 0..batch_size {
            let sample = first.wrapping_add(row as u64);
            for t in 0..=seq_len {
                let index = sample.wrapping_mul(seq_len as u64 + 1).wrapping_add(t as u64);
                let token = 1 + self.tokens.uniform_u32_below(index, self.vocab_size - 1);
                place_token(batch, seq_len, row, t, token as i32);
            }
        }
        Ok(())
    }

    pub fn shape(&self) -> BatchShape {
        self.shape
    }

    /// The entropy of V - 1 equally likely tokens.
    pub fn floor_nats(&self) -> f64 {
        f64::from(self.vocab_size - 1).ln()
    }

    pub fn description(&self) -> String {
        format!("synthetic, vocabulary {}, seed {}", self.vocab_size, self.seed)
    }
}

/// The vocabulary size as a `u32`, checked to fit token ids (i32).
pub(super) fn small_vocabulary(source_name: &'static str, least: usize, vocab_size: usize) -> Result<u32, DataError> {
    const MOST: usize = i32::MAX as usize;
    if vocab_size < least {
        return Err(DataError::VocabularyTooSmall { source_name, least, vocab_size });
    }
    if vocab_size > MOST {
        return Err(DataError::VocabularyTooLarge { vocab_size, most: MOST });
    }
    Ok(vocab_size as u32)
}

pub(super) fn check_room(shape: BatchShape, batch: &Batch) -> Result<(), DataError> {
    let tokens = shape.batch_size * shape.seq_len;
    for have in [batch.input_ids.len(), batch.targets.len()] {
        if have != tokens {
            return Err(DataError::WrongRoom { have, shape });
        }
    }
    Ok(())
}
