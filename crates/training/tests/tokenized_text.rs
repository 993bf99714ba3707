//! Text through a Hugging Face tokenizer: the same ids as the tokenizer gives, cached in a file, and what is refused.

use std::path::{Path, PathBuf};

use headroom_training::data::{Batch, BatchShape, DataError, DataSpec, Source, SourceSettings, TokenizerSettings};

/// Words separated by white space, as ids 0 to 3.
const TOKENIZER: &str = r#"{
  "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
  "pre_tokenizer": {"type": "Whitespace"}, "post_processor": null, "decoder": null,
  "model": {"type": "WordLevel", "vocab": {"<unk>": 0, "one": 1, "two": 2, "three": 3}, "unk_token": "<unk>"}
}"#;

struct Case {
    folder: tempfile::TempDir,
    settings: SourceSettings,
}

impl Case {
    fn new(seq_len: usize, vocab_size: usize) -> Case {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokenizer.json");
        std::fs::write(&path, TOKENIZER).unwrap();
        let tokenizer = TokenizerSettings { path, cache: folder.path().join("cache") };
        let shape = BatchShape { batch_size: 1, seq_len };
        let settings = SourceSettings { tokenizer: Some(tokenizer), ..SourceSettings::new(shape, vocab_size, 42) };
        Case { folder, settings }
    }

    fn write(&self, text: &[u8]) -> PathBuf {
        let path = self.folder.path().join("text.txt");
        std::fs::write(&path, text).unwrap();
        path
    }

    fn open(&self, text: &Path) -> Result<Source, DataError> {
        Source::open(&DataSpec::Text { path: text.to_path_buf() }, &self.settings)
    }

    fn cached(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.folder.path().join("cache")).into_iter().flatten();
        entries.map(|entry| entry.unwrap().path()).collect()
    }
}

fn first_batch(source: &Source) -> Batch {
    let mut batch = Batch::new(source.shape());
    source.fill(0, &mut batch).unwrap();
    batch
}

#[test]
fn text_becomes_the_tokenizers_ids() {
    let case = Case::new(4, 4);
    let batch = first_batch(&case.open(&case.write(b"one two\nthree four one")).unwrap());
    assert_eq!((batch.input_ids, batch.targets), (vec![1, 2, 3, 0], vec![2, 3, 0, 1]));
    let single = Case::new(1, 4);
    let error = single.open(&single.write(b"three")).unwrap_err().to_string();
    assert!(error.contains("1 tokens"), "a text of one word is not cut: {error}");
}

#[test]
fn a_long_text_is_cut_in_pieces_without_losing_or_splitting_a_word() {
    for separator in ["\n", " "] {
        let words = 700_000; // 2.8 MB and more: several pieces
        let case = Case::new(words - 1, 4);
        let text = ["one", "two", "three"].iter().cycle().take(words).copied().collect::<Vec<_>>().join(separator);
        let batch = first_batch(&case.open(&case.write(text.as_bytes())).unwrap());
        assert!(batch.input_ids.iter().enumerate().all(|(i, id)| *id == (i % 3) as i32 + 1), "{separator:?}");
    }
}

#[test]
fn the_tokens_are_kept_until_text_or_tokenizer_change() {
    let case = Case::new(2, 9);
    let text = case.write(b"one two three");
    case.open(&text).unwrap();
    let made = case.cached();
    assert_eq!(made.len(), 1);
    std::fs::write(&made[0], [3u8, 0, 0, 0].repeat(3)).unwrap();
    assert_eq!(first_batch(&case.open(&text).unwrap()).input_ids, [3, 3], "read from the kept file");
    let text = case.write(b"two two three one");
    assert_eq!(first_batch(&case.open(&text).unwrap()).input_ids[0], 2);
    assert_eq!(case.cached().len(), 2);
}

