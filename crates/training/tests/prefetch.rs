//! Prefetched batches are those the source gives, errors arrive at their position, and no thread is left running.

use std::time::{Duration, Instant};

use headroom_training::data::{Batch, BatchShape, DataError, DataSpec, Prefetcher, Source, SourceSettings};

fn markov(batch_size: usize) -> Source {
    let settings = SourceSettings::new(BatchShape { batch_size, seq_len: 16 }, 50, 1);
    Source::open(&DataSpec::Markov, &settings).unwrap()
}

#[test]
fn fetched_batches_are_the_sources_own_in_order_from_any_sample() {
    let source = markov(2);
    let mut prefetcher = Prefetcher::start(markov(2), 7).unwrap();
    let mut batch = Batch::new(source.shape());
    for first in (7..50).step_by(2) {
        let fetched = prefetcher.fetch().unwrap();
        source.fill_from(first, &mut batch).unwrap();
        assert_eq!((fetched.batch, fetched.next_sample), (&batch, first + 2));
    }
}

#[test]
fn buffers_are_recycled_and_not_made_anew() {
    let mut prefetcher = Prefetcher::start(markov(2), 0).unwrap();
    let mut places: Vec<*const i32> = Vec::new();
    for _ in 0..50 {
        places.push(prefetcher.fetch().unwrap().batch.input_ids.as_ptr());
    }
    places.sort();
    places.dedup();
    assert!(places.len() <= 4, "{} buffers", places.len());
}

#[test]
fn a_ready_batch_is_not_waited_for_and_a_slow_one_is() {
    let mut prefetcher = Prefetcher::start(markov(20_000), 0).unwrap();
    let mut waited = || {
        let asked = Instant::now();
        prefetcher.fetch().unwrap();
        asked.elapsed()
    };
    let first = waited();
    std::thread::sleep(first * 6 + Duration::from_millis(50));
    // The smaller of two: a busy machine may deschedule the thread in the middle of one.
    let ready = (0..2).map(|_| waited()).min().unwrap();
    assert!(first > Duration::from_micros(500) && ready < first / 4, "first {first:?}, ready {ready:?}");
}

#[test]
fn an_error_in_the_thread_arrives_at_its_batch_and_ends_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tokens.bin");
    std::fs::write(&path, [9, 0].repeat(100)).unwrap();
    let settings = SourceSettings::new(BatchShape { batch_size: 1, seq_len: 4 }, 5, 1);
    let source = Source::open(&DataSpec::parse(path.to_str().unwrap()).unwrap(), &settings).unwrap();
    let mut prefetcher = Prefetcher::start(source, 0).unwrap();
    assert!(matches!(prefetcher.fetch(), Err(DataError::OutsideVocabulary { id: 9, .. })));
    assert!(matches!(prefetcher.fetch(), Err(DataError::Ended)));
}

#[test]
fn dropping_ends_the_thread_at_once_whatever_it_is_doing() {
    for fetched in [0, 1, 5] {
        let mut prefetcher = Prefetcher::start(markov(2), 0).unwrap();
        for _ in 0..fetched {
            prefetcher.fetch().unwrap();
        }
        let asked = Instant::now();
        drop(prefetcher);
        assert!(asked.elapsed() < Duration::from_secs(5));
    }
}
