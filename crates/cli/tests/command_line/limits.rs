//! Adversarial files: each is answered within a stated time and memory.
//!
//! The system enforces CPU time (`ulimit -t`) and memory (`ulimit -v`, address space, of which a program uses a part).
//! A reader of traces may take twice the file plus 256 MiB, and a reader of scripts 200 bytes per byte of the script
//! plus 256 MiB, both in addition to what the program needs for an empty file.

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;

use crate::place::Place;

/// Allows for unoptimized builds and busy machines: anything quadratic in these files takes minutes.
const SECONDS: u64 = 20;
/// For code, stacks of threads and an empty file.
const PROGRAM_KIB: u64 = 300 << 10;
const BESIDE_KIB: u64 = 256 << 10;

/// A shell line that limits the command to this many bytes per byte of its file.
fn limited(file_bytes: usize, per_byte: u64, command: &str) -> String {
    let kib = per_byte * file_bytes as u64 / 1024 + BESIDE_KIB + PROGRAM_KIB;
    format!("ulimit -t {SECONDS}; ulimit -v {kib}; $HEADROOM {command}")
}

/// Any answer is fine, as long as there is one.
fn is_answered(place: &Place, command: &str, name: &str, bytes: &[u8], per_byte: u64) {
    place.write(name, bytes);
    let done = place.shell(&limited(bytes.len(), per_byte, &format!("{command} {name} > answer 2> errors")));
    let errors = String::from_utf8_lossy(&place.read("errors")).into_owned();
    let code = done.code.unwrap_or(-1);
    assert!((0..=2).contains(&code), "{command} {name}: ended with {code}\n{errors}");
    assert!(!errors.contains("panicked") && !errors.contains("memory"), "{command} {name}\n{errors}");
    std::fs::remove_file(place.path(name)).unwrap();
}

fn event(category: &str, name: &str, thread: usize, start: usize, duration: usize, more: &str) -> String {
    format!(
        r#"{{"ph":"X","cat":"{category}","name":"{name}","pid":1,"tid":{thread},"ts":{start},"dur":{duration}{more}}}"#
    )
}

fn list(events: impl Iterator<Item = String>) -> String {
    format!("[{}]", events.collect::<Vec<_>>().join(","))
}

