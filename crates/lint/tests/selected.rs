//! The findings that are wanted: rules by code and name, and comments that silence.

use headroom_lint::{Input, Selection, SelectionError, lint};

#[test]
fn groups_and_names_choose_rules() {
    let given = |list: &[&str]| list.iter().map(|code| code.to_string()).collect::<Vec<_>>();
    let selection = Selection::new(&given(&["TP1", "loader-unpinned"]), &given(&["tp105"])).expect("known codes");
    let wanted = ["TP101", "TP105", "TP301", "TP302"].map(|code| selection.wants(code));
    assert_eq!(wanted, [true, false, false, true]);
    let unknown = Selection::new(&given(&["TP9"]), &[]);
    assert_eq!(unknown, Err(SelectionError::UnknownRule { code: "TP9".to_string() }));
}

#[test]
fn comments_silence_their_line_the_next_or_the_file() {
    const HEAD: &str = "import torch\nfor x in y:\n    loss = f(x.cuda())\n    loss.backward()\n    optimizer.step()\n";
    for (line, want) in [
        ("    total = loss.item()\n", 1),
        ("    total = loss.item()  # noqa: TP101\n", 0),
        ("    total = loss.item()  # noqa: E501, tp101\n", 0),
        ("    total = loss.item()  # noqa: E501\n", 1),
        ("    total = loss.item()  # noqa\n", 0),
        ("    # headroom: ignore[TP101]\n    total = loss.item()\n", 0),
        ("    # headroom: ignore[TP102]\n    total = loss.item()\n", 1),
        ("    # headroom: ignore\n    total = loss.item()\n", 0),
        ("    total = loss.item()  # headroom: ignore[TP1]\n", 0),
        ("    total = loss.item()\n# headroom: ignore-file[TP101]\n", 0),
        ("    total = loss.item(\n    )  # noqa: TP101\n", 0),
        ("    total = loss.item(\"# noqa\")\n    total = loss.item()\n", 1),
    ] {
        let input = Input { path: "train.py".to_string(), bytes: format!("{HEAD}{line}").into_bytes() };
        let selection = Selection::new(&["TP101".to_string()], &[]).expect("a known code");
        let report = lint(&[input], &selection);
        assert_eq!(report.findings.len(), want, "{line}");
        assert_eq!(report.suppressed, 1 - want, "{line}");
    }
}
