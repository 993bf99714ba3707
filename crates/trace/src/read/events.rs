//! The list of events, block by block: joins events split across blocks, and resumes after damage in linear time.

use std::mem;

use super::event::next_candidate;
use super::fragment::{End, Fragment};
use super::json::Cursor;

/// Larger than any real event: anything longer is damage.
const LARGEST_EVENT_BYTES: usize = 16 << 20;

/// Larger than any real header or trailer.
pub const MOST_BYTES_BESIDE_EVENTS: usize = 256 << 20;

/// How many searches for objects that never end are allowed over the rest of the text. Damage takes one or two; text
/// crafted to take more is given up.
const MOST_SEARCHES: u32 = 8;

#[derive(Default)]
pub struct Events {
    pub sum: Fragment,
    /// The start of an event that continues beyond the blocks so far.
    rest: Vec<u8>,
    /// The last bytes before text in which no event was found, where the next event's start may depend on them.
    lost_after: Option<Vec<u8>>,
    /// The text after the list, once it was closed.
    pub trailer: Option<Vec<u8>>,
}

impl Events {
    /// Adds the next block, with `fragment` parsed from it as if it began at an event. Where it does not, it is parsed
    /// again together with the rest of the previous block.
    pub fn add(&mut self, mut block: Vec<u8>, mut fragment: Fragment) {
        if let Some(trailer) = &mut self.trailer {
            if trailer.len() < MOST_BYTES_BESIDE_EVENTS {
                trailer.extend_from_slice(&block);
            }
            return;
        }
        if let Some(before) = self.lost_after.take() {
            block.splice(..0, before);
            let Some(next) = next_candidate(&block, 0) else {
                self.lost_after = Some(possible_start(&block));
                return;
            };
            block.drain(..next);
            fragment = Fragment::read(&block);
        } else if !self.rest.is_empty() {
            self.rest.extend_from_slice(&block);
            block = mem::take(&mut self.rest);
            fragment = Fragment::read(&block);
        }
        let end = fragment.end();
        self.sum.append(fragment);
        match end {
            End::Between => {}
            End::Closed(at) => self.trailer = Some(block.split_off(at)),
            End::Within(at) => self.rest = block.split_off(at),
        }
        if self.rest.len() > LARGEST_EVENT_BYTES {
            self.read_on(More::Follows);
        }
    }

    /// Ends the list after the last block: an event that does not end may hide others behind it.
    pub fn finish(&mut self) {
        if !self.rest.is_empty() {
            self.read_on(More::Never);
        }
    }