#[test]
fn documents_of_a_corpus_end_with_the_tokenizers_own_token_where_it_has_one() {
    for (name, ends, want) in [("</s>", 1, vec![1, 2, 4, 3, 0, 4]), ("<other>", 0, vec![1, 2, 3, 0])] {
        let mut case = Case::new(want.len() - 1, 5);
        let tokenizer = TOKENIZER.replace("\"three\": 3", &format!("\"three\": 3, \"{name}\": 4"));
        std::fs::write(case.folder.path().join("tokenizer.json"), tokenizer).unwrap();
        case.settings.corpus.cache = Some(case.folder.path().join("cache"));
        let path = case.folder.path().join("lines.jsonl");
        std::fs::write(&path, "{\"text\": \"one two\"}\n{\"text\": \"three four\"}\n").unwrap();
        let source = Source::open(&DataSpec::parse(path.to_str().unwrap()).unwrap(), &case.settings).unwrap();
        let batch = first_batch(&source);
        assert_eq!([&batch.input_ids[..], &batch.targets[want.len() - 2..]].concat(), want);
        assert_eq!(source.bytes_per_token(), Some(17.0 / want.len() as f64));
        assert_eq!(source.description().contains("</s> after each document"), ends == 1, "{}", source.description());
        let tokens = case.cached().into_iter().find(|path| path.extension().unwrap() == "tokens").unwrap();
        assert_eq!(std::fs::metadata(tokens).unwrap().len(), 2 * want.len() as u64, "two bytes per token");
        // Another tokenizer gets another file.
        std::fs::write(case.folder.path().join("tokenizer.json"), TOKENIZER).unwrap();
        Source::open(&DataSpec::parse(path.to_str().unwrap()).unwrap(), &case.settings).err();
        assert_eq!(case.cached().len(), 4);
    }
}

#[test]
fn a_small_vocabulary_a_broken_tokenizer_and_bytes_that_are_no_text_are_refused() {
    let refused = |case: &Case, text: &[u8], words: &[&str]| {
        let error = case.open(&case.write(text)).unwrap_err().to_string();
        for word in words {
            assert!(error.contains(word), "`{word}` is not in: {error}");
        }
        assert!(case.cached().is_empty(), "nothing half-made is kept");
    };
    let too_small = ["tokenizer.json", "ids up to 3", "at least 4", "the model's has 3", "--vocab-size 4"];
    refused(&Case::new(1, 3), b"one two", &too_small);
    refused(&Case::new(1, 4), b"one \xff two", &["text.txt", "UTF-8", "byte 4"]);
    refused(&Case::new(1, 4), b"one\0two", &["text.txt", "byte 3"]);
    let broken = Case::new(1, 4);
    std::fs::write(broken.folder.path().join("tokenizer.json"), "{\"model\": 3}").unwrap();
    refused(&broken, b"one two", &["tokenizer.json"]);
    std::fs::remove_file(broken.folder.path().join("tokenizer.json")).unwrap();
    refused(&broken, b"one two", &["tokenizer.json"]);
    let short = Case::new(5, 4);
    let error = short.open(&short.write(b"one two")).unwrap_err().to_string();
    assert!(error.contains("2 tokens") && error.contains("needs 6"), "{error}");
}

#[test]
fn a_text_is_neither_truncated_nor_padded_whatever_the_file_says() {
    let case = Case::new(5, 4);
    let truncating = r#""truncation": {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0},
        "padding": {"strategy": {"Fixed": 64}, "direction": "Right", "pad_to_multiple_of": null, "pad_id": 0,
        "pad_type_id": 0, "pad_token": "<unk>"}"#;
    let tokenizer = TOKENIZER.replace(r#""truncation": null, "padding": null"#, truncating);
    assert_ne!(tokenizer, TOKENIZER);
    std::fs::write(case.folder.path().join("tokenizer.json"), tokenizer).unwrap();
    let source = case.open(&case.write(b"one two three two one two")).unwrap();
    let batch = first_batch(&source);
    assert_eq!((batch.input_ids, batch.targets), (vec![1, 2, 3, 2, 1], vec![2, 3, 2, 1, 2]));
    assert!(source.description().contains(", 6 tokens"), "{}", source.description());
    assert_eq!(source.ids_of_text(), Some(4));
}
