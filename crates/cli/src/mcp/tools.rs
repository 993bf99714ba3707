//! The tools: their arguments, and the `headroom` command behind each.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use rmcp::model::{Tool, ToolAnnotations};
use schemars::{JsonSchema, SchemaGenerator};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use tempfile::TempDir;

use super::allowed::Allowed;
use super::bounds::Page;
use super::folders::Folders;
use super::schemas;

/// A command that is ready to start.
pub struct Prepared {
    pub words: Vec<OsString>,
    pub page: Page,
    /// Files that determine the result, if it may be cached for the next page.
    pub reads: Vec<PathBuf>,
    /// Whether rows of other folders are left out of the result.
    pub of_these_folders: bool,
    /// Removed after the command ends.
    #[expect(dead_code, reason = "held until the command has ended, then removed by being dropped")]
    pub scratch: Option<TempDir>,
}

pub struct Offer {
    pub name: &'static str,
    title: &'static str,
    about: &'static str,
    input: fn() -> Map<String, Value>,
    prepare: fn(&Folders, &Allowed, Map<String, Value>) -> Result<Prepared>,
    /// Whether it takes much time and memory: only a few such commands run at the same time.
    pub is_heavy: bool,
}

pub const OFFERS: &[Offer] = &[
    Offer {
        name: "analyze",
        title: "Analyze a trace",
        about: "Find what holds a training run back in a profiler's trace (PyTorch's or headroom's): findings ranked by measured \
                cost, a roadmap, the parts of the step, operators and kernels. With `source`, findings name source lines.",
        input: input::<Analyze>,
        prepare: |folders, _, arguments| read::<Analyze>(arguments)?.prepared(folders),
        is_heavy: true,
    },
    Offer {
        name: "compare",
        title: "Compare two traces",
        about: "Compare two traces, or the traces in two folders: steps with an interval, operators, kernels, memory, resolved and \
                new findings. Limits such as \"step>5%\" make exit_code 1 if they are exceeded.",
        input: input::<Compare>,
        prepare: |folders, _, arguments| read::<Compare>(arguments)?.prepared(folders),
        is_heavy: true,
    },
    Offer {
        name: "explain",
        title: "Explain a rule",
        about: "The page of a rule by its code (TP101, TR104) or name: what it finds, why it is slow, an example, the fix, \
                how a trace proves it. Without a code: the list of all rules.",
        input: input::<Explain>,
        prepare: |_, _, arguments| read::<Explain>(arguments)?.prepared(),
        is_heavy: false,
    },
    Offer {
        name: "lint",
        title: "Lint training scripts",
        about: "Find bottlenecks in PyTorch training scripts and notebooks, with places and fixes. Changes nothing. With \
                `trace`, findings say what they cost.",
        input: input::<Lint>,
        prepare: |folders, _, arguments| read::<Lint>(arguments)?.prepared(folders),
        is_heavy: true,
    },
    Offer {
        name: "optimize",
        title: "Predict remedies for a script",
        about: "A dry run: lists the remedies that apply to a PyTorch script and their predicted savings, and tries none. It RUNS \
                the script's command twice, in a copy of the first folder, and only a command that the server was started with \
                (--allow-run).",
        input: input::<Optimize>,
        prepare: |_, allowed, arguments| read::<Optimize>(arguments)?.prepared(allowed),
        is_heavy: true,
    },
    Offer {
        name: "runs",
        title: "Look at recorded runs",
        about: "Runs of headroom in these folders: a list, newest first; one with its step times (`show`); or several side by side \
                with the change in step time (`compare`).",
        input: input::<Runs>,
        prepare: |_, _, arguments| read::<Runs>(arguments)?.prepared(),
        is_heavy: false,
    },
];

