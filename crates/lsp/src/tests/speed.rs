//! Time to an answer: a file of 1,000 lines in a project of 300 files.

use std::fmt::Write;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{Editor, able, has, project, uri};

/// Ten times the promised time: the machine may be busy with other tests.
const LONGEST: Duration = Duration::from_millis(500);

/// A script of 1,000 lines that imports ten modules of its project: models, steps and helpers, again and again.
fn long_script() -> String {
    let mut script = String::from("import torch\nfrom torch import nn\n");
    for number in 0..10 {
        let _ = writeln!(script, "from package.module_{number} import helper_{number}");
    }
    let mut number = 0;
    while script.lines().count() < 1000 {
        let _ = write!(
            script,
            "\n\nclass Block{number}(nn.Module):\n    def __init__(self, width):\n        super().__init__()\n        self.linear = nn.Linear(width, width)\n        self.norm = nn.LayerNorm(width)\n\n    def forward(self, x):\n        return self.norm(x + self.linear(x).relu())\n\n\ndef train_{number}(model, loader, optimizer):\n    total = 0.0\n    for step, x in enumerate(loader):\n        loss = model(x.cuda()).sum()\n        optimizer.zero_grad()\n        loss.backward()\n        optimizer.step()\n        total += loss.item()\n        helper_{}(loss)\n    return total\n",
            number % 10
        );
        number += 1;
    }
    script
}

#[test]
fn an_answer_comes_while_one_types() {
    let modules: Vec<(String, String)> = (0..300)
        .map(|number| {
            let body: String = (0..20).map(|line| format!("    value = value + {line}\n")).collect();
            let other = (number + 10) % 300;
            let import = if number < 10 {
                format!("from package.module_{other} import helper_{other}\n")
            } else {
                String::new()
            };
            let text =
                format!("import torch\n{import}\n\ndef helper_{number}(value):\n{body}    return value.mean()\n");
            (format!("package/module_{number}.py"), text)
        })
        .collect();
    let files: Vec<(&str, &str)> = modules.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    let (_place, root) = project(&files);
    let script = long_script();
    let mut editor = Editor::start(able(), &[&root], Value::Null);
    let uri = uri(&root.join("train.py"));
    editor.open(&uri, &script);
    assert!(has(&editor.diagnostics(&uri, 1), "TP101"));
    let mut times = Vec::new();
    for version in 2..32 {
        let start = Instant::now();
        let at = json!({"line": 500, "character": 0});
        editor.change_by(&uri, version, json!([{"range": {"start": at, "end": at}, "text": "#"}]));
        assert!(has(&editor.diagnostics(&uri, version), "TP101"));
        times.push(start.elapsed());
    }
    times.sort();
    let (middle, longest) = (times[times.len() / 2], times[times.len() - 1]);
    println!("from a change to its diagnostics: median {middle:?}, longest {longest:?}");
    assert!(middle < LONGEST, "median {middle:?}, longest {longest:?}");
    let start = Instant::now();
    let range = json!({"start": {"line": 0, "character": 0}, "end": {"line": 2000, "character": 0}});
    let params =
        json!({"textDocument": {"uri": uri}, "range": range, "context": {"diagnostics": [], "only": ["quickfix"]}});
    let actions = editor.request("textDocument/codeAction", params).expect("actions");
    println!("{} fixes of the whole file in {:?}", actions.as_array().map_or(0, Vec::len), start.elapsed());
    editor.end();
}