    /// Skips the event at the start of `rest`, which does not end, and reads on from the next places where one may
    /// begin. If there is no such place, the text was cut there.
    fn read_on(&mut self, more: More) {
        let text = mem::take(&mut self.rest);
        let may_go_on = |start: usize| more == More::Follows && text.len() - start <= LARGEST_EVENT_BYTES;
        let mut endless = Endless::default();
        let mut found = Fragment::default();
        let mut start = 0;
        let end = loop {
            if !endless.learn(&text, start) {
                break End::Within(start);
            }
            let Some(next) = next_candidate(&text, start + 1) else { break End::Within(start) };
            found.reading_mut().damaged_events += 1;
            match found.read_more(&text, next, &endless.starts) {
                End::Within(at) if may_go_on(at) => break End::Within(at),
                End::Within(at) => start = at,
                end => break end,
            }
        };
        self.sum.append(found);
        match end {
            End::Between => {}
            End::Closed(at) => self.trailer = Some(text[at..].to_vec()),
            End::Within(at) if may_go_on(at) => self.rest = text[at..].to_vec(),
            End::Within(_) if more == More::Never => {}
            End::Within(_) => {
                self.sum.reading_mut().damaged_events += 1;
                self.lost_after = Some(possible_start(&text));
            }
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum More {
    Follows,
    Never,
}

/// The `}`, or `}` and `,`, at the end of `text`: an event may begin right after it.
fn possible_start(text: &[u8]) -> Vec<u8> {
    let text = text.trim_ascii_end();
    match text.strip_suffix(b",").map(<[u8]>::trim_ascii_end) {
        Some(before) if before.ends_with(b"}") => b"},".to_vec(),
        None if text.ends_with(b"}") => b"}".to_vec(),
        _ => Vec::new(),
    }
}

/// The objects of a text that never end, among those found outside strings.
#[derive(Default)]
struct Endless {
    /// Sorted by offset.
    starts: Vec<u32>,
    searches: u32,
}

impl Endless {
    /// Adds the unterminated objects from `start` on that lie outside strings as seen from there. Returns `false` once
    /// the number of searches is used up.
    fn learn(&mut self, text: &[u8], start: usize) -> bool {
        if self.starts.binary_search(&(start as u32)).is_ok() {
            return true;
        }
        if self.searches == MOST_SEARCHES {
            return false;
        }
        self.searches += 1;
        self.starts.extend(endless_objects(text, start));
        self.starts.sort_unstable();
        self.starts.dedup();
        true
    }
}

/// Objects from `from` on that do not end before the text does. Only objects after a comma or another object count: an
/// event may begin there.
fn endless_objects(text: &[u8], from: usize) -> Vec<u32> {
    let mut cursor = Cursor { text, at: from };
    let mut open: Vec<(u32, u32)> = Vec::new();
    let (mut depth, mut before) = (0u32, b',');
    while let Some(&byte) = text.get(cursor.at) {
        match byte {
            b'"' => {
                if cursor.string().is_err() {
                    break;
                }
                before = b'"';
                continue;
            }
            b' ' | b'\n' | b'\r' | b'\t' => {
                cursor.at += 1;
                continue;
            }
            b'{' => {
                if matches!(before, b',' | b'}') {
                    open.push((cursor.at as u32, depth));
                }
                depth += 1;
            }
            b'[' => depth += 1,
            b']' | b'}' => {
                depth = depth.saturating_sub(1);
                while open.last().is_some_and(|&(_, outside)| outside >= depth) {
                    open.pop();
                }
            }
            _ => {}
        }
        before = byte;
        cursor.at += 1;
    }
    open.into_iter().map(|(at, _)| at).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The names of all spans and the number of damaged events, for blocks added one by one.
    fn names_of(blocks: &[&str]) -> (Vec<String>, u64) {
        let mut events = Events::default();
        for block in blocks {
            events.add(block.as_bytes().to_vec(), Fragment::read(block.as_bytes()));
        }
        events.finish();
        let trace = events.sum.into_trace();
        (trace.host.name.iter().map(|id| trace.name(*id).to_string()).collect(), trace.reading.damaged_events)
    }

    fn span(name: &str) -> String {
        format!(r#"{{"ph":"X","name":"{name}","pid":1,"tid":1,"ts":1,"dur":1}}"#)
    }

    #[test]
    fn objects_that_end_are_told_from_those_that_do_not() {
        let text = br#"{"x":[{},{"y":1},{"z":"},{",{}"#;
        assert_eq!(endless_objects(text, 0), [0, 17]);
        assert_eq!(endless_objects(b"{} {\"a\": [}, {", 0), [3, 13]);
        assert_eq!(endless_objects(b"{\"open: {},{", 0), [0]);
    }

    #[test]
    fn sound_events_between_endless_ones_are_all_found() {
        let one = |index: usize| format!(r#"{{"x":[{{}},{},"#, span(&index.to_string()));
        let text: String = (0..2_000).map(one).collect();
        let (names, damaged) = names_of(&[&text]);
        assert_eq!(names, (0..2_000).map(|index| index.to_string()).collect::<Vec<_>>());
        assert!(damaged >= 2_000);
    }

    #[test]
    fn an_event_larger_than_any_is_left_out_and_the_next_one_read() {
        let head = r#"{"ph":"X","pid":1,"tid":1,"ts":1,"dur":1,"name":""#;
        let part = "x".repeat(9 << 20);
        let (first, last) =
            (format!("{},{head}{part}", span("a")), format!("{part}\"}} , {},{}", span("b"), span("c")));
        let (names, damaged) = names_of(&[&first, &part, &part, &last]);
        assert_eq!(names, ["a", "b", "c"]);
        assert_eq!(damaged, 1);
    }

    #[test]
    fn the_start_of_an_event_is_found_across_blocks() {
        let head = format!(r#"{{"name":"{}"#, "x".repeat(17 << 20));
        for (left, right) in [("}", ","), ("} ,", " "), ("} , ", ""), ("", "\"},"), ("} ", " , ")] {
            let events = format!("{right}{},{}]", span("first"), span("next"));
            let (names, _) = names_of(&[&format!("{head}{left}"), &events]);
            assert_eq!(names, ["first", "next"], "{left} {right}");
        }
    }

    #[test]
    fn text_made_to_be_searched_again_and_again_is_given_up() {
        // Each object opens a string that hides the next object from all earlier ones.
        let text: String = (0..1_000).map(|_| "{\"a\":[{},{\"b\":\" \\").collect();
        let mut events = Events { rest: text.into_bytes(), ..Events::default() };
        events.finish();
        assert!(events.sum.reading_mut().damaged_events <= 2_000);
    }
}