impl Offer {
    pub fn named(name: &str) -> Option<&'static Offer> {
        OFFERS.iter().find(|offer| offer.name == name)
    }

    pub fn prepared(
        &self,
        folders: &Folders,
        allowed: &Allowed,
        mut arguments: Map<String, Value>,
    ) -> Result<Prepared> {
        let page = Page::take(&mut arguments)?;
        let mut prepared = (self.prepare)(folders, allowed, arguments)?;
        let mut words: Vec<OsString> = Vec::new();
        for folder in folders.all() {
            words.extend(["--within".into(), folder.into()]);
        }
        words.append(&mut prepared.words);
        Ok(Prepared { words, page, ..prepared })
    }

    /// The tool as clients see it.
    pub fn tool(&self, allowed: &Allowed) -> Tool {
        let runs_scripts = self.name == "optimize" && !allowed.is_empty();
        let annotations = ToolAnnotations::with_title(self.title)
            .read_only(!runs_scripts)
            .destructive(runs_scripts)
            .idempotent(!runs_scripts)
            .open_world(runs_scripts);
        Tool::new(self.name, self.about, Arc::new((self.input)()))
            .with_title(self.title)
            .with_raw_output_schema(Arc::new(schemas::answer(self.name)))
            .with_annotations(annotations)
    }
}

/// The schema of a tool's arguments, including those that every tool has.
fn input<T: JsonSchema>() -> Map<String, Value> {
    let of = |schema: schemars::Schema| match schema.to_value() {
        Value::Object(object) => object,
        _ => Map::new(),
    };
    let mut whole = of(SchemaGenerator::default().into_root_schema_for::<T>());
    let page = of(SchemaGenerator::default().into_root_schema_for::<Page>());
    whole.remove("title");
    whole.remove("$schema");
    let properties = whole.entry("properties").or_insert_with(|| Value::Object(Map::new()));
    if let (Value::Object(all), Some(Value::Object(paging))) = (properties, page.get("properties")) {
        all.extend(paging.clone());
    }
    whole
}

fn read<T: DeserializeOwned>(arguments: Map<String, Value>) -> Result<T> {
    serde_json::from_value(Value::Object(arguments)).context("the arguments are not valid")
}

fn words<const N: usize>(words: [&str; N]) -> Vec<OsString> {
    words.map(OsString::from).to_vec()
}

/// `--name=value`, so that a value that begins with a dash stays a value.
fn option(name: &str, value: impl Into<OsString>) -> OsString {
    let mut word = OsString::from(format!("--{name}="));
    word.push(value.into());
    word
}

