//! Scripts that were once misread, each for one reason: the default findings must be exactly those marked `# <- CODE`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use headroom_lint::finding::{Confidence, Severity};
use headroom_lint::fix::Safety;
use headroom_lint::rules::RULES;
use headroom_lint::{Input, Selection, SourceFinding, lint, repair};

const MARK: &str = "# <- ";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/causes")
}

/// All scripts below the folder, by their relative paths.
fn scripts() -> Vec<Input> {
    let (mut open, mut found) = (vec![root()], Vec::new());
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(&folder).expect("a folder of scripts") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                open.push(path);
            } else {
                let bytes = std::fs::read(&path).expect("a script");
                let path = path.strip_prefix(root()).expect("below the folder").to_string_lossy().into_owned();
                found.push(Input { path, bytes });
            }
        }
    }
    found.sort_by(|one, two| one.path.cmp(&two.path));
    found
}

fn script(path: &str) -> Input {
    scripts().into_iter().find(|input| input.path == path).unwrap_or_else(|| panic!("no script {path}"))
}

fn marked(input: &Input) -> BTreeSet<(String, u32)> {
    let text = String::from_utf8_lossy(&input.bytes);
    let of_line = |(number, line): (u32, &str)| {
        let codes = line.split_once(MARK).map_or("", |(_, codes)| codes);
        codes.split_whitespace().map(move |code| (code.to_string(), number)).collect::<Vec<_>>()
    };
    (1..).zip(text.lines()).flat_map(of_line).collect()
}

fn found(input: &Input, selection: &Selection) -> BTreeSet<(String, u32)> {
    let report = lint(std::slice::from_ref(input), selection);
    assert!(report.problems.is_empty(), "{}: {:?}", input.path, report.problems);
    report.findings.iter().map(|finding| (finding.code.to_string(), finding.place.line)).collect()
}

