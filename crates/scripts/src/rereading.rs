//! The gate for batches that loader workers delivered: they are what the unmodified script reads itself.

use crate::note::{Note, Reread};
use headroom_record::gate::{Answer, Gate};

/// Judges what the proof runs of a variant with other workers read again. Nothing read is nothing proved, except for
/// iterable data sets, which cannot be read twice.
pub fn loading(proofs: &[Note]) -> Gate {
    let loaders = || proofs.iter().flat_map(|note| &note.loaders);
    let all: Vec<&Reread> = loaders().filter_map(|loader| loader.reread.as_ref()).collect();
    let sum = |read: fn(&Reread) -> u64| all.iter().map(|one| read(one)).sum::<u64>();
    let (samples, different) = (sum(|one| one.samples), sum(|one| one.different));
    let is_unread = |loader: &&crate::note::Loader| loader.reread.as_ref().is_some_and(|one| one.batches > 0);
    let is_iterable = loaders().any(|loader| loader.iterable && loader.reread.is_some());
    let answer = match () {
        () if different > 0 => Answer::Fail,
        () if is_iterable || loaders().any(|loader| is_unread(&loader)) => Answer::Pass,
        () => Answer::Undecided,
    };
    let about = about(&all, samples, sum(|one| one.batches), (sum(|one| one.partly), sum(|one| one.unread)));
    Gate { name: "loading", answer, figure: different as f64, limit: 0.0, about, interval: None }
}

fn about(all: &[&Reread], samples: u64, batches: u64, (partly, unread): (u64, u64)) -> String {
    let mut text = format!(
        "samples of loader workers that differ from what the script reads itself, of {samples} read again ({batches} batches)"
    );
    let mut say = |what: String| text = format!("{text}; {what}");
    all.iter().flat_map(|one| &one.fields).for_each(|field| say(field.clone()));
    all.iter().filter_map(|one| one.example.clone()).take(1).for_each(&mut say);
    let why = all.iter().find_map(|one| one.why.clone()).unwrap_or_default();
    if partly > 0 {
        say(format!("of {partly} samples only the parts that repeat were compared: {why}"));
    }
    if unread > 0 {
        say(format!(
            "{unread} batches were not read again ({why}): their shapes, labels and order are compared under `batches`"
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::note::Loader;

    fn gate(reread: Option<Reread>, iterable: bool) -> Gate {
        loading(&[Note { loaders: vec![Loader { reread, iterable, ..Loader::default() }], ..Note::default() }])
    }

    #[test]
    fn a_sample_that_differs_fails_and_its_cause_is_named() {
        let same = Reread { batches: 6, samples: 48, ..Reread::default() };
        assert_eq!(gate(Some(same.clone()), false).answer, Answer::Pass);
        let fields = vec!["`level` is 0 in the workers and 3 in the script".to_string()];
        let example = Some("sample 17 is int 1 from the workers and int 2 from the script".to_string());
        let wrong = gate(Some(Reread { different: 5, fields, example, ..same }), false);
        assert_eq!((wrong.answer, wrong.figure, wrong.limit), (Answer::Fail, 5.0, 0.0));
        assert!(wrong.about.contains("of 48 read again (6 batches); `level` is 0 in the workers"), "{}", wrong.about);
        assert!(wrong.about.ends_with("int 2 from the script"));
    }

    #[test]
    fn what_was_not_read_again_proves_nothing_and_is_said() {
        assert_eq!(gate(None, false).answer, Answer::Undecided);
        let unread = || Reread { unread: 4, why: Some("no answer within 15 s".into()), ..Reread::default() };
        assert_eq!(gate(Some(unread()), false).answer, Answer::Undecided);
        let iterable = gate(Some(unread()), true);
        assert_eq!(iterable.answer, Answer::Pass, "its batches are compared instead");
        assert!(iterable.about.contains("4 batches were not read again (no answer within 15 s)"), "{}", iterable.about);
        let partly = gate(Some(Reread { batches: 2, samples: 8, partly: 8, ..unread() }), false);
        assert!(partly.answer == Answer::Pass && partly.about.contains("of 8 samples only the parts that repeat"));
    }
}
