//! Ten pairs of traces with one planted change each, made from stored traces: `compare` names the change first.

use std::io::Read;
use std::path::Path;

use headroom_diagnosis::compare::{SiteChange, Status, compare};
use headroom_diagnosis::{Analysis, Options, analyze};
use serde_json::{Value, json};

/// Pairs whose change has to be named first.
const FEWEST: usize = 9;

/// A stored trace that can be changed. Times are in microseconds, as in the file.
#[derive(Clone)]
struct Recording(Value);

impl Recording {
    fn stored(path: &str) -> Recording {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path);
        let mut text = String::new();
        flate2::read::GzDecoder::new(std::fs::File::open(path).unwrap()).read_to_string(&mut text).unwrap();
        Recording(serde_json::from_str(&text).unwrap())
    }

    fn torch(name: &str) -> Recording {
        Recording::stored(&format!("trace/tests/data/{name}.pt.trace.json.gz"))
    }

    fn events(&mut self) -> &mut Vec<Value> {
        self.0["traceEvents"].as_array_mut().unwrap()
    }

    fn analysis(&self) -> Analysis {
        let trace = headroom_trace::read_bytes(self.0.to_string().as_bytes()).unwrap();
        analyze(&[trace], &Options { sites: true, ..Options::default() }).unwrap()
    }

    /// Start, duration and index of the spans that are wanted, the last one first.
    fn spans(&mut self, is_wanted: impl Fn(&Value) -> bool) -> Vec<(f64, f64, usize)> {
        let events = self.events().iter().enumerate();
        let mut found: Vec<(f64, f64, usize)> = events
            .filter(|(_, event)| event["ph"] == "X" && is_wanted(event))
            .map(|(at, event)| (event["ts"].as_f64().unwrap(), event["dur"].as_f64().unwrap_or(0.0), at))
            .collect();
        found.sort_by(|left, right| right.0.total_cmp(&left.0));
        found
    }

    /// Lets everything that runs at a moment take longer, and everything later start later.
    fn insert(&mut self, moment: f64, micros: f64) {
        for event in self.events() {
            let Some(start) = event["ts"].as_f64() else { continue };
            let end = start + event["dur"].as_f64().unwrap_or(0.0);
            if start >= moment {
                event["ts"] = json!(start + micros);
            } else if end > moment {
                event["dur"] = json!(end - start + micros);
            }
        }
    }

    /// The host takes longer at each of the wanted spans, just after it began.
    fn slower_host(&mut self, micros: f64, is_wanted: impl Fn(&Value) -> bool) {
        let spans = self.spans(is_wanted);
        assert!(!spans.is_empty());
        spans.into_iter().for_each(|(start, _, _)| self.insert(start + 0.05, micros));
    }

    /// Device work launched by the wanted operators takes `times` as long; later work of its stream is pushed back.
    fn slower_device(&mut self, times: f64, is_wanted: impl Fn(&Value) -> bool) {
        let operators: Vec<Value> = self
            .events()
            .iter()
            .filter(|event| event["cat"] == "cpu_op" && is_wanted(event))
            .map(|event| event["args"]["External id"].clone())
            .collect();
        self.stretch(times, |event| operators.contains(&event["args"]["External id"]));
    }

    fn stretch(&mut self, times: f64, is_wanted: impl Fn(&Value) -> bool) {
        let is_work = |event: &Value| {
            event["cat"].as_str().is_none_or(|category| ["kernel", "gpu_memcpy", "gpu_memset"].contains(&category))
        };
        let mut work = self.spans(|event| is_work(event) && event["pid"].as_u64().is_some_and(|pid| pid < 8));
        work.reverse();
        let mut free: Vec<(Value, f64)> = Vec::new();
        let mut count = 0;
        for (start, duration, at) in work {
            let event = &mut self.events()[at];
            let is_one = is_wanted(event);
            count += usize::from(is_one);
            let lane = match free.iter_mut().find(|(lane, _)| *lane == event["tid"]) {
                Some(lane) => lane,
                None => {
                    free.push((event["tid"].clone(), f64::MIN));
                    free.last_mut().unwrap()
                }
            };
            let (start, duration) = (start.max(lane.1), if is_one { times * duration } else { duration });
            lane.1 = start + duration;
            (event["ts"], event["dur"]) = (json!(start), json!(duration));
        }
        assert!(count > 0);
    }

    /// A new operator at the beginning of each of the wanted spans, with one kernel or one wait.
    fn with_operator(&mut self, name: &str, dims: Value, call: &str, is_wanted: impl Fn(&Value) -> bool) {
        const HOST: f64 = 120.0;
        let spans = self.spans(is_wanted);
        assert!(!spans.is_empty());
        for (number, (start, _, at)) in spans.into_iter().enumerate() {
            let (pid, tid) = (self.events()[at]["pid"].clone(), self.events()[at]["tid"].clone());
            let (moment, id) = (start + 0.05, 9_000_000 + number);
            self.insert(moment, HOST);
            let args = json!({"External id": id, "Input Dims": dims, "correlation": id});
            let span = |category: &str, name: &str, from: f64, length: f64| {
                json!({"ph": "X", "cat": category, "name": name, "pid": pid, "tid": tid, "ts": moment + from,
                       "dur": length, "args": args})
            };
            let mut added = vec![span("cpu_op", name, 1.0, HOST - 2.0), span("cuda_runtime", call, 5.0, HOST - 20.0)];
            if call.contains("Launch") {
                added.push(json!({"ph": "X", "cat": "kernel", "name": "made_up_kernel", "pid": 0, "tid": 7,
                    "ts": moment + 60.0, "dur": 50.0,
                    "args": {"External id": id, "correlation": id, "device": 0, "stream": 7}}));
            }
            self.events().extend(added);
        }
    }
}

