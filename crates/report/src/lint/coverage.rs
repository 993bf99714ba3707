//! The coverage of a report without findings: what was checked, and what could not be.

use headroom_lint::{Coverage, SourceReport};

use crate::numbers::counted;

/// Trainer arguments of libraries that decide how fast steps are, and that no rule reads.
const OF_TRAINERS: &str = "precision, loader workers, steps between logs, compilation";

/// One line, or two if a library's trainer runs the steps; empty if there are findings.
pub fn show(report: &SourceReport) -> String {
    if !report.findings.is_empty() {
        return String::new();
    }
    let Coverage { steps, forward_passes, loaders, trainers } = &report.coverage;
    let mut seen: Vec<String> = Vec::new();
    for (count, what) in [(*steps, "training step"), (*loaders, "loader")] {
        if count > 0 {
            seen.push(counted(count, what));
        }
    }
    match forward_passes {
        0 => {}
        1 => seen.push("1 forward pass".to_string()),
        many => seen.push(format!("{many} forward passes")),
    }
    let mut out = match seen.as_slice() {
        [] => "looked at: no training step, loader or forward pass was found\n".to_string(),
        seen => format!("looked at: {}\n", seen.join(", ")),
    };
    if !trainers.is_empty() {
        out.push_str(&format!(
            "not looked at: the steps that {} runs, and its arguments ({OF_TRAINERS}); a trace shows them (`--trace`)\n",
            trainers.join(" and ")
        ));
    }
    out
}

#[cfg(test)]
mod tests {
    use headroom_lint::{Input, Selection, lint};

    use super::*;

    fn shown(text: &str) -> String {
        let input = Input { path: "train.py".to_string(), bytes: text.as_bytes().to_vec() };
        show(&lint(&[input], &Selection::default()))
    }

    #[test]
    fn a_script_for_a_trainer_says_whose_steps_were_not_seen() {
        let script = "from transformers import Trainer\n\nTrainer(model, arguments).train()\n";
        let said = shown(script);
        assert!(said.starts_with("looked at: no training step"), "{said}");
        assert!(said.contains("not looked at: the steps that Trainer runs"), "{said}");
    }

    #[test]
    fn forward_passes_and_steps_are_counted() {
        let model = "import torch\n\nclass M(torch.nn.Module):\n    def forward(self, x):\n        return x * 2\n";
        assert_eq!(shown(model), "looked at: 1 forward pass\n");
        let loop_of_steps = "import torch\n\ndef train(model, optimizer, loader):\n    for x in loader:\n        with \
            torch.autocast('cuda'):\n            loss = \
            model(x.cuda()).mean()\n        loss.backward()\n        optimizer.step()\n";
        assert_eq!(shown(loop_of_steps), "looked at: 1 training step\n");
    }
}
