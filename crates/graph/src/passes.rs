//! The optimisations: graph rewrites, one file each, plus one way to execute the result, and the lists of passes that
//! make up the versions.

mod checkpoint;
pub mod decode;
mod flash_attention;
pub mod fp8;
mod fuse_linears;
pub mod fuse_loss;
mod fuse_norm;
mod fuse_optimizer;
mod fuse_rope;
mod fuse_swiglu;
pub mod parallel;
pub mod zero1;

pub use checkpoint::{checkpoint, layers};

use crate::graph::{Graph, GraphError};
use crate::pass::Pass;
use parallel::{BUCKET, BUCKET_BYTES, DATA_PARALLEL, OVERLAP, Parallel};
use zero1::ZERO1;

/// Builds one graph from another.
pub type Rewrite = fn(&Graph) -> Result<Graph, GraphError>;

/// The part of a step that a pass changes.
#[derive(Clone, Copy)]
pub enum Change {
    /// The forward pass: the gradient of the fused ops is the fused backward pass.
    Forward(Rewrite),
    /// The whole step.
    Step(Rewrite),
    /// Only the way a device executes the calls; the graph stays the same.
    Execution,
}

/// Cost of making the change in a hand-written trainer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effort {
    Low,
    Medium,
    High,
}

impl Effort {
    pub fn name(self) -> &'static str {
        match self {
            Effort::Low => "low",
            Effort::Medium => "medium",
            Effort::High => "high",
        }
    }
}

/// A pass as it is offered to users.
#[derive(Clone, Copy)]
pub struct Offered {
    pub name: &'static str,
    pub about: &'static str,
    pub change: Change,
    /// Largest relative difference of loss and gradients (in norm) from the graph without it.
    pub tolerance: f64,
    /// Passes that must run first, or it finds nothing to do.
    pub needs: &'static [&'static str],
    pub effort: Effort,
    /// Phase of the workshop's roadmap: 1 is kernel fusion, 2 attention, 3 everything else.
    pub phase: u8,
}

impl Offered {
    /// Whether it rewrites only the forward pass.
    pub fn changes_forward(&self) -> bool {
        matches!(self.change, Change::Forward(_))
    }

    /// Whether it only changes how a device executes the calls.
    pub fn changes_execution(&self) -> bool {
        matches!(self.change, Change::Execution)
    }
}

/// Runs the calls of a step as one prepared list.
pub const GRAPH_REPLAY: &str = "graph-replay";

/// Every pass of `all`, in order of application.
pub const OFFERED: [Offered; 9] = [
    Offered {
        name: "fuse-qkv",
        about: "the q, k and v projections become one product",
        change: Change::Forward(fuse_linears::fuse_qkv),
        tolerance: 1e-5,
        needs: &[],
        effort: Effort::Low,
        phase: 1,
    },
    Offered {
        name: "fuse-gate-up",
        about: "the gate and up projections become one product",
        change: Change::Forward(fuse_linears::fuse_gate_up),
        tolerance: 1e-5,
        needs: &[],
        effort: Effort::Low,
        phase: 1,
    },
    Offered {
        name: "fuse-swiglu",
        about: "silu and multiply in one kernel, forward and backward",
        change: Change::Forward(fuse_swiglu::rewrite),
        tolerance: 1e-5,
        needs: &[],
        effort: Effort::Low,
        phase: 1,
    },
    Offered {
        name: "fuse-norm",
        about: "residual add and RMSNorm in one kernel, forward and backward",
        change: Change::Forward(fuse_norm::rewrite),
        tolerance: 1e-5,
        needs: &[],
        effort: Effort::Medium,
        phase: 1,
    },
    Offered {
        name: "flash-attention",
        about: "tiled attention: no seq × seq tensor, masked blocks skipped, backward recomputes",
        change: Change::Forward(flash_attention::rewrite),
        tolerance: 1e-5,
        needs: &[],
        effort: Effort::High,
        phase: 2,
    },
    Offered {
        name: "fuse-rope",
        about: "the rotation of q and k happens as attention loads them",
        change: Change::Forward(fuse_rope::rewrite),
        tolerance: 1e-5,
        needs: &["flash-attention"],
        effort: Effort::High,
        phase: 1,
    },
    Offered {
        name: "fuse-loss",
        about: "LM head and cross-entropy in chunks: the logits of all tokens never exist at the same time",
        change: Change::Forward(fuse_loss::rewrite),
        tolerance: 1e-5,
        needs: &[],
        effort: Effort::High,
        phase: 3,
    },
    Offered {
        name: "fuse-optimizer",
        about: "one AdamW for all parameters, clipping included",
        change: Change::Step(fuse_optimizer::rewrite),
        tolerance: 1e-6,
        needs: &[],
        effort: Effort::Medium,
        phase: 3,
    },
    Offered {
        name: GRAPH_REPLAY,
        about: "the calls of a step run as one prepared list, with the thread team held together between them",
        change: Change::Execution,
        tolerance: 1e-6,
        needs: &[],
        effort: Effort::Low,
        phase: 3,
    },
];

