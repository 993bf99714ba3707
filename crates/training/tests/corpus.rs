//! Folders, patterns and JSONL files as their users see them: documents in order, every window once per epoch, a cache
//! that is rebuilt when it does not match, and what is refused.

use std::collections::HashSet;
use std::fs;
use std::path::PathBuf;

use headroom_training::data::{
    Batch, BatchShape, CorpusSettings, DataError, DataSpec, Part, Source, SourceSettings, Split,
};

struct Place {
    folder: tempfile::TempDir,
    settings: SourceSettings,
}

impl Place {
    fn new(batch_size: usize, seq_len: usize) -> Place {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("texts")).unwrap();
        let corpus = CorpusSettings { cache: Some(folder.path().join("cache")), ..CorpusSettings::default() };
        let shape = BatchShape { batch_size, seq_len };
        let settings = SourceSettings { corpus, ..SourceSettings::new(shape, 256, 42) };
        Place { folder, settings }
    }

    fn write(&self, name: &str, bytes: impl AsRef<[u8]>) {
        let path = self.folder.path().join("texts").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    fn open_with(&self, given: &str, settings: &SourceSettings) -> Result<Source, DataError> {
        Source::open(&DataSpec::parse(self.folder.path().join(given).to_str().unwrap())?, settings)
    }

    fn open(&self, given: &str) -> Source {
        self.open_with(given, &self.settings).unwrap()
    }

    fn refuses(&self, given: &str, words: &[&str]) {
        let error = self.open_with(given, &self.settings).unwrap_err().to_string();
        for word in words {
            assert!(error.contains(word), "`{word}` is not in: {error}");
        }
        assert!(self.cached().is_empty(), "nothing half-made is kept: {:?}", self.cached());
    }

    fn cached(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.folder.path().join("cache")).into_iter().flatten();
        let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        paths
    }

    /// Every token of the part, reassembled from its windows.
    fn text(&self, source: &Source) -> String {
        let windows = source.windows_per_epoch().unwrap();
        assert_eq!(source.shape().batch_size, 1);
        let mut pieces: Vec<Vec<u8>> = (0..windows).map(|position| bytes(&batch_at(source, position))).collect();
        // Neighbouring windows share a token: the first window is the one whose first token ends no other.
        let mut text = vec![];
        let follows = |text: &[u8], piece: &[u8]| text.is_empty() || text.last() == piece.first();
        pieces.sort();
        while !pieces.is_empty() {
            let next = pieces.iter().position(|piece| follows(&text, piece)).unwrap();
            let piece = pieces.remove(next);
            text.extend_from_slice(&piece[usize::from(!text.is_empty())..]);
        }
        String::from_utf8(text).unwrap()
    }
}

fn batch_at(source: &Source, position: u64) -> Batch {
    let mut batch = Batch::new(source.shape());
    source.fill(position, &mut batch).unwrap();
    batch
}

/// Inputs and the last target, of a batch of one.
fn bytes(batch: &Batch) -> Vec<u8> {
    batch.input_ids.iter().chain(batch.targets.last()).map(|id| *id as u8).collect()
}

#[test]
fn documents_follow_each_other_in_the_order_of_their_names_each_with_an_end() {
    let place = Place::new(1, 1);
    place.write("b.txt", "efg");
    place.write("a.jsonl", "{\"id\": 1, \"text\": \"ab\"}\n\n{\"text\": \"\"}\n{\"text\": \"cd\"}");
    place.write("c/d.md", "hi");
    place.write(".hidden", "xx");
    let source = place.open("texts");
    // Letters ascend, so pairs of neighbours can be sorted by their first letters.
    let mut pairs: Vec<Vec<u8>> =
        (0..source.windows_per_epoch().unwrap()).map(|at| bytes(&batch_at(&source, at))).collect();
    pairs.sort();
    let wanted = ["\0c", "\0e", "\0h", "ab", "b\0", "cd", "d\0", "ef", "fg", "g\0", "hi", "i\0"];
    assert!(pairs.iter().eq(wanted.iter().map(|pair| pair.as_bytes())), "{pairs:?}");
    let description = source.description();
    assert!(description.contains("3 files, 4 documents, 13 byte tokens, seed 42"), "{description}");
    assert_eq!(source.bytes_per_token(), Some(9.0 / 13.0));
}

#[test]
fn another_column_is_read_where_it_is_named() {
    let mut place = Place::new(1, 3);
    place.write("a.jsonl", "{\"body\": \"abc\", \"text\": \"xyz\"}\n");
    assert_eq!(bytes(&batch_at(&place.open("texts/a.jsonl"), 0)), b"xyz\0");
    place.settings.corpus.text_column = Some("body".into());
    assert_eq!(bytes(&batch_at(&place.open("texts/*.jsonl"), 0)), b"abc\0");
}

