//! Patches of small scripts, from places as CPython 3.11 reports them.

use super::*;
use crate::remedies::named;
use serde_json::{Value as Json, json};

const LOOP: &str = r#"import torch
from torch.utils.data import DataLoader

model = Net()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
loader = DataLoader(data, batch_size=8)
for x, y in loader:
    optimizer.zero_grad(set_to_none=False)
    loss(model(x.to("cuda")), y).backward()
    optimizer.step()
"#;

/// The place of the call that begins with these words, as CPython 3.11 reports it.
fn at(text: &str, words: &str) -> Json {
    let start = text.find(words).unwrap_or_else(|| panic!("{words}"));
    let open = start + words.rfind('(').expect("a parenthesis");
    let mut depth = 0;
    let close = text[open..].char_indices().find_map(|(index, character)| {
        depth += i32::from(character == '(') - i32::from(character == ')');
        (depth == 0).then_some(open + index + 1)
    });
    let close = close.expect("a closing parenthesis");
    let line_of = |offset: usize| text[..offset].matches('\n').count() + 1;
    let column = close - text[..close].rfind('\n').map_or(0, |newline| newline + 1);
    json!({
        "file": "train.py", "line": line_of(start), "end_line": line_of(close), "end_column": column,
        "function": "<module>", "direct": true,
    })
}

fn indirect(mut place: Json) -> Json {
    place["direct"] = json!(false);
    place
}

fn made(class: &str, place: Json) -> Json {
    json!({ "class": class, "place": place })
}

fn module(place: Json, expression: &str) -> Json {
    json!({ "class": "Net", "place": place, "expression": expression, "blocks": [[".h"]], "eager": [".lm"] })
}

/// A note from a run with everything: eight workers, a fused optimizer, one trained module.
fn note(places: Json) -> Note {
    let note = json!({
        "loaders": [{ "workers": 8, "persistent": true, "prefetch": 4, "pinned": true }],
        "optimizers": [{ "class": "AdamW", "fused": true, "foreach": true }],
        "modules": [{ "class": "Net", "device": "cuda" }],
        "settings": { "threads": 16 },
        "places": places,
    });
    serde_json::from_value(note).expect("a note")
}

/// Places in `LOOP`, or in a text with the same calls.
fn places_of(text: &str) -> Json {
    let optimizer = at(text, "torch.optim.AdamW(");
    json!({
        "main": "train.py",
        "loaders": [made("DataLoader", at(text, "= DataLoader("))],
        "optimizers": [made("AdamW", optimizer.clone())],
        "modules": [module(optimizer, "model")],
    })
}

fn kept(names: &[&str]) -> Variant {
    names.iter().fold(Variant::as_it_is(), |variant, name| variant.with(named(name).expect("a remedy")))
}

fn patch_of(text: &str, note: &Note, names: &[&str]) -> Patch {
    let sources = |path: &Path| (path == Path::new("train.py")).then(|| text.to_string());
    patch(&sources, note, &kept(names), Path::new("./train.py"))
}

/// The rewritten file, with nothing left to do by hand.
fn written(text: &str, note: &Note, names: &[&str]) -> String {
    let patch = patch_of(text, note, names);
    assert_eq!((patch.by_hand, patch.options), (Vec::<String>::new(), Vec::<String>::new()));
    let [changed] = patch.files.as_slice() else { panic!("{:?}", patch.files) };
    assert_eq!((changed.path.as_path(), changed.before.as_str()), (Path::new("train.py"), text));
    changed.after.clone()
}

/// Lines that were removed and added.
fn difference(before: &str, after: &str) -> Vec<String> {
    let only = |these: &str, those: &str, sign: &str| {
        let those: Vec<&str> = those.lines().collect();
        let lines = these.lines().filter(|line| !those.contains(line));
        lines.map(|line| format!("{sign}{line}")).collect::<Vec<_>>()
    };
    [only(before, after, "-"), only(after, before, "+")].concat()
}

fn check(names: &[&str], want: &[&str]) {
    let mut places = places_of(LOOP);
    places["zeros"] = json!([at(LOOP, "optimizer.zero_grad(")]);
    places["copies"] = json!([at(LOOP, "x.to(")]);
    assert_eq!(difference(LOOP, &written(LOOP, &note(places), names)), want, "{names:?}");
}