/// Version 2 of the workshop.
pub const VERSION_2: [&str; 4] = ["fuse-qkv", "fuse-gate-up", "flash-attention", "fuse-optimizer"];

/// A chosen list of passes, in order of application.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PassList {
    names: Vec<&'static str>,
    /// Whether activations are recomputed even if memory does not require it.
    checkpoint: bool,
    among: Among,
}

/// The ranks that a list is for, and which of the passes for several ranks were requested or excluded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Among {
    /// Absent if there is only one rank.
    ranks: Option<usize>,
    /// On by default, except in Version 1.
    bucket: Option<bool>,
    bucket_bytes: Option<usize>,
    overlap: Option<bool>,
    /// Off by default.
    zero1: bool,
}

/// The pass that recomputes activations; the plan decides how many layers.
pub const CHECKPOINT: &str = "checkpoint";

impl PassList {
    pub fn none() -> PassList {
        PassList::default()
    }

    pub fn all() -> PassList {
        PassList { names: OFFERED.iter().map(|pass| pass.name).collect(), ..PassList::default() }
    }

    pub fn version_2() -> PassList {
        PassList::none().with_all(&VERSION_2)
    }

    /// Parses `none`, `v1`, `v2`, `all` or pass names, with `+name` and `-name` on top, separated by commas. A list
    /// that begins with `+` or `-` changes the default, `v2`.
    pub fn parse(text: &str) -> Result<PassList, String> {
        let changes_default = text.trim_start().starts_with(['+', '-']);
        let mut list = if changes_default { PassList::version_2() } else { PassList::none() };
        for (index, word) in text.split(',').map(str::trim).filter(|word| !word.is_empty()).enumerate() {
            list = match (word, index) {
                ("none" | "v1", 0) => PassList::none(),
                ("v2", 0) => PassList::version_2(),
                ("all", 0) => PassList::all(),
                _ if word.trim_start_matches(['+', '-']) == CHECKPOINT => {
                    PassList { checkpoint: !word.starts_with('-'), ..list }
                }
                _ if of_ranks(word) => list.with_ranks_word(word)?,
                _ => match word.strip_prefix('-') {
                    Some(name) => list.without(known(name)?),
                    None => list.with(known(word.strip_prefix('+').unwrap_or(word))?),
                },
            };
        }
        Ok(list)
    }

    pub fn names(&self) -> &[&'static str] {
        &self.names
    }

    pub fn asks_for_checkpoint(&self) -> bool {
        self.checkpoint
    }

    pub fn contains(&self, name: &str) -> bool {
        self.names.contains(&name)
    }

    pub fn with(&self, name: &str) -> PassList {
        let keep = |offered: &&Offered| offered.name == name || self.contains(offered.name);
        PassList { names: OFFERED.iter().filter(keep).map(|offered| offered.name).collect(), ..self.clone() }
    }

    pub fn without(&self, name: &str) -> PassList {
        PassList { names: self.names.iter().copied().filter(|other| *other != name).collect(), ..self.clone() }
    }

    fn with_all(&self, names: &[&str]) -> PassList {
        names.iter().fold(self.clone(), |list, name| list.with(name))
    }

    /// The same list for a step on one of several ranks.
    pub fn among(&self, ranks: usize) -> PassList {
        let ranks = Some(ranks).filter(|ranks| *ranks > 1);
        PassList { among: Among { ranks, ..self.among }, ..self.clone() }
    }