#[test]
fn an_epoch_reads_every_window_once_and_the_next_in_another_order() {
    let place = Place::new(3, 4);
    for name in 0..7u8 {
        let letter = |at: u32| b'0' + ((u32::from(name) * 40 + at).wrapping_mul(2_654_435_761) >> 16) as u8 % 75;
        place.write(&format!("{name}.txt"), (0..40).map(letter).collect::<Vec<u8>>());
    }
    let source = place.open("texts");
    let windows = source.windows_per_epoch().unwrap();
    assert_eq!(windows, (7 * 41 - 1) / 4);
    let sample = |number: u64| {
        let batch = batch_at(&source, number / 3);
        batch.input_ids[number as usize % 3 * 4..][..4].to_vec()
    };
    let epoch = |epoch: u64| (0..windows).map(|at| sample(epoch * windows + at)).collect::<Vec<_>>();
    let (first, second) = (epoch(0), epoch(1));
    assert_ne!(first, second);
    let set = |epoch: &[Vec<i32>]| epoch.iter().cloned().collect::<HashSet<_>>();
    assert_eq!(set(&first), set(&second));
    assert_eq!(set(&first).len() as u64, windows, "every window is different in this text");
    let reseeded = place.open_with("texts", &SourceSettings { seed: 43, ..place.settings.clone() }).unwrap();
    assert_ne!(batch_at(&reseeded, 0), batch_at(&source, 0));
}

#[test]
fn the_held_out_end_is_never_trained_on() {
    let mut place = Place::new(1, 4);
    let text: String = (0..1000u32).map(|at| char::from(b'!' + (at * at % 90) as u8)).collect();
    place.write("a.txt", &text);
    for given in ["texts", "texts/a.txt"] {
        place.settings.part = Part::AllButLast(0.05);
        let training = place.open(given);
        // A corpus also has an end-of-document token, and holds out one token more.
        let cut = 950;
        let end = &text.as_bytes()[cut - 4..];
        for position in 0..3000 {
            let window = bytes(&batch_at(&training, position));
            let trained = text.as_bytes()[..cut].windows(5).any(|known| known == window);
            assert!(trained || end.windows(5).all(|known| known != window), "{given}: {window:?} was held out");
        }
        assert!(training.description().contains("held out"), "{}", training.description());
        let held_out = SourceSettings { part: Part::Last(0.05), split: Split::Evaluation, ..place.settings.clone() };
        let evaluation = place.open_with(given, &held_out).unwrap();
        let windows = evaluation.windows_per_epoch().unwrap();
        assert_eq!(windows, (if given == "texts" { 51 } else { 50 } - 1) / 4);
        let read: HashSet<Vec<u8>> = (0..windows).map(|position| bytes(&batch_at(&evaluation, position))).collect();
        let wanted = text.as_bytes()[cut..].chunks(4).take(windows as usize);
        assert!(
            wanted
                .enumerate()
                .all(|(at, chunk)| { read.iter().any(|window| window[..4] == *chunk) || at as u64 == windows })
        );
    }
    place.settings.shape.seq_len = 990;
    let error = place.open_with("texts/a.txt", &place.settings).unwrap_err().to_string();
    assert!(error.contains("beside the 5% held out") && error.contains("--eval-data"), "{error}");
}

#[test]
fn the_tokens_are_kept_until_a_file_changes_and_made_again_where_they_do_not_fit() {
    let place = Place::new(1, 8);
    place.write("a.txt", "abcdefghijklmnopqrstuvwxyz");
    let whole = place.text(&place.open("texts"));
    let [index, tokens] = &place.cached()[..] else { panic!("{:?}", place.cached()) };
    let kept = [fs::read(index).unwrap(), fs::read(tokens).unwrap()];
    // The cached tokens are the ones that are read.
    fs::write(tokens, kept[1].to_ascii_uppercase()).unwrap();
    assert_eq!(place.text(&place.open("texts")), whole.to_ascii_uppercase());
    // A truncated file, a truncated index, another key, no index: each is rebuilt.
    let last = kept[0].len() - 1;
    let other_key = String::from_utf8_lossy(&kept[0][..40]).replace("key\":\"", "key\":\"x").into_bytes();
    for (damaged, content) in [
        (tokens, Some(&kept[1][..20])),
        (index, Some(&kept[0][..last])),
        (index, Some(&kept[0][..10])),
        (index, Some(&other_key[..])),
        (index, Some(b"".as_slice())),
        (index, None),
        (tokens, None),
    ] {
        match content {
            Some(content) => fs::write(damaged, content).unwrap(),
            None => fs::remove_file(damaged).unwrap(),
        }
        assert_eq!(place.text(&place.open("texts")), whole);
        assert_eq!([fs::read(index).unwrap(), fs::read(tokens).unwrap()], kept);
    }
    place.write("a.txt", "zyxwvutsrqponmlkjihgfedcba!");
    assert_ne!(place.open("texts").description(), "");
    assert_eq!(place.cached().len(), 4, "another file, another name");
}