#[test]
fn traces_that_were_made_to_take_too_much() {
    const EVENTS: std::ops::Range<usize> = 0..60_000;
    let place = Place::new();
    let threads = list(EVENTS.map(|at| event("cpu_op", "a", at, at, 5, "")));
    let keys: Vec<String> = (0..300_000).map(|at| format!("\"k{at}\":{at}")).collect();
    let dims = |at| format!(r#","args":{{"Input Dims":[[{at},{at}],[{at},{at}]],"Input type":["float","float"]}}"#);
    let kernel = |at| format!(r#","args":{{"stream":{at},"device":0,"correlation":{at}}}"#);
    let flow = |at: usize| {
        let phase = if at.is_multiple_of(2) { "s" } else { "f" };
        format!(r#"{{"ph":"{phase}","cat":"ac2g","id":7,"name":"ac2g","pid":1,"tid":1,"ts":{at}}}"#)
    };
    let traces = [
        ("unclosed", format!("{{\"traceEvents\":[{}", "{\"x\":[{},".repeat(400_000))),
        ("brackets", "[".repeat(4_000_000)),
        ("objects", "{\"a\":".repeat(1_000_000)),
        ("long_name", list(std::iter::once(event("cpu_op", &"a".repeat(8_000_000), 1, 1, 5, "")))),
        ("escapes", list(std::iter::once(event("cpu_op", &"\\u0000".repeat(1_000_000), 1, 1, 5, "")))),
        (
            "digits",
            format!("[{{\"ph\":\"X\",\"name\":\"a\",\"pid\":1,\"tid\":1,\"dur\":1,\"ts\":{}}}]", "9".repeat(4_000_000)),
        ),
        ("keys", list(std::iter::once(event("cpu_op", "a", 1, 1, 5, &format!(",\"args\":{{{}}}", keys.join(",")))))),
        ("one_moment", list(EVENTS.map(|_| event("cpu_op", "a", 1, 7, 9, "")))),
        (
            "stacks",
            list(EVENTS.map(|at| event("python_function", &format!("t.py({at}): f"), 1, at, 200_000 - 2 * at, ""))),
        ),
        ("shapes", list(EVENTS.map(|at| event("cpu_op", "aten::mm", 1, 9 * at, 5, &dims(at))))),
        ("streams", list(EVENTS.map(|at| event("kernel", &format!("k{at}"), at, 3 * at, 2, &kernel(at))))),
        ("flows", list(EVENTS.map(flow))),
        ("threads", threads.clone()),
    ];
    for (name, text) in traces {
        is_answered(&place, "analyze --format html", &format!("{name}.json"), text.as_bytes(), 2);
    }
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(threads.as_bytes()).unwrap();
    let packed = packed.finish().unwrap();
    let unpacked = 2 * (threads.len() / packed.len()) as u64;
    is_answered(&place, "analyze --format json", "cut_off.json.gz", &packed[..packed.len() / 2], unpacked);
}

#[test]
fn scripts_that_were_made_to_take_too_much() {
    let place = Place::new();
    let step = "import torch\ndef train(model, loader, optimizer):\n    for x in loader:\n        loss = model(x.cuda())\n        \
                loss.backward()\n        optimizer.step()\n";
    let lines = |count: usize, line: &dyn Fn(usize) -> String| (0..count).map(line).collect::<String>();
    let branches = lines(1_000, &|at| format!("        elif x > {at}:\n            y = loss.item()\n"));
    let calls = lines(3_000, &|at| {
        let others =
            [7 * at + 1, 13 * at + 5, 31 * at + 2].map(|other| format!("    f{}(model, loss)\n", other % 3_000));
        format!("def f{at}(model, loss):\n{}    print(loss.item())\n", others.concat())
    });
    let classes = lines(3_000, &|at| {
        let base = at.saturating_sub(1);
        format!("class C{at}(C{base}):\n    def forward(self, x):\n        return super().forward(x).item()\n")
    });
    let blocks = lines(2_000, &|at| format!("{}if x:\n", " ".repeat(at)));
    let names = lines(20_000, &|at| format!("        a{at} = a{} + a{}\n", at.saturating_sub(1), at.saturating_sub(2)));
    let values = lines(20_000, &|at| format!("        v{at} = loss.item()\n"));
    let chain = "        loss = loss + loss.item()\n".repeat(500);
    let cells =
        vec![r#"{"cell_type":"code","metadata":{},"outputs":[],"source":["x = loss.item()\n"]}"#; 20_000].join(",");
    let scripts = [
        ("branches.py", format!("{step}        if x > 0:\n            pass\n{branches}")),
        ("reads.py", format!("{step}{}", "        print(loss.item())\n".repeat(5_000))),
        ("values.py", format!("{step}{values}")),
        ("chain.py", format!("{step}{chain}")),
        ("calls.py", format!("import torch\n{calls}{step}        f0(model, loss)\n")),
        ("classes.py", format!("import torch\n{classes}{step}")),
        ("names.py", format!("{step}{names}")),
        ("blocks.py", blocks),
        ("brackets.py", format!("x = {}", "(".repeat(200_000))),
        ("sum.py", format!("x = {}a\n", "a+".repeat(500_000))),
        ("quotes.py", format!("x = {}", "\"\"\"".repeat(300_001))),
        ("formatted.py", format!("x = {}", "f\"{".repeat(100_000))),
        ("continued.py", format!("{}\\\n", "\t".repeat(50)).repeat(100_000)),
        ("nothing.py", "\0".repeat(2_000_000)),
        ("closing.py", ")\n".repeat(1_000_000)),
        ("deep.ipynb", format!("{{\"cells\":{}", "[".repeat(500_000))),
        ("cells.ipynb", format!("{{\"cells\":[{cells}],\"metadata\":{{}},\"nbformat\":4,\"nbformat_minor\":5}}")),
    ];
    for (name, text) in scripts {
        is_answered(&place, "lint --pedantic", name, text.as_bytes(), 200);
        is_answered(&place, "lint --pedantic --unsafe-fixes --diff", name, text.as_bytes(), 200);
    }
    place.write("train.py", step);
    let settings = format!("select = {}", "[".repeat(200_000));
    place.write("headroom.toml", &settings);
    let done = place.shell(&limited(settings.len(), 200, "lint train.py"));
    assert!((0..=2).contains(&done.code.unwrap_or(-1)), "{:?}\n{}", done.code, done.stderr);
}

#[test]
fn checkpoints_that_were_made_to_take_too_much() {
    let place = Place::new();
    place.succeeds("train --size nano --num-steps 1 --save good");
    let with_header = |length: u64, header: &str| [&length.to_le_bytes()[..], header.as_bytes()].concat();
    let brackets = "[".repeat(4_000_000);
    let huge = r#"{"tok_embeddings.weight":{"dtype":"F32","shape":[1152921504606846976,4],"data_offsets":[0,18446744073709551615]}}"#;
    let names: Vec<String> =
        (0..60_000).map(|at| format!(r#""t{at}":{{"dtype":"F32","shape":[0],"data_offsets":[0,0]}}"#)).collect();
    let names = format!("{{{}}}", names.join(","));
    for (name, bytes) in [
        ("length", with_header(1 << 62, "{}")),
        ("brackets", with_header(brackets.len() as u64, &brackets)),
        ("huge", with_header(huge.len() as u64, huge)),
        ("names", with_header(names.len() as u64, &names)),
        ("short", vec![1, 2, 3]),
    ] {
        place.copy("good", name);
        place.write(&format!("{name}/model.safetensors"), &bytes);
        let done = place.shell(&limited(bytes.len(), 2, &format!("train --resume {name} --num-steps 2")));
        done.is_error(2, name, &["model.safetensors"]);
    }
}
