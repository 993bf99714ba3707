//! Data that must stay the same from version to version, and its descriptions.

use super::*;
use std::path::Path;

fn settings(batch_size: usize, seq_len: usize, vocab_size: usize) -> SourceSettings {
    SourceSettings::new(BatchShape { batch_size, seq_len }, vocab_size, 42)
}

fn first_ids(spec: &DataSpec, settings: &SourceSettings, position: u64) -> Vec<i32> {
    let source = Source::open(spec, settings).unwrap();
    let mut batch = Batch::new(source.shape());
    source.fill(position, &mut batch).unwrap();
    batch.input_ids
}

/// A run resumed by a later version must read on where it was: the result of a seed and position must never change.
#[test]
fn a_seed_gives_the_same_samples_in_every_version() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tokens.u16");
    let bytes: Vec<u8> = (0..500u16).flat_map(|id| id.to_le_bytes()).collect();
    std::fs::write(&path, bytes).unwrap();
    let tokens = DataSpec::Tokens { path, width: TokenWidth::U16 };
    let settings = settings(2, 5, 1000);
    let of = |spec: &DataSpec, settings: &SourceSettings| -> [Vec<i32>; 2] {
        [0, 1000].map(|position| first_ids(spec, settings, position))
    };
    let starts = |part: Part| -> Vec<i32> {
        let settings = SourceSettings { part, ..settings.clone() };
        (0..4).flat_map(|at| first_ids(&tokens, &settings, at)).step_by(5).collect()
    };
    let found = [
        of(&DataSpec::Synthetic, &settings),
        of(&DataSpec::Markov, &settings),
        of(&DataSpec::Markov, &SourceSettings { vocab_size: 6, split: Split::Evaluation, ..settings.clone() }),
        // Random windows, and the held-out end window by window in a shuffled order.
        [starts(Part::Whole), starts(Part::AllButLast(0.2))],
        [starts(Part::Last(0.2)), starts(Part::Last(0.5))],
    ];
    let wanted = [
        [&[119, 571, 111, 754, 92, 414, 59, 46, 549, 111][..], &[2, 882, 904, 986, 360, 689, 945, 119, 64, 799]],
        [&[742, 382, 417, 855, 207, 375, 132, 89, 312, 855], &[976, 851, 804, 179, 308, 234, 58, 35, 839, 156]],
        [&[2, 4, 5, 3, 2, 3, 4, 0, 5, 1], &[0, 2, 1, 4, 5, 3, 0, 2, 2, 4]],
        [&[412, 284, 23, 50, 394, 371, 87, 4], &[329, 226, 18, 40, 314, 296, 69, 3]],
        [&[425, 405, 430, 435, 485, 465, 470, 440], &[405, 410, 280, 355, 335, 315, 320, 415]],
    ];
    assert_eq!(found, wanted);
}

#[test]
fn floors_are_those_of_the_generators() {
    let open = |spec: DataSpec| Source::open(&spec, &settings(2, 6, 101)).unwrap();
    assert_eq!(open(DataSpec::Synthetic).floor_nats(), Some(100f64.ln()));
    let markov = open(DataSpec::Markov).floor_nats().unwrap();
    assert!((0.9..1.3).contains(&markov), "{markov}");
    assert_eq!(open(DataSpec::Markov).description(), "markov, 101 states, vocabulary 101, seed 42");
    assert_eq!(open(DataSpec::Synthetic).description(), "synthetic, vocabulary 101, seed 42");
    assert_eq!((open(DataSpec::Synthetic).windows_per_epoch(), open(DataSpec::Markov).bytes_per_token()), (None, None));
}

#[test]
fn states_of_a_large_vocabulary_are_spread_over_it() {
    let ids: Vec<i32> = (0..40).flat_map(|at| first_ids(&DataSpec::Markov, &settings(16, 16, 2560), at)).collect();
    assert!(ids.iter().all(|id| id % 10 == 0 && (0..2560).contains(id)));
    assert!(ids.iter().any(|id| *id < 200) && ids.iter().any(|id| *id > 2300));
}