#[test]
fn a_plain_loop_gets_each_remedy_where_it_belongs() {
    check(
        &["loader-workers", "loader-pinning"],
        &[
            "-loader = DataLoader(data, batch_size=8)",
            "+loader = DataLoader(data, batch_size=8, num_workers=8, persistent_workers=True, prefetch_factor=4, \
             pin_memory=True)",
        ],
    );
    let optimizer = "-optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)";
    let with = |keyword: &str| format!("+optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, {keyword})");
    check(&["fused-optimizer"], &[optimizer, &with("fused=True")]);
    check(&["foreach-optimizer"], &[optimizer, &with("foreach=True")]);
    check(&["zero-grad-none"], &["-    optimizer.zero_grad(set_to_none=False)", "+    optimizer.zero_grad()"]);
    let copy = "+    loss(model(x.to(\"cuda\", non_blocking=True)), y).backward()";
    check(&["non-blocking-copies"], &["-    loss(model(x.to(\"cuda\")), y).backward()", copy]);
    check(&["compile"], &["+model.compile()"]);
    let dropping = ["-    optimizer.zero_grad(set_to_none=False)", "+    optimizer.zero_grad()"];
    check(&["compile-reduce-overhead"], &[dropping[0], "+model.compile(mode=\"reduce-overhead\")", dropping[1]]);
    check(&["compile-blocks"], &["+for block in model.h:", "+    block.compile()"]);
    check(&["channels-last"], &["+model.to(memory_format=torch.channels_last)"]);
    check(&["sdpa"], &["+model.lm.set_attn_implementation(\"sdpa\")"]);
    check(&["tf32"], &["+torch.set_float32_matmul_precision(\"high\")"]);
    check(&["cudnn-benchmark"], &["+torch.backends.cudnn.benchmark = True"]);
    check(&["threads"], &["+torch.set_num_threads(16)"]);
}

#[test]
fn lines_stand_in_the_order_of_a_person() {
    let after = written(LOOP, &note(places_of(LOOP)), &["compile", "channels-last", "tf32", "cudnn-benchmark"]);
    assert!(
        after.starts_with(
            "import torch\nfrom torch.utils.data import DataLoader\n\ntorch.backends.cudnn.benchmark = True\n\n\
             torch.set_float32_matmul_precision(\"high\")\n\nmodel = Net()\n\
             model.to(memory_format=torch.channels_last)\nmodel.compile()\noptimizer = "
        ),
        "{after}"
    );
}

#[test]
fn functions_of_a_remedy_come_with_what_they_import() {
    let after = written(LOOP, &note(places_of(LOOP)), &["bf16-autocast", "gc-frozen", "compile"]);
    for words in [
        "import functools\nimport gc\nfrom torch.optim.optimizer import register_optimizer_step_post_hook\n",
        "\n\n\ndef run_in_bf16(module):\n",
        "    inner = torch.autocast(\"cuda\", dtype=torch.bfloat16)(module.forward)\n",
        "model = Net()\nrun_in_bf16(model)\nmodel.compile()\noptimizer = ",
        "\n\nregister_optimizer_step_post_hook(lambda *unused: freeze_lasting_objects())\n",
    ] {
        assert!(after.contains(words), "{words}\n{after}");
    }
}

#[test]
fn the_environment_is_set_before_torch_is_imported() {
    let after = written(LOOP, &note(places_of(LOOP)), &["expandable-segments"]);
    let head = "import os\n\nos.environ.setdefault(\"PYTORCH_CUDA_ALLOC_CONF\", \"expandable_segments:True\")\n\nimport torch\n";
    assert!(after.starts_with(head), "{after}");
}

#[test]
fn what_the_script_sets_to_the_opposite_is_changed() {
    let text = LOOP.replace("\nmodel = Net()", "\ntorch.backends.cuda.matmul.allow_tf32 = False\nmodel = Net()");
    let after = written(&text, &note(places_of(&text)), &["tf32"]);
    let want = ["-torch.backends.cuda.matmul.allow_tf32 = False", "+torch.backends.cuda.matmul.allow_tf32 = True"];
    assert_eq!(difference(&text, &after), want);
    let text = LOOP
        .replace("\nmodel = Net()", "\nif exact:\n    torch.backends.cuda.matmul.allow_tf32 = False\nmodel = Net()");
    let after = written(&text, &note(places_of(&text)), &["tf32"]);
    assert!(after.contains("\ntorch.set_float32_matmul_precision(\"high\")\n"), "only some runs come by it: {after}");
    let text = LOOP.replace("\nmodel = Net()", "\ntorch.backends.cudnn.fp32_precision = \"ieee\"\nmodel = Net()");
    let after = written(&text, &note(places_of(&text)), &["tf32"]);
    assert!(after.contains("\ntorch.backends.cuda.matmul.fp32_precision = \"tf32\"\n"), "{after}");
    assert!(after.contains("\ntorch.backends.cudnn.fp32_precision = \"tf32\"\n"), "{after}");
}