fn is_named(name: &'static str) -> impl Fn(&Value) -> bool {
    move |event| event["name"] == name
}

fn is_at(name: &'static str, dims: Value) -> impl Fn(&Value) -> bool {
    move |event| event["name"] == name && event["args"]["Input Dims"] == dims
}

/// Changes one side of a pair, and says what has to be named.
struct Plant {
    of: &'static str,
    before: Recording,
    after: Recording,
    name: &'static str,
    place: &'static str,
    status: Status,
}

fn plant(
    of: &'static str,
    before: Recording,
    name: &'static str,
    status: Status,
    change: impl Fn(&mut Recording),
) -> Plant {
    let mut after = before.clone();
    change(&mut after);
    Plant { of, before, after, name, place: "", status }
}

fn plants() -> Vec<Plant> {
    let [slow, fixed, tiny] = ["slow", "fixed", "tiny_llama_v1"].map(Recording::torch);
    let head = json!([[5000], [4096, 256], [256, 5000], [], []]);
    let product = json!([[1024, 256], [256, 512]]);
    let is_forward = |event: &Value| {
        event["cat"] == "python_function" && event["name"].as_str().unwrap().ends_with("train.py(20): forward")
    };
    let clone =
        |one: &mut Recording| one.with_operator("aten::clone", json!([[4096, 256]]), "cudaLaunchKernel", is_forward);
    let mut with_clone = fixed.clone();
    clone(&mut with_clone);
    let mut plants = vec![
        plant(
            "one product at one size takes three times as long",
            slow.clone(),
            "aten::addmm",
            Status::Slower,
            |one| {
                one.slower_device(3.0, is_at("aten::addmm", head.clone()));
            },
        ),
        plant(
            "an operator takes 40 µs longer on the host",
            slow.clone(),
            "aten::linalg_vector_norm",
            Status::Slower,
            |one| {
                one.slower_host(40.0, is_named("aten::linalg_vector_norm"));
            },
        ),
        plant("a copy is made in forward", fixed.clone(), "aten::clone", Status::New, clone),
        plant("fetching a batch takes 5 ms longer", slow.clone(), FETCH, Status::Slower, |one| {
            one.slower_host(5000.0, is_named(FETCH));
        }),
        plant("a value is read back in forward", fixed.clone(), "aten::item", Status::New, |one| {
            one.with_operator("aten::item", json!([[]]), "cudaStreamSynchronize", is_forward);
        }),
        plant("one product gets larger", tiny.clone(), "aten::mm", Status::OtherSizes, |one| {
            one.slower_device(2.0, is_at("aten::mm", product.clone()));
            for event in one.events() {
                if is_at("aten::mm", product.clone())(event) {
                    event["args"]["Input Dims"] = json!([[1024, 256], [256, 1024]]);
                }
            }
        }),
        plant(
            "copies from the host take twice as long",
            Recording::torch("graphed_copies"),
            "aten::copy_",
            Status::Slower,
            |one| {
                let copies = one.spans(|event| event["cat"] == "gpu_memcpy");
                copies.into_iter().for_each(|(start, duration, _)| one.insert(start + duration / 2.0, duration));
            },
        ),
        plant(
            "one kernel of JAX takes longer",
            Recording::stored("trace/tests/data/jax_gpu.trace.json.gz"),
            "loop_add_fusion",
            Status::Slower,
            |one| {
                one.stretch(8.0, |event| event["name"] == "loop_add_fusion");
            },
        ),
        plant("a function of the script takes 60 µs longer", slow, "<lambda>", Status::Slower, |one| {
            one.slower_host(60.0, |event| event["name"].as_str().unwrap().ends_with("<lambda>"));
        }),
    ];
    plants[0].place = "forward";
    plants[2].place = "forward";
    plants.push(Plant {
        of: "a copy in forward is removed",
        before: with_clone,
        after: fixed,
        name: "aten::clone",
        place: "forward",
        status: Status::Gone,
    });
    plants
}

