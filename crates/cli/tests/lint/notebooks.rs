//! Notebooks: findings and fixes in their cells.

use super::{codes, headroom};
use std::fs;

/// Three cells of one training loop, with a text and a magic in between; formatted as no JSON writer would.
const NOTEBOOK: &str = r##"{
   "cells":[
  {"cell_type":"markdown","metadata":{},"source":["# Training\n","loss.item() is *slow*"]},
  {"cell_type":"code","execution_count":1,"metadata":{ },"outputs":[{"data":{"x":1.0e2}}],"source":[
      "%matplotlib inline\n",
      "!pip install torch\n",
      "import torch\n",
      "name = 'caf\u00e9'"
  ]},
  {"cell_type":"code","metadata":{},"outputs":[],"source":["%%bash\n","if then ((\n"]},
  {"cell_type":"code","metadata":{},"outputs":[],"source":"model = torch.nn.Linear(8, 8).cuda()\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)"},
  {"cell_type":"code","metadata":{},"outputs":[],"source":[
      "total = 0.0\n",
      "for x in torch.randn(100, 4, 8):\n",
      "    loss = model(x.cuda()).sum()\n",
      "    optimizer.zero_grad(set_to_none=False)\n",
      "    loss.backward()\n",
      "    optimizer.step()\n",
      "    total += loss.item()"
  ]}
 ],
 "metadata":{"kernelspec":{"language":"python","name":"python3"}},"nbformat":4,"nbformat_minor":5}"##;

#[test]
fn findings_name_the_cell_and_its_line() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("study.ipynb"), NOTEBOOK).unwrap();
    let lint = |format: &str| headroom(folder.path(), &["lint", ".", "--format", format, "--select", "TP101,TP501"]);
    let json = lint("json");
    assert_eq!(json.status.code(), Some(1), "{}", String::from_utf8_lossy(&json.stdout));
    assert_eq!(codes(&json), ["TP501", "TP101"]);
    let value: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    let place = &value["findings"][1]["place"];
    assert_eq!(
        (place["cell"].as_u64(), place["line"].as_u64(), place["column"].as_u64()),
        (Some(5), Some(7), Some(14))
    );
    let shown = |format: &str| String::from_utf8_lossy(&lint(format).stdout).into_owned();
    assert!(shown("text").contains("./study.ipynb:cell 5:7:14: TP101 item-per-step"), "{}", shown("text"));
    assert!(shown("text").contains("7 |     total += loss.item()\n"), "{}", shown("text"));
    assert!(shown("github").contains("file=./study.ipynb,line=7,") && shown("github").contains("::cell 5: "));
    assert!(shown("markdown").contains("`./study.ipynb:cell 5:7`"), "{}", shown("markdown"));
    let sarif: serde_json::Value = serde_json::from_str(&shown("sarif")).unwrap();
    let location = &sarif["runs"][0]["results"][1]["locations"][0];
    assert_eq!(location["physicalLocation"]["region"]["startLine"], 7);
    assert_eq!(location["logicalLocations"][1]["name"], "cell 5");
}

#[test]
fn fixes_change_their_lines_and_nothing_else_of_the_json() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("study.ipynb");
    fs::write(&path, NOTEBOOK).unwrap();
    headroom(folder.path(), &["lint", "study.ipynb", "--fix", "--unsafe-fixes", "--select", "TP501"]);
    let fixed = NOTEBOOK.replace("set_to_none=False", "set_to_none=True");
    assert_eq!(fs::read_to_string(&path).unwrap(), fixed);
    headroom(folder.path(), &["lint", "study.ipynb", "--add-noqa", "--select", "TP101"]);
    let silenced = fixed.replace("\"    total += loss.item()\"", "\"    total += loss.item()  # noqa: TP101\"");
    assert_eq!(fs::read_to_string(&path).unwrap(), silenced);
    let after = headroom(folder.path(), &["lint", "study.ipynb", "--select", "TP101,TP501"]);
    assert_eq!(after.status.code(), Some(0), "{}", String::from_utf8_lossy(&after.stdout));
}

#[test]
fn a_notebook_that_cannot_be_read_is_an_error_of_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let lint = |text: &str| {
        fs::write(folder.path().join("study.ipynb"), text).unwrap();
        let output = headroom(folder.path(), &["lint", "study.ipynb"]);
        assert_eq!(output.status.code(), Some(2), "{text}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    assert!(lint("{").contains("error: study.ipynb: not fully read: not a notebook of format 4"));
    let broken = lint(&NOTEBOOK.replace("for x in torch.randn(100, 4, 8):", "for x in:"));
    assert!(broken.contains("error: study.ipynb:cell 5:2: not fully read"), "{broken}");
}