#[test]
fn a_fused_optimizer_is_not_told_to_use_lists_as_well() {
    let text = LOOP.replace("lr=1e-3", "foreach=True");
    let after = written(&text, &note(places_of(&text)), &["fused-optimizer"]);
    assert!(after.contains("AdamW(model.parameters(), foreach=False, fused=True)"), "{after}");
}

#[test]
fn a_class_writes_its_module_by_its_own_name() {
    let text = "import torch.nn as nn\nfrom torch.optim import AdamW\n\nclass Runner:\n\tdef setup(self):\n\t\tself.optimizer = AdamW(\n\t\t\tself.model.parameters()\n\t\t)";
    let optimizer = at(text, "AdamW(\n");
    let places = json!({ "main": "train.py", "optimizers": [made("AdamW", optimizer.clone())], "modules": [module(optimizer, "self.model")] });
    let after = written(text, &note(places), &["fused-optimizer", "channels-last", "compile-blocks"]);
    let want = "import torch.nn as nn\nfrom torch.optim import AdamW\nimport torch\n\nclass Runner:\n\tdef setup(self):\n\
        \t\tself.model.to(memory_format=torch.channels_last)\n\t\tfor block in self.model.h:\n\t\t\tblock.compile()\n\
        \t\tself.optimizer = AdamW(\n\t\t\tself.model.parameters(),\n\t\t\tfused=True\n\t\t)";
    assert_eq!(after, want);
}

#[test]
fn lightning_makes_its_optimizer_in_a_method() {
    let text = "class Module(LightningModule):\r\n    def configure_optimizers(self):\r\n        return Adam(self.parameters())\r\n";
    let optimizer = at(text, "Adam(");
    let places = json!({ "optimizers": [made("Adam", optimizer.clone())], "modules": [module(optimizer, "self.net")] });
    let after = written(text, &note(places), &["fused-optimizer", "compile"]);
    let want = "class Module(LightningModule):\r\n    def configure_optimizers(self):\r\n        self.net.compile()\r\n        \
        return Adam(self.parameters(), fused=True)\r\n";
    assert_eq!(after, want);
}

const TRAINER: &str = "from transformers import Trainer, TrainingArguments\n\nargs = TrainingArguments(\n    \"out\",\n)\n\
    trainer = Trainer(model=model, args=args)\ntrainer.train()\n";

fn places_of_trainer(arguments: Json) -> Json {
    let train = indirect(at(TRAINER, "trainer.train("));
    let mut trained = module(train.clone(), "model");
    trained["frameworks"] = json!([{ "kind": "transformers", "expression": "trainer" }]);
    json!({
        "main": "train.py", "loaders": [made("DataLoader", train.clone())], "optimizers": [made("AdamW", train)],
        "modules": [trained], "arguments": [made("TrainingArguments", arguments)],
    })
}

#[test]
fn a_trainer_is_told_by_its_arguments() {
    let places = places_of_trainer(at(TRAINER, "TrainingArguments(\n"));
    let after = written(TRAINER, &note(places), &["loader-workers", "fused-optimizer", "compile"]);
    let want = TRAINER
        .replace(
            "\"out\"",
            "\"out\",\n    dataloader_num_workers=8, dataloader_persistent_workers=True, dataloader_prefetch_factor=4, \
             optim=\"adamw_torch_fused\"",
        )
        .replace("trainer.train()", "model.compile()\ntrainer.train()");
    assert_eq!(after, want);
}

#[test]
fn arguments_of_the_command_line_become_options_and_lines_before_training() {
    let places = places_of_trainer(indirect(at(TRAINER, "TrainingArguments(\n")));
    let patch = patch_of(TRAINER, &note(places), &["loader-pinning", "fused-optimizer"]);
    assert_eq!(patch.options, ["--dataloader_pin_memory True", "--optim adamw_torch_fused"]);
    assert_eq!(patch.by_hand, Vec::<String>::new());
    let lines =
        "trainer.args.dataloader_pin_memory = True\ntrainer.args.optim = \"adamw_torch_fused\"\ntrainer.train()";
    assert_eq!(patch.files[0].after, TRAINER.replace("trainer.train()", lines));
}