fn prepared(words: Vec<OsString>) -> Prepared {
    Prepared { words, page: Page::default(), reads: vec![], of_these_folders: false, scratch: None }
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Analyze {
    /// Traces (.json, .json.gz), or a folder with one file per rank
    traces: Vec<String>,
    /// Scripts that the trace was recorded from (files or folders): findings then name source lines
    #[serde(default)]
    source: Vec<String>,
    /// The rank to report on; by default the rank with the longest steps
    rank: Option<u32>,
    /// Milliseconds per step without the profiler, if known
    step_without_profiler_ms: Option<f64>,
    /// Thresholds at which rules fire, such as TR104=5%
    #[serde(default)]
    threshold: Vec<String>,
}

impl Analyze {
    fn prepared(self, folders: &Folders) -> Result<Prepared> {
        ensure!(!self.traces.is_empty(), "`traces` is empty\n  help: name a trace, or a folder of traces");
        let mut words = words(["analyze", "--format=json"]);
        words.extend(self.rank.map(|rank| option("rank", rank.to_string())));
        words.extend(self.step_without_profiler_ms.map(|time| option("step-without-profiler", time.to_string())));
        words.extend(self.threshold.iter().map(|threshold| option("threshold", threshold)));
        for source in &self.source {
            words.push(option("source", folders.place(source)?));
        }
        let traces = folders.traces(&self.traces)?;
        // Sources are whole projects, which are not watched.
        let reads =
            if self.source.is_empty() { traces.iter().map(|one| folders.first().join(one)).collect() } else { vec![] };
        words.push("--".into());
        words.extend(traces);
        Ok(Prepared { reads, ..prepared(words) })
    }
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Compare {
    /// The trace or folder before the change
    before: String,
    /// The trace or folder after the change
    after: String,
    /// Limits: "step>5%", "memory>10%", "op:aten::mm>20%"
    #[serde(default)]
    fail_if: Vec<String>,
}

impl Compare {
    fn prepared(self, folders: &Folders) -> Result<Prepared> {
        let mut words = words(["compare", "--json"]);
        words.extend(self.fail_if.iter().map(|limit| option("fail-if", limit)));
        let sides = folders.traces(&[self.before, self.after])?;
        let reads = sides.iter().map(|side| folders.first().join(side)).collect();
        words.push("--".into());
        words.extend(sides);
        Ok(Prepared { reads, ..prepared(words) })
    }
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Explain {
    /// A code or a name; without one, the list of rules
    code: Option<String>,
}

impl Explain {
    fn prepared(self) -> Result<Prepared> {
        let mut words = words(["explain", "--format=json", "--"]);
        words.extend(self.code.map(OsString::from));
        Ok(prepared(words))
    }
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Lint {
    /// Files and folders; the first folder of the server if none is given
    #[serde(default)]
    paths: Vec<String>,
    /// Only these rules: codes (TP101), groups (TP1), names, or all
    #[serde(default)]
    select: Vec<String>,
    /// All rules but these
    #[serde(default)]
    ignore: Vec<String>,
    /// Also findings that are seldom worth a change
    #[serde(default)]
    pedantic: bool,
    /// Traces of the scripts: findings show their measured cost
    #[serde(default)]
    trace: Vec<String>,
}

impl Lint {
    fn prepared(mut self, folders: &Folders) -> Result<Prepared> {
        if self.paths.is_empty() {
            self.paths.push(".".into());
        }
        let mut words = words(["lint", "--format=json"]);
        words.extend(self.select.iter().map(|rule| option("select", rule)));
        words.extend(self.ignore.iter().map(|rule| option("ignore", rule)));
        words.extend(self.pedantic.then(|| OsString::from("--pedantic")));
        words.extend(folders.traces(&self.trace)?.into_iter().map(|trace| option("trace", trace)));
        words.push("--".into());
        for path in &self.paths {
            // A lone dash would be standard input.
            ensure!(path != "-", "`-` is not a file\n  help: name a script or a folder");
            words.push(folders.place(path)?);
        }
        Ok(prepared(words))
    }
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Optimize {
    /// The script's command, such as ["python", "train.py"]; it is run
    command: Vec<String>,
    /// Steps to time
    steps: Option<u32>,
    /// Warm-up steps before them
    warmup_steps: Option<u32>,
    /// Seconds for everything
    time_limit: Option<u32>,
}

impl Optimize {
    fn prepared(self, allowed: &Allowed) -> Result<Prepared> {
        ensure!(!self.command.is_empty(), "`command` is empty\n  help: such as [\"python\", \"train.py\"]");
        allowed.check(&self.command)?;
        let mut words = words(["optimize", "--dry-run", "--json"]);
        let given = [("steps", self.steps), ("warmup-steps", self.warmup_steps), ("time-limit", self.time_limit)];
        words.extend(given.into_iter().filter_map(|(name, value)| Some(option(name, value?.to_string()))));
        let scratch = tempfile::tempdir().context("cannot make a folder for the measurements")?;
        words.push(option("output-dir", scratch.path().join("optimize")));
        words.push("--".into());
        words.extend(self.command.into_iter().map(OsString::from));
        Ok(Prepared { scratch: Some(scratch), ..prepared(words) })
    }
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Runs {
    /// One run: a number, a name, or newest
    show: Option<String>,
    /// Two or more runs side by side
    #[serde(default)]
    compare: Vec<String>,
    /// List only runs of this command: train, profile, optimize, study or scale
    command: Option<String>,
    /// List only runs in this state: running, finished, failed or interrupted
    status: Option<String>,
    /// List only runs of this size
    size: Option<String>,
}

impl Runs {
    fn prepared(self) -> Result<Prepared> {
        let words = match (self.show, &self.compare[..]) {
            (Some(_), [_, ..]) => bail!("`show` and `compare` cannot be combined: ask for one at a time"),
            (Some(run), []) => [words(["runs", "show", "--json", "--"]), vec![run.into()]].concat(),
            (None, [_, ..]) => {
                [words(["runs", "compare", "--json", "--"]), self.compare.iter().map(OsString::from).collect()].concat()
            }
            (None, []) => {
                let given = [("command", self.command), ("status", self.status), ("size", self.size)];
                let filters = given.into_iter().filter_map(|(name, value)| Some(option(name, value?)));
                words(["runs", "list", "--json", "--limit=0"]).into_iter().chain(filters).collect()
            }
        };
        Ok(Prepared { of_these_folders: true, ..prepared(words) })
    }
}
