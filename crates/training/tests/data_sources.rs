//! Every source as its users see it: what a batch holds, that it depends only on the position, and what is refused.

use std::collections::HashMap;
use std::path::PathBuf;

use headroom_training::data::{Batch, BatchShape, DataError, DataSpec, Source, SourceSettings, Split};
use safetensors::Dtype;
use safetensors::tensor::TensorView;

fn settings(batch_size: usize, seq_len: usize, vocab_size: usize) -> SourceSettings {
    SourceSettings::new(BatchShape { batch_size, seq_len }, vocab_size, 42)
}

fn open(data: &str, settings: &SourceSettings) -> Result<Source, DataError> {
    Source::open(&DataSpec::parse(data)?, settings)
}

fn batch_at(source: &Source, position: u64) -> Batch {
    let mut batch = Batch::new(source.shape());
    source.fill(position, &mut batch).unwrap();
    batch
}

fn error_of(data: &str, settings: &SourceSettings) -> String {
    open(data, settings).unwrap_err().to_string()
}

fn check_says(error: &str, words: &[&str]) {
    for word in words {
        assert!(error.contains(word), "`{word}` is not in: {error}");
    }
}

struct Files(tempfile::TempDir);

impl Files {
    fn new() -> Files {
        Files(tempfile::tempdir().unwrap())
    }