#[test]
fn a_module_that_only_the_trainer_knows_is_compiled_by_an_argument() {
    let mut places = places_of_trainer(at(TRAINER, "TrainingArguments(\n"));
    places["modules"][0]["expression"] = Json::Null;
    let after = written(TRAINER, &note(places), &["compile"]);
    assert_eq!(after, TRAINER.replace("\"out\"", "\"out\",\n    torch_compile=True"));
}

#[test]
fn what_cannot_be_written_is_said() {
    let mut places = places_of(LOOP);
    places["loaders"][0]["place"] = indirect(at(LOOP, "optimizer.step("));
    places["modules"][0]["expression"] = Json::Null;
    let patch = patch_of(LOOP, &note(places), &["loader-pinning", "compile", "ddp-bucket-view"]);
    assert_eq!(patch.files, []);
    assert_eq!(
        patch.by_hand,
        [
            "loader-pinning: the DataLoader is in a library that train.py:10 calls; give the DataLoader `pin_memory=True`",
            "ddp-bucket-view: no line for it was found in the script's own files; give DistributedDataParallel \
             `gradient_as_bucket_view=True`",
            "compile: train.py:5 has no name for Net; call `.compile()` on the model before its first step",
        ]
    );
    let patch = patch_of("def f(:\n", &note(places_of(LOOP)), &["tf32"]);
    assert_eq!(patch.by_hand.len(), 1, "{patch:?}");
    assert!(patch.by_hand[0].contains("cannot be read as Python"), "{patch:?}");
}

#[test]
fn a_name_of_a_comprehension_is_not_known_before_its_statement() {
    let text = "optimizers = {key: Adam(net.parameters()) for key, net in nets.items()}\n";
    let places = json!({ "modules": [module(at(text, "Adam("), "net.body")] });
    let patch = patch_of(text, &note(places), &["compile"]);
    assert_eq!(patch.files, []);
    assert!(patch.by_hand[0].starts_with("compile: train.py:1 has no name for Net;"), "{patch:?}");
}

#[test]
fn a_remedy_that_left_a_thing_alone_leaves_its_call_alone() {
    let mut note = note(places_of(LOOP));
    note.loaders[0].workers = 0;
    note.optimizers[0].fused = false;
    let patch = patch_of(LOOP, &note, &["loader-workers", "fused-optimizer"]);
    assert_eq!(patch.files, []);
}

#[test]
fn compilers_that_failed_are_forgiven_as_from_outside() {
    let mut note = note(places_of(LOOP));
    note.compile = serde_json::from_value(json!({ "graphs": 2, "failures": 1 })).expect("facts");
    let want = ["+import torch._dynamo", "+torch._dynamo.config.suppress_errors = True", "+model.compile()"];
    assert_eq!(difference(LOOP, &written(LOOP, &note, &["compile"])), want);
}

#[test]
fn attention_is_not_asked_for_weights() {
    let text = "class Block(nn.Module):\n    def forward(self, x):\n        y, _ = self.attention(x, x, x, mask)\n        return y\n\n\noptimizer = SGD(net)\n";
    let mut trained = module(at(text, "SGD("), "net");
    trained["eager"] = json!([]);
    trained["attentions"] = json!([at(text, "self.attention(")]);
    let after = written(text, &note(json!({ "modules": [trained] })), &["sdpa"]);
    assert_eq!(after, text.replace("x, mask)", "x, mask, need_weights=False)"));
}

#[test]
fn the_wrapper_of_ranks_gets_its_switches() {
    let text = "model = DDP(model, device_ids=[rank])\n";
    let places = json!({ "distributed": [made("DistributedDataParallel", at(text, "DDP("))] });
    let after = written(text, &note(places), &["ddp-bucket-view", "ddp-static-graph"]);
    assert_eq!(after, text.replace("[rank])", "[rank], gradient_as_bucket_view=True, static_graph=True)"));
}

#[test]
fn every_remedy_can_be_written_or_said() {
    for remedy in crate::remedies::REMEDIES {
        assert!(!remedy.edits.is_empty() && !remedy.by_hand.is_empty(), "{}", remedy.name);
        let patch = patch_of(LOOP, &Note::default(), &[remedy.name]);
        assert!(!patch.files.is_empty() || !patch.by_hand.is_empty(), "{}", remedy.name);
    }
}