    /// How a step is divided among ranks, if there are several.
    pub fn parallel(&self) -> Option<Parallel> {
        let Among { ranks, bucket, bucket_bytes, overlap, zero1 } = self.among;
        let usual = !self.names.is_empty();
        Some(Parallel {
            ranks: ranks?,
            bucket: bucket.unwrap_or(usual),
            bucket_bytes: bucket_bytes.unwrap_or(BUCKET_BYTES),
            overlap: overlap.unwrap_or(usual),
            zero1,
        })
    }

    /// Whether a pass was requested that only makes sense with several ranks.
    pub fn asks_for_ranks(&self) -> bool {
        self.among.bucket == Some(true) || self.among.overlap == Some(true) || self.among.zero1
    }

    fn with_ranks_word(&self, word: &str) -> Result<PassList, String> {
        let (name, on) = (word.trim_start_matches(['+', '-']), !word.starts_with('-'));
        let among = match name {
            BUCKET => Among { bucket: Some(on), ..self.among },
            _ if name.starts_with(BUCKET) => {
                Among { bucket: Some(true), bucket_bytes: Some(bucket_bytes(name)?), ..self.among }
            }
            OVERLAP => Among { overlap: Some(on), ..self.among },
            ZERO1 => Among { zero1: on, ..self.among },
            _ if on => self.among,
            _ => {
                return Err(format!(
                    "`{DATA_PARALLEL}` cannot be left out: without it every rank would train a model of its own"
                ));
            }
        };
        Ok(PassList { among, ..self.clone() })
    }

    /// Passes that rewrite the forward pass.
    pub fn on_forward(&self) -> Vec<Pass> {
        self.rewriting(|change| match change {
            Change::Forward(rewrite) => Some(rewrite),
            _ => None,
        })
    }

    /// Passes that rewrite the whole step.
    pub fn on_step(&self) -> Vec<Pass> {
        self.rewriting(|change| match change {
            Change::Step(rewrite) => Some(rewrite),
            _ => None,
        })
    }

    /// Whether the calls of a step run as one prepared list.
    pub fn replays(&self) -> bool {
        self.contains(GRAPH_REPLAY)
    }

    fn rewriting(&self, wanted: impl Fn(Change) -> Option<Rewrite>) -> Vec<Pass> {
        let chosen = OFFERED.iter().filter(|offered| self.contains(offered.name));
        chosen.filter_map(|offered| Some(Pass { name: offered.name, rewrite: wanted(offered.change)? })).collect()
    }

    /// `v1`, `v2`, `all`, or the names joined by `+`.
    pub fn label(&self) -> String {
        let label = match &self.names {
            names if names.is_empty() => "v1".into(),
            names if *names == PassList::version_2().names => "v2".into(),
            names if *names == PassList::all().names => "all".into(),
            names => names.join("+"),
        };
        let label = if self.checkpoint { format!("{label}+{CHECKPOINT}") } else { label };
        match self.parallel() {
            Some(parallel) => format!("{label}+{}", parallel.names().join("+")),
            None => label,
        }
    }

    /// The shortest text that `parse` reads as this list: its names, or a change of `v2` or `all`.
    pub fn flag(&self) -> String {
        let changed = |name: &str, base: PassList| {
            let added = self.names.iter().filter(|pass| !base.contains(pass)).map(|pass| format!(",+{pass}"));
            let removed = base.names.iter().filter(|pass| !self.contains(pass)).map(|pass| format!(",-{pass}"));
            added.chain(removed).fold(name.to_string(), |text, change| text + &change)
        };
        let named = PassList { names: self.names.clone(), ..PassList::default() }.label();
        let rest = self.label()[named.len()..].replace('+', ",");
        let named = named.replace('+', ",");
        let shorter = [changed("v2", PassList::version_2()), changed("all", PassList::all())];
        shorter.into_iter().fold(named, |best, other| if other.len() < best.len() { other } else { best }) + &rest
    }
}

/// Passes that apply to several ranks.
const OF_RANKS: [&str; 4] = [DATA_PARALLEL, ZERO1, BUCKET, OVERLAP];

fn of_ranks(word: &str) -> bool {
    let name = word.trim_start_matches(['+', '-']);
    OF_RANKS.contains(&name) || name.split_once('=').is_some_and(|(name, _)| name == BUCKET && !word.starts_with('-'))
}