#[test]
fn each_script_has_its_marked_findings_and_no_others() {
    let scripts = scripts();
    assert!(scripts.len() >= 33, "{} scripts", scripts.len());
    let wrong: Vec<String> = scripts
        .iter()
        .filter_map(|input| {
            let (found, want) = (found(input, &Selection::default()), marked(input));
            let missing: Vec<_> = want.difference(&found).collect();
            let beyond: Vec<_> = found.difference(&want).collect();
            (found != want).then(|| format!("{}: missing {missing:?}, beyond {beyond:?}", input.path))
        })
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn attention_of_length_squared_is_sure_behind_pedantic() {
    let input = script("attention_by_hand.py");
    let text = String::from_utf8_lossy(&input.bytes).into_owned();
    let marked: Vec<u32> =
        (1..).zip(text.lines()).filter(|(_, line)| line.ends_with("# surely")).map(|(at, _)| at).collect();
    let report = lint(&[input], &Selection::default().pedantic());
    let sure = report.findings.iter().filter(|one| one.code == "TP403" && one.confidence == Confidence::High);
    assert_eq!(sure.map(|one| one.place.line).collect::<Vec<_>>(), marked);
    assert_eq!(marked.len(), 5);
}

#[test]
fn a_file_has_the_same_findings_alone_as_among_the_others() {
    let scripts = scripts();
    let together = lint(&scripts, &Selection::default());
    for input in &scripts {
        let of_file = together.findings.iter().filter(|finding| finding.place.file == input.path);
        let of_file: BTreeSet<(String, u32)> =
            of_file.map(|finding| (finding.code.to_string(), finding.place.line)).collect();
        assert_eq!(of_file, found(input, &Selection::default()), "{}", input.path);
    }
}

#[test]
fn pedantic_findings_are_shown_where_they_are_asked_for() {
    let input = script("constants_by_size.py");
    let at = |selection: &Selection| found(&input, selection).into_iter().filter(|(code, _)| code == "TP201").count();
    let select = |codes: &[&str]| {
        let codes: Vec<String> = codes.iter().map(|code| code.to_string()).collect();
        Selection::new(&codes, &[]).expect("known codes")
    };
    assert_eq!(at(&Selection::default()), 2);
    assert_eq!(at(&Selection::default().pedantic()), 3);
    assert_eq!(at(&select(&["TP201"])), 3);
    assert_eq!(at(&select(&["all"])), 2);
    let report = lint(&[input], &Selection::default());
    assert!(report.held_back.iter().all(|finding| finding.pedantic && finding.severity == Severity::Low));
    assert!(!report.held_back.is_empty());
}

#[test]
fn findings_outside_of_training_are_held_back_not_lost() {
    let paths = ["tests/test_step.py", "benchmarks/step.py", "inference/engine.py", "tools/convert_weights.py"];
    for path in paths.into_iter().chain(["examples/quick_start.py"]) {
        let report = lint(&[script(path)], &Selection::default());
        assert!(report.findings.is_empty() && !report.held_back.is_empty(), "{path}");
    }
}

#[test]
fn a_model_is_in_sight_where_a_loop_of_its_program_is() {
    let model = "import torch\nfrom torch import nn\n\n\nclass Model(nn.Module):\n    def forward(self, x, lengths):\n        noise = torch.randn(x.size(0)).cuda()\n        return x[:, : lengths.size(0)] + noise\n";
    let engine = "def train(model, loader, optimizer):\n    for x, lengths in loader:\n        model(x, lengths).mean().backward()\n        optimizer.step()\n";
    let main = "from engine import train\nfrom model import Model\n\ntrain(Model(), load(), None)\n";
    let input = |path: &str, text: &str| Input { path: path.to_string(), bytes: text.as_bytes().to_vec() };
    let reads = |inputs: &[Input]| {
        let report = lint(inputs, &Selection::default());
        let lines = |findings: &[SourceFinding]| {
            findings
                .iter()
                .filter(|finding| finding.code == "TP202")
                .map(|finding| finding.place.line)
                .collect::<Vec<_>>()
        };
        (lines(&report.findings), lines(&report.held_back))
    };
    assert_eq!(reads(&[input("model.py", model)]), (vec![], vec![7]));
    let program = [input("engine.py", engine), input("main.py", main), input("model.py", model)];
    assert_eq!(reads(&program), (vec![7], vec![]));
    // A library contains more models than one program uses.
    let many: String = (0..80).map(|number| format!("\n\nclass Other{number}(nn.Module):\n    pass\n")).collect();
    let library = [input("engine.py", engine), input("main.py", main), input("model.py", &format!("{model}{many}"))];
    assert_eq!(reads(&library), (vec![], vec![7]));
}

#[test]
fn a_script_for_a_trainer_says_what_there_was_to_look_at() {
    let text = "from transformers import Trainer, TrainingArguments\n\n\ndef main(model, data):\n    Trainer(model, TrainingArguments('out'), train_dataset=data).train()\n";
    let input = Input { path: "finetune.py".to_string(), bytes: text.as_bytes().to_vec() };
    let coverage = lint(&[input], &Selection::default()).coverage;
    assert_eq!((coverage.steps, coverage.forward_passes, coverage.loaders), (0, 0, 0));
    assert_eq!(coverage.trainers, ["Trainer"]);
    let coverage = lint(&[script("nodes_in_a_list.py")], &Selection::default()).coverage;
    assert_eq!((coverage.steps, coverage.forward_passes, coverage.trainers.len()), (1, 2, 0));
}

#[test]
fn nothing_unmeasured_is_critical() {
    let worst = RULES.iter().map(|rule| rule.severity).max();
    assert_eq!(worst, Some(Severity::High));
}

#[test]
fn gradients_of_all_nodes_are_read_once_after_the_fix() {
    let repairs = repair(&[script("nodes_in_a_list.py")], &Selection::default(), Safety::Unsafe);
    let after = &repairs.files[0].after;
    let lines = [
        "    def gradient_norm(self) -> torch.Tensor:\n        gradients = [p.grad for p in self.parameters() if p.grad is not None]\n",
        "        return torch.stack(torch._foreach_norm(gradients)).norm()\n",
        "        found_values = [node.gradient_norm() for node in self.all_nodes]\n",
        "            found.update(zip([node.number for node in self.all_nodes], torch.stack(found_values).tolist()))\n",
    ];
    for line in lines {
        assert!(after.contains(line), "{line} in {after}");
    }
    let again =
        lint(&[Input { path: "again.py".to_string(), bytes: after.clone().into_bytes() }], &Selection::default());
    assert!(again.findings.iter().all(|finding| finding.code != "TP107"), "{:?}", again.findings);
}

/// Read-backs and loaders of the scripts in `closely`: all findings when everything is requested.
#[test]
fn read_backs_and_loaders_are_found_closely_where_everything_is_asked_for() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/closely");
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(folder).expect("a folder of scripts").map(|entry| entry.expect("an entry").path()).collect();
    paths.sort();
    assert!(paths.len() >= 3, "{} scripts", paths.len());
    for path in paths {
        let input = Input { path: path.to_string_lossy().into_owned(), bytes: std::fs::read(&path).expect("a script") };
        let is_asked = |code: &str| code.starts_with("TP10") || matches!(code, "TP301" | "TP302" | "TP303" | "TP304");
        let mut seen = found(&input, &Selection::default().pedantic());
        seen.retain(|(code, _)| is_asked(code));
        assert_eq!(seen, marked(&input), "{}", input.path);
    }
}

#[test]
fn severity_follows_the_measured_share() {
    let named = [0.3, 0.25, 0.1, 0.03, 0.0299].map(|share| Severity::of_share(share).name());
    assert_eq!(named, ["critical", "critical", "high", "medium", "low"]);
}