const FETCH: &str = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__";

fn is_first(plant: &Plant, changes: &[SiteChange]) -> bool {
    changes.first().is_some_and(|first| {
        first.name.contains(plant.name) && first.place.contains(plant.place) && first.status == plant.status
    })
}

#[test]
fn the_planted_change_of_nine_pairs_in_ten_is_named_first() {
    let plants = plants();
    assert_eq!(plants.len(), 10);
    let mut missed = Vec::new();
    for plant in &plants {
        let comparison = compare(&plant.before.analysis(), &plant.after.analysis());
        if !is_first(plant, &comparison.changes) {
            let first: Vec<String> = comparison
                .changes
                .iter()
                .take(3)
                .map(|row| format!("{:?} {} {} {:.1e}", row.status, row.name, row.place, row.growth_seconds))
                .collect();
            missed.push(format!("{}: {}", plant.of, first.join("; ")));
        }
    }
    assert!(plants.len() - missed.len() >= FEWEST, "{missed:#?}");
}

#[test]
fn a_trace_compared_with_itself_has_no_change() {
    let analysis = Recording::torch("slow").analysis();
    let comparison = compare(&analysis, &analysis);
    assert!(comparison.changes.is_empty(), "{:?}", comparison.changes);
    assert!(comparison.findings_gone.is_empty() && comparison.findings_new.is_empty());
    assert!(comparison.findings_grown.is_empty() && comparison.withheld.is_empty());
}

#[test]
fn a_finding_whose_time_grew_is_not_gone() {
    let analysis =
        |run: &str| Recording::stored(&format!("diagnosis/tests/data/runs/{run}/trace_step_4_6.json.gz")).analysis();
    // A model ten times as large: an operator is nearer to its roof, and takes ten times as long.
    let comparison = compare(&analysis("cpu-nano-v2"), &analysis("cpu-tiny-all"));
    let is_about = |line: &String| line.contains("TR113 below-roof") && line.contains("`linears`");
    assert!(comparison.findings_grown.iter().any(is_about), "{:?}", comparison.findings_grown);
    assert!(!comparison.findings_gone.iter().any(is_about), "{:?}", comparison.findings_gone);
    assert!(comparison.findings_gone.iter().any(|line| line.contains("`cross_entropy`")), "it is fused, and gone");
}

#[test]
fn lines_that_moved_and_a_renamed_folder_match() {
    let before = Recording::torch("slow");
    let mut after = before.clone();
    for event in after.events() {
        if let Some(name) = event["name"].as_str().filter(|name| name.starts_with("project/slow/train.py(")) {
            event["name"] = json!(
                name.replace("project/slow/train.py(5", "elsewhere/train.py(7").replace("project/slow/", "elsewhere/")
            );
        }
    }
    let comparison = compare(&before.analysis(), &after.analysis());
    assert!(comparison.changes.is_empty(), "{:?}", comparison.changes);
}

#[test]
fn figures_that_one_trace_withholds_or_lacks_are_not_compared() {
    let before = Recording::torch("slow");
    let mut without_memory = before.clone();
    without_memory.events().retain(|event| event["name"] != "[memory]");
    let names = |after: &Recording| {
        let comparison = compare(&before.analysis(), &after.analysis());
        let rows: Vec<String> = comparison.figures.iter().map(|row| row.name.clone()).collect();
        (rows, comparison)
    };
    let (rows, comparison) = names(&without_memory);
    assert!(!rows.iter().any(|row| row == "peak memory bytes"), "{rows:?}");
    assert!(
        comparison.notes.iter().any(|note| note.starts_with("peak memory is recorded only before")),
        "{:?}",
        comparison.notes
    );
    let judged = "memory>5%".parse::<headroom_diagnosis::compare::Limit>().unwrap().judge(&comparison).unwrap();
    assert_eq!(judged.note, Some("one of the traces does not record it"));
    // Most kernels are lost, so idle time is withheld.
    let mut with_losses = before.clone();
    let mut number = 0;
    with_losses.events().retain(|event| {
        number += usize::from(event["cat"] == "kernel");
        event["cat"] != "kernel" || number % 4 == 0
    });
    let (rows, comparison) = names(&with_losses);
    assert!(!rows.iter().any(|row| row.starts_with("idle") || row.starts_with("busy")), "{rows:?}");
    assert_eq!(comparison.withheld, ["busy share", "idle seconds per step"]);
    assert!(!comparison.findings_gone.iter().any(|line| line.starts_with("TR103")), "{:?}", comparison.findings_gone);
    let judged = "idle>5%".parse::<headroom_diagnosis::compare::Limit>().unwrap().judge(&comparison).unwrap();
    assert_eq!(judged.note, Some("withheld: a trace does not show it"));
}
