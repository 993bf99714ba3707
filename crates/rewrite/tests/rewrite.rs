//! Tests of each kind of rewrite against the resulting text.

use headroom_rewrite::{Argument, Refusal, Rewrite, Spot};

fn at(text: &str, words: &str) -> Spot {
    // The call that begins with these words, as CPython 3.11 reports it: by its closing parenthesis.
    let start = text.find(words).expect("words");
    let open = start + words.len() - 1;
    let mut depth = 0;
    let close = text[open..].char_indices().find_map(|(index, character)| {
        depth += i32::from(character == '(') - i32::from(character == ')');
        (depth == 0).then_some(open + index + 1)
    });
    let close = close.expect("a closing parenthesis");
    let line_of = |offset: usize| text[..offset].matches('\n').count() as u32 + 1;
    let column = close - text[..close].rfind('\n').map_or(0, |newline| newline + 1);
    Spot { line: line_of(start), end: Some((line_of(close), column as u32)) }
}

fn line(number: u32) -> Spot {
    Spot { line: number, end: None }
}

fn workers() -> Argument {
    Argument::new("num_workers", "8", Some(5))
}

fn pinned() -> Argument {
    Argument::new("pin_memory", "True", Some(7))
}

/// Gives the loader in the text workers and pinned memory.
fn check_loader(before: &str, after: &str) {
    let mut rewrite = Rewrite::of("train.py", before).expect("it parses");
    for argument in [workers(), pinned()] {
        rewrite.set_argument(at(before, "DataLoader("), &["DataLoader"], argument).expect("a call");
    }
    assert_eq!(rewrite.finish().as_deref(), Some(after));
}

#[test]
fn keywords_are_added_or_get_their_value() {
    check_loader("x = DataLoader(data)\n", "x = DataLoader(data, num_workers=8, pin_memory=True)\n");
    check_loader("x = DataLoader()", "x = DataLoader(num_workers=8, pin_memory=True)");
    check_loader(
        "x = DataLoader(data, num_workers=args.workers, shuffle=True)\n",
        "x = DataLoader(data, num_workers=8, shuffle=True, pin_memory=True)\n",
    );
    check_loader(
        "x = DataLoader(data, num_workers=8, pin_memory=True)\n",
        "x = DataLoader(data, num_workers=8, pin_memory=True)\n",
    );
    check_loader("x = DataLoader((data))\n", "x = DataLoader((data), num_workers=8, pin_memory=True)\n");
    check_loader("x = DataLoader(i for i in y)\n", "x = DataLoader((i for i in y), num_workers=8, pin_memory=True)\n");
}

#[test]
fn positions_are_replaced_where_they_are_known() {
    check_loader(
        "x = DataLoader(data, 4, True, None, None, 0, collate, False)\n",
        "x = DataLoader(data, 4, True, None, None, 8, collate, True)\n",
    );
    check_loader("x = DataLoader(data, *rest)\n", "x = DataLoader(data, *rest, num_workers=8, pin_memory=True)\n");
}

#[test]
fn unpacked_options_may_hold_the_name_already() {
    check_loader(
        "x = DataLoader(data, **options)\n",
        "x = DataLoader(data, **{**options, \"num_workers\": 8, \"pin_memory\": True})\n",
    );
}

#[test]
fn a_call_over_several_lines_keeps_its_trailing_comma() {
    check_loader(
        "x = DataLoader(\n    data,\n    batch_size=4,  # small\n)\n",
        "x = DataLoader(\n    data,\n    batch_size=4, num_workers=8, pin_memory=True,  # small\n)\n",
    );
    check_loader(
        "x = DataLoader(\r\n\tdata,\r\n)\r\n",
        "x = DataLoader(\r\n\tdata,\r\n\tnum_workers=8, pin_memory=True,\r\n)\r\n",
    );
}

