//! Answers fit, say what was cut, and the rest can be requested piece by piece.

use super::*;
use serde_json::json;

fn document() -> Value {
    let rows: Vec<Value> = (0..500).map(|row| json!({ "name": format!("aten::op_{row}"), "calls": row })).collect();
    json!({ "schema_version": 1, "interval": [0.1, 0.2], "measures": { "rows": rows }, "page": "a text" })
}

fn bytes(answer: &Answer) -> usize {
    serde_json::to_string(answer).unwrap().len()
}

fn page(arguments: Value) -> Page {
    Page::take(&mut arguments.as_object().unwrap().clone()).unwrap()
}

#[test]
fn a_document_that_fits_is_whole() {
    let answer = page(json!({})).of(document(), vec!["a note".into()], 0).unwrap();
    assert_eq!(answer.document, Some(document()));
    assert_eq!((answer.cut, answer.more), (vec![], None));
    assert_eq!(answer.notes, ["a note"]);
}

#[test]
fn long_lists_are_cut_to_fit_and_named() {
    for max_bytes in [2_000, 5_000, 9_999] {
        let answer = page(json!({ "max_bytes": max_bytes })).of(document(), vec![], 1).unwrap();
        assert!(bytes(&answer) <= max_bytes, "{} of {max_bytes}", bytes(&answer));
        assert!(bytes(&answer) > max_bytes / 2, "most of the room is used: {} of {max_bytes}", bytes(&answer));
        let shown = answer.document.as_ref().unwrap()["measures"]["rows"].as_array().unwrap().len();
        let at = "/measures/rows".to_string();
        assert_eq!(answer.cut, [Cut { at, shown, of: 500, unit: "items" }]);
        let more = answer.more.unwrap();
        assert!(more.contains(&format!("at=\"/measures/rows\" and from={shown}")), "{more}");
        assert_eq!(answer.document.unwrap()["interval"], json!([0.1, 0.2]));
        assert_eq!(answer.exit_code, 1);
    }
}

#[test]
fn pages_of_a_list_join_to_the_whole() {
    let (mut rows, mut asked) = (vec![], 0);
    while rows.len() < 500 {
        let next = page(json!({ "at": "/measures/rows", "from": rows.len(), "max_bytes": 4000 }));
        let answer = next.of(document(), vec![], 0).unwrap();
        assert!(bytes(&answer) <= 4000);
        if let [cut] = &answer.cut[..] {
            assert_eq!((cut.of, cut.at.as_str()), (500, "/measures/rows"));
        }
        let part = answer.part.unwrap();
        assert!(!part.as_array().unwrap().is_empty());
        rows.extend(part.as_array().unwrap().clone());
        asked += 1;
    }
    assert_eq!(json!(rows), document()["measures"]["rows"]);
    assert!(asked > 3);
}

#[test]
fn long_texts_are_cut_between_letters_and_can_be_read_on() {
    let text = "é".repeat(4000);
    let whole = json!({ "page": text });
    let first = page(json!({ "max_bytes": 3000 })).of(whole.clone(), vec![], 0).unwrap();
    assert!(bytes(&first) <= 3000);
    let shown = first.document.unwrap()["page"].as_str().unwrap().to_string();
    assert_eq!((first.cut[0].unit, first.cut[0].shown, first.cut[0].of), ("bytes", shown.len(), 8000));
    let rest = page(json!({ "at": "/page", "from": shown.len() })).of(whole, vec![], 0).unwrap();
    assert_eq!(shown + rest.part.unwrap().as_str().unwrap(), text);
}

#[test]
fn where_nothing_fits_the_parts_are_named_with_their_sizes() {
    let wide: Map<String, Value> = (0..300).map(|key| (format!("a/key {key}"), json!(key))).collect();
    let whole = json!({ "wide": wide, "small": 1 });
    let answer = page(json!({ "max_bytes": 2000 })).of(whole.clone(), vec![], 0).unwrap();
    assert!(bytes(&answer) <= 2000 && answer.document.is_none());
    let named: Vec<&str> = answer.cut.iter().map(|cut| cut.at.as_str()).collect();
    assert_eq!(named, ["/wide", "/small"]);
    let inner = page(json!({ "at": "/wide", "max_bytes": 2000 })).of(whole.clone(), vec![], 0).unwrap();
    assert!(bytes(&inner) <= 2000);
    assert_eq!(inner.cut[0].at, "/wide/a~1key 0");
    assert_eq!(inner.cut_elsewhere, 300 - MOST_PLACES);
    let one = page(json!({ "at": "/wide/a~1key 7" })).of(whole, vec![], 0).unwrap();
    assert_eq!(one.part, Some(json!(7)));
}

#[test]
fn what_is_not_there_is_told_with_what_is() {
    let told = |arguments: Value| page(arguments).of(document(), vec![], 0).unwrap_err().to_string();
    let missing = told(json!({ "at": "/measures/kernels" }));
    assert!(missing.contains("nothing at `/measures/kernels`") && missing.contains("there are rows"), "{missing}");
    assert!(told(json!({ "at": "/measures/rows/500" })).contains("500 items"));
    assert!(told(json!({ "at": "/interval/0", "from": 2 })).contains("neither"));
}

#[test]
fn bounds_have_bounds() {
    let wrong = |arguments: Value| Page::take(&mut arguments.as_object().unwrap().clone()).unwrap_err().to_string();
    assert!(wrong(json!({ "max_bytes": 10 })).contains("2000 to 1000000"));
    assert!(wrong(json!({ "max_bytes": 99_000_000 })).contains("2000 to 1000000"));
    assert!(wrong(json!({ "from": 3 })).contains("needs `at`"));
    assert!(wrong(json!({ "at": 3 })).contains("string"));
}

#[test]
fn many_notes_keep_the_last() {
    let notes: Vec<String> = (0..1000).map(|note| format!("note number {note}")).collect();
    let answer = page(json!({ "max_bytes": 2000 })).of(json!({ "a": 1 }), notes, 0).unwrap();
    assert!(bytes(&answer) <= 2000);
    assert_eq!(answer.notes.last().unwrap(), "note number 999");
    assert!(answer.notes.len() > 10);
}