/// Parses the size in `bucket=64KiB` or `bucket=4MiB`.
fn bucket_bytes(word: &str) -> Result<usize, String> {
    let size = word.split_once('=').map_or("", |(_, size)| size);
    let (number, unit) = match (size.strip_suffix("KiB"), size.strip_suffix("MiB")) {
        (Some(number), _) => (number, 1 << 10),
        (_, Some(number)) => (number, 1 << 20),
        _ => (size, 1),
    };
    let bytes = number.parse::<usize>().ok().and_then(|number| number.checked_mul(unit)).filter(|bytes| *bytes > 0);
    bytes.ok_or_else(|| format!("`{word}` is not the size of a bucket\n  help: {BUCKET}=64KiB, {BUCKET}=25MiB"))
}

pub fn offered(name: &str) -> Option<&'static Offered> {
    OFFERED.iter().find(|offered| offered.name == name)
}

fn known(name: &str) -> Result<&'static str, String> {
    match offered(name) {
        Some(offered) => Ok(offered.name),
        None => {
            let names: Vec<&str> = OFFERED.iter().map(|offered| offered.name).collect();
            Err(format!(
                "there is no pass `{name}`\n  help: none (= v1), v2, all, or any of {}, {CHECKPOINT}; on several ranks {}",
                names.join(", "),
                OF_RANKS.join(", ")
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flag_of_a_list_is_short_and_reads_as_the_same_list() {
        for (text, flag) in [
            ("v1", "v1"),
            ("all", "all"),
            ("all,-fuse-gate-up", "all,-fuse-gate-up"),
            ("fuse-qkv,fuse-gate-up,flash-attention,fuse-optimizer,fuse-loss", "v2,+fuse-loss"),
            ("v2,-flash-attention", "v2,-flash-attention"),
            ("flash-attention", "flash-attention"),
            ("all,-fuse-rope,+checkpoint", "all,-fuse-rope,checkpoint"),
        ] {
            let list = PassList::parse(text).unwrap();
            assert_eq!(list.flag(), flag);
            assert_eq!(PassList::parse(flag).unwrap(), list);
        }
    }

    #[test]
    fn lists_are_read_with_additions_and_removals() {
        let check = |text: &str, want: &[&str]| assert_eq!(PassList::parse(text).unwrap().names(), want, "{text}");
        check("none", &[]);
        check("v1,+fuse-norm", &["fuse-norm"]);
        check("v2,-flash-attention", &["fuse-qkv", "fuse-gate-up", "fuse-optimizer"]);
        check("fuse-optimizer,fuse-qkv", &["fuse-qkv", "fuse-optimizer"]);
        check("-flash-attention", &["fuse-qkv", "fuse-gate-up", "fuse-optimizer"]);
        assert_eq!(PassList::parse("+fuse-norm"), PassList::parse("v2,+fuse-norm"));
        assert_eq!(PassList::parse("all").unwrap().names().len(), OFFERED.len());
        assert!(PassList::parse("v2,+fuse-nothing").unwrap_err().contains("no pass `fuse-nothing`"));
    }

    #[test]
    fn ranks_have_passes_of_their_own() {
        let list = |text: &str| PassList::parse(text).unwrap().among(4);
        let names = |text: &str| list(text).parallel().unwrap().names();
        assert_eq!(names("v2"), ["dp", "bucket", "overlap"]);
        assert_eq!(names("none"), ["dp"]);
        assert_eq!(names("none,+bucket"), ["dp", "bucket"]);
        assert_eq!(names("v2,-overlap"), ["dp", "bucket"]);
        assert_eq!(names("v2,+zero1"), ["zero1", "bucket", "overlap"]);
        assert_eq!(list("v2,bucket=64KiB").parallel().unwrap().bucket_bytes, 64 << 10);
        assert_eq!(names("none,+bucket=2MiB"), ["dp", "bucket"]);
        assert!(PassList::parse("v2,bucket=x").unwrap_err().contains("is not the size of a bucket"));
        assert_eq!(list("v2").label(), "v2+dp+bucket+overlap");
        assert_eq!(list("v2").among(1), PassList::version_2());
        assert!(PassList::parse("v2,-dp").unwrap_err().contains("cannot be left out"));
    }

    #[test]
    fn a_list_is_labelled_by_its_version_where_it_has_one() {
        let label = |text: &str| PassList::parse(text).unwrap().label();
        assert_eq!([label("none"), label("v2"), label("all")], ["v1", "v2", "all"]);
        assert_eq!(label("fuse-norm,fuse-qkv"), "fuse-qkv+fuse-norm");
    }
}