#[test]
fn of_two_calls_on_a_line_the_one_that_ran_is_changed() {
    let text = "fit(Module(), DataLoader(a), DataLoader(b))\n";
    let mut rewrite = Rewrite::of("train.py", text).unwrap();
    assert_eq!(rewrite.set_argument(line(1), &["DataLoader"], workers()), Err(Refusal::NoCall(1)));
    rewrite.set_argument(Spot { line: 1, end: Some((1, 42)) }, &["DataLoader"], workers()).unwrap();
    assert_eq!(rewrite.finish().unwrap(), "fit(Module(), DataLoader(a), DataLoader(b, num_workers=8))\n");
}

#[test]
fn a_call_that_ran_twice_is_changed_once() {
    for text in ["DataLoader(a)\n", "DataLoader(a, num_workers=0)\n"] {
        let mut rewrite = Rewrite::of("train.py", text).unwrap();
        rewrite.set_argument(line(1), &["DataLoader"], workers()).unwrap();
        rewrite.set_argument(line(1), &["DataLoader"], Argument::new("num_workers", "1", Some(5))).unwrap();
        assert_eq!(rewrite.finish().unwrap(), "DataLoader(a, num_workers=8)\n");
    }
}

#[test]
fn without_columns_the_name_tells_the_call() {
    let text = "x = DataLoader(\n    make(data),\n)\n";
    let mut rewrite = Rewrite::of("train.py", text).unwrap();
    rewrite.set_argument(line(1), &["DataLoader"], workers()).unwrap();
    assert_eq!(rewrite.finish().unwrap(), "x = DataLoader(\n    make(data),\n    num_workers=8,\n)\n");
}

#[test]
fn only_what_is_given_is_changed_or_dropped() {
    let check = |before: &str, after: &str| {
        let mut rewrite = Rewrite::of("train.py", before).unwrap();
        rewrite.set_given_argument(line(1), &[], Argument::new("foreach", "False", None)).unwrap();
        rewrite.drop_argument(line(1), &[], Argument::new("set_to_none", "", Some(0))).unwrap();
        assert_eq!(rewrite.finish().as_deref(), Some(after));
    };
    check("o.zero_grad(set_to_none=False)\n", "o.zero_grad()\n");
    check("o.zero_grad(False)", "o.zero_grad()");
    check("o.zero_grad(a=1, set_to_none=False)\n", "o.zero_grad(a=1)\n");
    check("o.zero_grad(set_to_none=False, b=2)\n", "o.zero_grad(b=2)\n");
    check("o.zero_grad(foreach=True)\n", "o.zero_grad(foreach=False)\n");
    check("o.zero_grad()\n", "o.zero_grad()\n");
}

fn check_before(before: &str, words: &str, after: &str) {
    let mut rewrite = Rewrite::of("train.py", before).unwrap();
    let lines = ["for block in m.h:".to_string(), "    block.compile()".to_string()];
    rewrite.insert_before(at(before, words), &lines).unwrap();
    assert_eq!(rewrite.finish().as_deref(), Some(after));
}

#[test]
fn lines_come_before_the_statement_at_its_indentation() {
    check_before("o = Adam(\n    m\n)", "Adam(", "for block in m.h:\n    block.compile()\no = Adam(\n    m\n)");
    check_before(
        "def f():\n\tif x:\n\t\treturn [Adam(m)]\n",
        "Adam(",
        "def f():\n\tif x:\n\t\tfor block in m.h:\n\t\t\tblock.compile()\n\t\treturn [Adam(m)]\n",
    );
    check_before("if x: o = Adam(m)\r\n", "Adam(", "for block in m.h:\r\n    block.compile()\r\nif x: o = Adam(m)\r\n");
    check_before(
        "with a(Adam(m)) as o:\n  pass\n",
        "Adam(",
        "for block in m.h:\n    block.compile()\nwith a(Adam(m)) as o:\n  pass\n",
    );
}

#[test]
fn a_line_with_several_statements_is_refused() {
    let mut rewrite = Rewrite::of("train.py", "m = M(); o = Adam(m)\n").unwrap();
    assert_eq!(
        rewrite.insert_before(at("m = M(); o = Adam(m)\n", "Adam("), &["m.compile()".into()]),
        Err(Refusal::Crowded(1))
    );
}