    fn write(&self, name: &str, bytes: &[u8]) -> String {
        let path = self.path(name);
        std::fs::write(&path, bytes).unwrap();
        path.to_str().unwrap().to_string()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn tokens_u16(&self, name: &str, ids: impl Iterator<Item = u16>) -> String {
        self.write(name, &ids.flat_map(u16::to_le_bytes).collect::<Vec<u8>>())
    }

    fn batch(&self, tensors: &[(&str, Dtype, &[usize], Vec<u8>)]) -> String {
        let views: HashMap<&str, TensorView> = tensors
            .iter()
            .map(|(name, dtype, shape, bytes)| (*name, TensorView::new(*dtype, shape.to_vec(), bytes).unwrap()))
            .collect();
        self.write("batch.safetensors", &safetensors::serialize(views, None).unwrap())
    }
}

fn int64(ids: &[i64]) -> Vec<u8> {
    ids.iter().flat_map(|id| id.to_le_bytes()).collect()
}

/// A source of every generated and windowed kind, all with vocabulary 1000.
fn sources(files: &Files, settings: &SourceSettings) -> Vec<(&'static str, Source)> {
    let text: Vec<u8> = (0..5000u32).map(|i| b'a' + (i * i % 26) as u8).collect();
    let text = files.write("text.txt", &text);
    let tokens = files.tokens_u16("tokens.bin", (0..5000).map(|i| i * 7 % 1000));
    [("synthetic", "synthetic"), ("markov", "markov"), ("text", &text), ("tokens", &tokens)]
        .map(|(name, data)| (name, open(data, settings).unwrap()))
        .into()
}

#[test]
fn targets_are_the_inputs_shifted_by_one() {
    let files = Files::new();
    for (name, source) in sources(&files, &settings(3, 16, 1000)) {
        let batch = batch_at(&source, 5);
        for row in 0..3 {
            let inputs = &batch.input_ids[row * 16..(row + 1) * 16];
            let targets = &batch.targets[row * 16..(row + 1) * 16];
            assert_eq!(inputs[1..], targets[..15], "{name}");
        }
    }
}

#[test]
fn a_batch_depends_on_its_position_and_not_on_what_was_read_before() {
    let files = Files::new();
    for ((name, one), (_, other)) in
        sources(&files, &settings(2, 8, 1000)).into_iter().zip(sources(&files, &settings(2, 8, 1000)))
    {
        let forwards: Vec<Batch> = (0..4).map(|position| batch_at(&one, position)).collect();
        let backwards: Vec<Batch> = (0..4).rev().map(|position| batch_at(&other, position)).collect();
        assert!(forwards.iter().eq(backwards.iter().rev()), "{name}");
        assert_ne!(forwards[0], forwards[1], "{name}");
    }
}

#[test]
fn two_small_batches_hold_the_samples_of_one_large_batch() {
    let files = Files::new();
    let small = sources(&files, &settings(2, 8, 1000));
    for ((name, small), (_, large)) in small.into_iter().zip(sources(&files, &settings(4, 8, 1000))) {
        let halves = [batch_at(&small, 6), batch_at(&small, 7)];
        let joined: Vec<i32> = halves.iter().flat_map(|batch| batch.input_ids.clone()).collect();
        assert_eq!(joined, batch_at(&large, 3).input_ids, "{name}");
    }
}

#[test]
fn seed_and_split_each_give_other_samples_of_the_same_source() {
    let files = Files::new();
    let base = settings(2, 8, 1000);
    let reseeded = SourceSettings { seed: 43, ..base.clone() };
    let evaluation = SourceSettings { split: Split::Evaluation, ..base.clone() };
    for other in [reseeded, evaluation.clone()] {
        for ((name, one), (_, other)) in sources(&files, &base).into_iter().zip(sources(&files, &other)) {
            assert_ne!(batch_at(&one, 0), batch_at(&other, 0), "{name}");
        }
    }
    let floor = |settings| open("markov", settings).unwrap().floor_nats();
    assert_eq!(floor(&base), floor(&evaluation), "evaluation draws from the same chain");
}

#[test]
fn a_position_from_a_damaged_file_is_no_panic() {
    let files = Files::new();
    for (_, source) in sources(&files, &settings(3, 8, 1000)) {
        batch_at(&source, u64::MAX);
    }
}

#[test]
fn synthetic_tokens_are_uniform_from_one_up() {
    let source = open("synthetic", &settings(100, 100, 11)).unwrap();
    let mut counts = [0; 11];
    for token in batch_at(&source, 0).input_ids {
        counts[token as usize] += 1;
    }
    assert_eq!(counts[0], 0);
    assert!(counts[1..].iter().all(|count| (850..1150).contains(count)), "{counts:?}");
    assert_eq!(source.floor_nats(), Some(10f64.ln()));
    check_says(&error_of("synthetic", &settings(1, 1, 1)), &["vocabulary", "--vocab-size 2"]);
}

#[test]
fn text_windows_are_the_files_own_bytes_up_to_its_last() {
    let files = Files::new();
    let text = files.write("tiny.txt", "héllo".as_bytes()); // 6 bytes: windows of 5 start at 0 or 1
    let source = open(&text, &settings(64, 4, 256)).unwrap();
    let batch = batch_at(&source, 0);
    let bytes: Vec<i32> = "héllo".bytes().map(i32::from).collect();
    let mut starts_seen = [false; 2];
    for (inputs, targets) in batch.input_ids.chunks(4).zip(batch.targets.chunks(4)) {
        let start = usize::from(inputs[0] != bytes[0]);
        assert_eq!(inputs, &bytes[start..start + 4]);
        assert_eq!(targets, &bytes[start + 1..start + 5]);
        starts_seen[start] = true;
    }
    assert_eq!(starts_seen, [true, true]);
}

#[test]
fn a_window_longer_than_one_read_is_whole() {
    let files = Files::new();
    let ids = |i: u32| (i * 13 % 50_000) as u16;
    let tokens = files.tokens_u16("long.u16", (0..20_001).map(ids));
    let batch = batch_at(&open(&tokens, &settings(1, 20_000, 65_536)).unwrap(), 0);
    assert!(batch.input_ids.iter().eq((0..20_000).map(|i| i32::from(ids(i))).collect::<Vec<_>>().iter()));
    assert_eq!(batch.targets[19_999], i32::from(ids(20_000)));
    let text: Vec<u8> = (0..20_001u32).map(|i| 1 + (i * 7 % 250) as u8).collect();
    let text = files.write("long.txt", &text);
    let batch = batch_at(&open(&text, &settings(1, 20_000, 256)).unwrap(), 0);
    assert!(batch.targets.iter().enumerate().all(|(i, token)| *token == 1 + ((i as i32 + 1) * 7 % 250)));
}

#[test]
fn text_refuses_small_vocabularies_short_files_and_binaries_with_the_figures() {
    let files = Files::new();
    let text = files.write("short.txt", b"hello");
    check_says(&error_of(&text, &settings(1, 4, 255)), &["at least 256", "255", "--vocab-size 256"]);
    check_says(&error_of(&text, &settings(1, 5, 256)), &["short.txt", "5 tokens", "needs 6", "--seq-len 4"]);
    open(&text, &settings(1, 4, 256)).unwrap();
    let binary = files.write("model.pt", b"PK\x03\x04\0\0\0\0");
    check_says(&error_of(&binary, &settings(1, 4, 256)), &["model.pt", "byte 4", ".safetensors"]);
    let empty = files.write("empty.txt", b"");
    check_says(&error_of(&empty, &settings(1, 4, 256)), &["empty.txt", "0 tokens"]);
}

#[test]
fn token_files_of_both_widths_are_read_little_endian() {
    let files = Files::new();
    let narrow = files.write("a.bin", &[1, 0, 0x34, 0x12]);
    let wide = files.write("a.u32", &[1, 0, 0, 0, 0x78, 0x56, 0x34, 0x12]);
    let first = |data: &str, vocab_size| {
        let batch = batch_at(&open(data, &settings(1, 1, vocab_size)).unwrap(), 0);
        (batch.input_ids[0], batch.targets[0])
    };
    assert_eq!(first(&narrow, 65_536), (1, 0x1234));
    assert_eq!(first(&wide, 0x7fff_ffff), (1, 0x1234_5678));
}

#[test]
fn token_files_with_strange_ids_odd_sizes_or_too_few_tokens_are_refused() {
    let files = Files::new();
    let strange = files.tokens_u16("strange.bin", [5, 6, 999, 7].into_iter());
    let source = open(&strange, &settings(1, 3, 500)).unwrap();
    let error = source.fill(0, &mut Batch::new(source.shape())).unwrap_err().to_string();
    check_says(&error, &["token 999", "position 2", "strange.bin", "vocabulary of 500"]);
    let odd = files.write("odd.u32", &[0; 10]);
    check_says(&error_of(&odd, &settings(1, 1, 500)), &["odd.u32", "10 bytes", "4-byte"]);
    check_says(&error_of(&strange, &settings(1, 4, 1000)), &["4 tokens", "needs 5"]);
}

#[test]
fn a_token_file_cut_short_during_the_run_is_an_error() {
    let files = Files::new();
    let tokens = files.tokens_u16("shrinking.bin", 0..1000);
    let source = open(&tokens, &settings(4, 100, 1000)).unwrap();
    std::fs::File::options().write(true).open(&tokens).unwrap().set_len(10).unwrap();
    let error = source.fill(0, &mut Batch::new(source.shape())).unwrap_err().to_string();
    check_says(&error, &["shrinking.bin"]);
}

#[test]
fn a_batch_file_is_that_batch_at_every_position_in_either_width() {
    let files = Files::new();
    let int32 = |ids: &[i32]| ids.iter().flat_map(|id| id.to_le_bytes()).collect();
    let data = files.batch(&[
        ("input_ids", Dtype::I64, &[2, 3], int64(&[1, 2, 3, 4, 5, 6])),
        ("targets", Dtype::I32, &[2, 3], int32(&[2, 3, 4, 5, 6, 7])),
    ]);
    let source = open(&data, &settings(8, 128, 10)).unwrap();
    assert_eq!(source.shape(), BatchShape { batch_size: 2, seq_len: 3 });
    for position in [0, 9] {
        let batch = batch_at(&source, position);
        assert_eq!((batch.input_ids, batch.targets), (vec![1, 2, 3, 4, 5, 6], vec![2, 3, 4, 5, 6, 7]));
    }
}

#[test]
fn batch_files_that_are_something_else_are_refused_by_name() {
    let files = Files::new();
    let good = || int64(&[1, 2, 3, 4]);
    let shape: &[usize] = &[2, 2];
    let refused = |tensors: &[(&str, Dtype, &[usize], Vec<u8>)], words: &[&str]| {
        check_says(&error_of(&files.batch(tensors), &settings(1, 1, 10)), words);
    };
    let ids = || ("input_ids", Dtype::I64, shape, good());
    refused(&[ids()], &["batch.safetensors", "no tensor `targets`", "input_ids"]);
    refused(&[ids(), ("targets", Dtype::F32, &[2, 4], vec![0; 32])], &["`targets` is F32"]);
    refused(&[ids(), ("targets", Dtype::I64, &[4], good())], &["`targets` has shape [4]"]);
    refused(&[ids(), ("targets", Dtype::I64, &[1, 4], good())], &["[2, 2]", "[1, 4]"]);
    refused(&[ids(), ("targets", Dtype::I64, &[0, 2], vec![])], &["holds no token"]);
    let outside = |id: i64| ("targets", Dtype::I64, shape, int64(&[1, 2, id, 4]));
    for id in [-100, 10, i64::MAX] {
        refused(&[ids(), outside(id)], &[&format!("token {id}"), "[1, 0] of `targets`", "vocabulary of 10"]);
    }
}

#[test]
fn a_batch_file_cut_anywhere_is_an_error_and_never_a_panic() {
    let files = Files::new();
    let data = files.batch(&[
        ("input_ids", Dtype::I64, &[2, 2], int64(&[1, 2, 3, 4])),
        ("targets", Dtype::I64, &[2, 2], int64(&[1, 2, 3, 4])),
    ]);
    let whole = std::fs::read(&data).unwrap();
    for length in 0..whole.len() {
        let cut = files.write("cut.safetensors", &whole[..length]);
        check_says(&error_of(&cut, &settings(1, 1, 10)), &["cut.safetensors", "not a whole safetensors file"]);
    }
    let longer = files.write("longer.safetensors", &[&whole[..], b"x"].concat());
    check_says(&error_of(&longer, &settings(1, 1, 10)), &["longer.safetensors"]);
}

#[test]
fn a_spec_is_told_by_name_or_ending_and_a_wrong_one_lists_the_choices() {
    let files = Files::new();
    let kind = |name: &str| match DataSpec::parse(&files.write(name, b"abc")).unwrap() {
        DataSpec::Tokens { width, .. } => format!("tokens of {}", width.bytes()),
        DataSpec::Text { .. } => "text".to_string(),
        DataSpec::Batch { .. } => "batch".to_string(),
        generator => generator.to_string(),
    };
    for (name, want) in [
        ("a.bin", "tokens of 2"),
        ("a.u16", "tokens of 2"),
        ("a.u32", "tokens of 4"),
        ("a.safetensors", "batch"),
        ("a.txt", "text"),
        ("shakespeare", "text"),
    ] {
        assert_eq!(kind(name), want);
    }
    assert_eq!(DataSpec::parse("markov").unwrap(), DataSpec::Markov);
    let kind = |given: &str| DataSpec::parse(given).unwrap();
    for corpus in [files.0.path().to_str().unwrap(), &files.write("a.jsonl", b"{}"), "absent/*.txt"] {
        assert_eq!(kind(corpus), DataSpec::Corpus { path: corpus.into() });
    }
    for wrong in ["markow", "absent.txt", "absent", ""] {
        let error = DataSpec::parse(wrong).unwrap_err().to_string();
        check_says(&error, &[wrong, "synthetic", "markov", ".bin", ".u32", ".safetensors"]);
    }
}

#[test]
fn zero_sizes_and_a_batch_of_another_shape_are_refused() {
    for (batch_size, seq_len, vocab_size) in [(0, 1, 1), (1, 0, 1), (1, 1, 0)] {
        check_says(&error_of("markov", &settings(batch_size, seq_len, vocab_size)), &["at least 1"]);
    }
    let source = open("markov", &settings(2, 4, 10)).unwrap();
    let mut other = Batch::new(BatchShape { batch_size: 2, seq_len: 3 });
    check_says(&source.fill(0, &mut other).unwrap_err().to_string(), &["6 tokens", "2 × 4"]);
}

#[test]
fn a_description_names_the_data_and_not_the_folder() {
    let files = Files::new();
    for (_, source) in sources(&files, &settings(2, 8, 1000)) {
        let description = source.description();
        assert!(description.contains("42"), "{description}");
        assert!(!description.contains(files.0.path().to_str().unwrap()), "{description}");
    }
}