#[test]
fn texts_and_token_files_know_their_windows_and_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.txt");
    std::fs::write(&path, "x".repeat(100)).unwrap();
    let open = |part: Part| {
        Source::open(&DataSpec::Text { path: path.clone() }, &SourceSettings { part, ..settings(2, 6, 256) }).unwrap()
    };
    let (whole, train, last) = (open(Part::Whole), open(Part::AllButLast(0.2)), open(Part::Last(0.2)));
    assert_eq!([&whole, &train, &last].map(Source::windows_per_epoch), [None, None, Some(3)]);
    assert_eq!((whole.bytes_per_token(), whole.floor_nats()), (Some(1.0), None));
    assert_eq!(whole.description(), "text a.txt, 100 bytes as tokens, seed 42");
    assert_eq!(train.description(), "text a.txt, 100 bytes as tokens, seed 42, the last 20 held out");
    assert_eq!(last.description(), "text a.txt, 100 bytes as tokens, seed 42");
    assert_eq!(whole.shape(), BatchShape { batch_size: 2, seq_len: 6 });
    let tokens = folder.path().join("a.u32");
    std::fs::write(&tokens, [0; 80]).unwrap();
    let tokens = DataSpec::Tokens { path: tokens, width: TokenWidth::U32 };
    let tokens = Source::open(&tokens, &settings(2, 6, 256)).unwrap();
    assert_eq!(tokens.bytes_per_token(), None, "nobody knows the text");
    assert_eq!(tokens.description(), "token file a.u32, 20 tokens, seed 42");
    // A window and the token after it must fit.
    let text = |bytes: usize| {
        std::fs::write(&path, "x".repeat(bytes)).unwrap();
        Source::open(&DataSpec::Text { path: path.clone() }, &settings(1, 6, 256)).is_ok()
    };
    assert!(text(7) && !text(6));
}

#[test]
fn data_is_the_same_however_much_of_it_is_held_out() {
    let text = "text a, the last b.txt, 100 bytes as tokens, seed 42";
    for (one, other, same) in [
        (text, text, true),
        (text, &format!("{text}, the last 20 held out"), true),
        (&format!("{text}, the last 5 held out"), &format!("{text}, the last 20 held out"), true),
        (text, "text a, the last c.txt, 100 bytes as tokens, seed 42", false),
        (text, "text a", false),
        (text, "text a, the last held out", false),
        ("markov, 16 states, vocabulary 16, seed 1", "markov, 16 states, vocabulary 16, seed 2", false),
    ] {
        assert_eq!((is_same_data(one, other), is_same_data(other, one)), (same, same), "{one} and {other}");
    }
}

#[test]
fn parts_are_told_in_words() {
    assert_eq!([0.05, 0.0125, 0.5].map(percent), ["5%", "1.25%", "50%"]);
    assert_eq!(Part::Whole.words(), "");
    assert_eq!(Part::AllButLast(0.05).words(), " beside the 5% held out for evaluation");
    assert_eq!(Part::Last(0.1).words(), " in the 10% held out for evaluation");
}

#[test]
fn a_kind_of_data_says_what_can_be_done_with_it() {
    let path = || std::path::PathBuf::from("runs/a.bin");
    let tokens = DataSpec::Tokens { path: path(), width: TokenWidth::U16 };
    let kinds = [
        DataSpec::Synthetic,
        DataSpec::Markov,
        DataSpec::Text { path: path() },
        tokens.clone(),
        DataSpec::Batch { path: path() },
        DataSpec::Corpus { path: path() },
    ];
    assert_eq!(kinds.each_ref().map(DataSpec::is_text), [false, false, true, false, false, true]);
    assert_eq!(kinds.each_ref().map(DataSpec::has_parts), [false, false, true, true, false, true]);
    assert_eq!(kinds[..2].iter().map(ToString::to_string).collect::<Vec<_>>(), ["synthetic", "markov"]);
    assert_eq!(tokens.to_string(), "runs/a.bin");
    assert_eq!([TokenWidth::U8, TokenWidth::U16, TokenWidth::U32].map(TokenWidth::bytes), [1, 2, 4]);
    assert_eq!(TokenWidth::U32.decode(&[1, 2, 3, 4]), 0x0403_0201);
    assert_eq!(file_name(Path::new("runs/a.bin")), "a.bin");
}