fn check_head(before: &str, after: &str) {
    let mut rewrite = Rewrite::of("train.py", before).unwrap();
    rewrite.import("torch");
    rewrite.after_imports(&["torch.set_num_threads(8)".to_string()]);
    assert_eq!(rewrite.finish().as_deref(), Some(after));
}

#[test]
fn lines_follow_the_imports_of_the_head() {
    check_head("import torch\n\nx = 1\n", "import torch\n\ntorch.set_num_threads(8)\n\nx = 1\n");
    check_head("import torch", "import torch\n\ntorch.set_num_threads(8)");
    check_head(
        "\"\"\"Words.\"\"\"\r\nfrom torch import nn\r\ndef f():\r\n    pass\r\nimport os\r\n",
        "\"\"\"Words.\"\"\"\r\nfrom torch import nn\r\nimport torch\r\n\r\ntorch.set_num_threads(8)\r\ndef f():\r\n    pass\r\nimport os\r\n",
    );
    check_head("import torch.nn as nn\n", "import torch.nn as nn\nimport torch\n\ntorch.set_num_threads(8)\n");
    check_head("x = 1\n", "import torch\n\ntorch.set_num_threads(8)\nx = 1\n");
    for (before, after) in [("x = 1\n", "from a import b\nx = 1\n"), ("from a import b\n", "from a import b\n")] {
        let mut rewrite = Rewrite::of("train.py", before).unwrap();
        rewrite.import("from a import b");
        assert_eq!(rewrite.finish().as_deref(), Some(after));
    }
}

#[test]
fn lines_before_the_imports_follow_the_future_and_light_modules() {
    let check = |before: &str, after: &str| {
        let mut rewrite = Rewrite::of("train.py", before).unwrap();
        rewrite.before_imports(&["os.environ[\"A\"] = \"1\"".to_string()]);
        assert_eq!(rewrite.finish().as_deref(), Some(after));
    };
    check(
        "\"\"\"W.\"\"\"\nfrom __future__ import annotations\nimport os\nimport torch\n",
        "\"\"\"W.\"\"\"\nfrom __future__ import annotations\nimport os\nos.environ[\"A\"] = \"1\"\n\nimport torch\n",
    );
    check("import torch\n", "import os\n\nos.environ[\"A\"] = \"1\"\n\nimport torch\n");
    check("from . import model\n", "import os\n\nos.environ[\"A\"] = \"1\"\n\nfrom . import model\n");
}

#[test]
fn settings_that_say_the_opposite_are_changed() {
    let text = "import torch\ntorch.backends.cudnn.benchmark = False\nif x:\n    torch.set_num_threads(1)\n";
    let mut rewrite = Rewrite::of("train.py", text).unwrap();
    assert!(rewrite.mentions("benchmark") && !rewrite.mentions("fp32_precision"));
    assert!(rewrite.assign("torch.backends.cudnn.benchmark", "True"));
    assert!(!rewrite.assign("torch.backends.cudnn.deterministic", "False"));
    assert!(!rewrite.call_with("torch.set_num_threads", "8"), "only under a condition");
    let after = "import torch\ntorch.backends.cudnn.benchmark = True\nif x:\n    torch.set_num_threads(8)\n";
    assert_eq!(rewrite.finish().as_deref(), Some(after));
}

#[test]
fn a_text_that_does_not_parse_is_not_written() {
    assert!(Rewrite::of("train.py", "def f(:\n").is_none());
    let mut rewrite = Rewrite::of("train.py", "x = 1\n").unwrap();
    rewrite.after_imports(&["def f(:".to_string()]);
    assert_eq!(rewrite.finish(), None);
}

#[test]
fn nothing_asked_for_leaves_the_text() {
    let text = "a = 1  \r\n\tb\u{feff}";
    assert!(Rewrite::of("train.py", text).is_none());
    let text = "é = f(1) # ü\n";
    let rewrite = Rewrite::of("train.py", text).unwrap();
    assert_eq!(rewrite.finish().as_deref(), Some(text));
}