#[test]
fn what_cannot_be_read_is_refused_by_file_and_place() {
    let place = Place::new(1, 4);
    place.refuses("texts", &["texts", "holds no file"]);
    place.refuses("texts/*.txt", &["*.txt", "holds no file"]);
    place.write("empty.txt", "");
    place.refuses_too_short();
    place.write("a.txt", "words and words");
    place.write("picture.png", b"\x89PNG\r\n\x1a\n\0\0");
    place.refuses("texts", &["picture.png", "byte 0 is not UTF-8", "*.txt"]);
    place.write("picture.png", b"words\0");
    place.refuses("texts", &["picture.png", "byte 5 is 0"]);
    for (line, words) in [
        ("{\"body\": \"x\", \"n\": 1}", &["line 2", "no column `text`", "--text-column names one of body"][..]),
        ("{\"n\": 1}", &["line 2", "no column `text`", "nothing in it is text", "`n` (a number)"]),
        ("{}", &["line 2", "no column `text`", "help: every line"]),
        (
            "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", \"content\": \"b\"}]}",
            &["line 2", "no column `text`", "a chat in `messages`", "{text: [.messages[].content] | join(\"\\n\")}"],
        ),
        (
            "{\"id\": \"7\", \"conversations\": [{\"from\": \"human\", \"value\": \"a\"}]}",
            &["line 2", "a chat in `conversations`", "[.conversations[].value]", "apply_chat_template"],
        ),
        (
            "{\"prompt\": \"a\", \"completion\": \"b\"}",
            &["line 2", "a pair, `prompt` and `completion`", "(.prompt + \"\\n\" + .completion)"],
        ),
        ("{\"messages\": [1]}", &["line 2", "nothing in it is text", "`messages` (a list)"]),
        (
            "{\"text\": [{\"role\": \"user\", \"content\": \"a\"}]}",
            &["a list in the column `text`", "[.text[].content]"],
        ),
        ("{\"text\": 5}", &["line 2", "a number in the column `text`"]),
        ("[1, 2]", &["line 2", "not a JSON object"]),
        ("{\"text\": \"x", &["line 2", "not a JSON object"]),
    ] {
        place.write("lines.jsonl", format!("{{\"text\": \"good\"}}\n{line}\n"));
        place.refuses("texts/lines.jsonl", &[&["lines.jsonl"], words].concat());
    }
    let mut column = Place::new(1, 4);
    column.write("a.txt", "words and words");
    column.settings.corpus.text_column = Some("body".into());
    column.refuses("texts", &["--text-column body", "no JSONL file"]);
    let mut small = Place::new(1, 4);
    small.write("a.txt", "words and words");
    small.settings.vocab_size = 255;
    small.refuses("texts", &["at least 256"]);
    let mut nowhere = Place::new(1, 4);
    nowhere.write("a.txt", "words and words");
    nowhere.settings.corpus.cache = None;
    nowhere.refuses("texts", &["HEADROOM_HOME"]);
}

impl Place {
    fn refuses_too_short(&self) {
        let error = self.open_with("texts", &self.settings).unwrap_err().to_string();
        assert!(error.contains("has 0 tokens") && error.contains("needs 5"), "{error}");
        fs::remove_dir_all(self.folder.path().join("cache")).unwrap();
    }
}

#[test]
fn whatever_bytes_are_kept_or_given_a_corpus_is_opened_or_refused() {
    let place = Place::new(2, 4);
    let lines =
        b"{\"text\": \"one two three\", \"n\": [1, {\"text\": 2}]}\n{\"text\": \"four \\u00e4 five\"}\n".repeat(3);
    place.write("lines.jsonl", &lines);
    place.open("texts");
    let [index, tokens] = &place.cached()[..] else { panic!("{:?}", place.cached()) };
    let kept = [fs::read(index).unwrap(), fs::read(tokens).unwrap()];
    // Documents out of order.
    let rows = 1 + kept[0].iter().position(|byte| *byte == b'\n').unwrap();
    let mut swapped = kept[0].clone();
    swapped[rows..].rotate_left(16);
    fs::write(index, &swapped).unwrap();
    assert!(place.open("texts").bytes_per_token().is_some() && fs::read(index).unwrap() == kept[0]);
    let mut random = fastrand::Rng::with_seed(7);
    let mut damaged = |bytes: &[u8]| {
        let mut bytes = bytes.to_vec();
        for _ in 0..random.usize(1..4) {
            let at = random.usize(..bytes.len());
            match random.u8(..3) {
                0 => bytes[at] = random.u8(..),
                1 => bytes.truncate(at + 1),
                _ => bytes.insert(at, random.u8(..)),
            }
        }
        bytes
    };
    for _ in 0..300 {
        fs::write(index, damaged(&kept[0])).unwrap();
        fs::write(tokens, damaged(&kept[1])).unwrap();
        // Any bytes may be read, since the file may hold any; reading them never panics.
        let source = place.open("texts");
        let mut batch = Batch::new(source.shape());
        for position in [0, 1, u64::MAX] {
            let _ = source.fill(position, &mut batch);
        }
        let _ = source.bytes_per_token();
        let held_out = SourceSettings { part: Part::Last(0.3), ..place.settings.clone() };
        let _ = place.open_with("texts", &held_out).map(|source| source.description());
    }
    for _ in 0..300 {
        place.write("lines.jsonl", damaged(&lines));
        if let Ok(source) = place.open_with("texts", &place.settings) {
            batch_at(&source, 3);
        }
    }
}
