//! The words that decide something, each once: its role, how it matches, where it was met.
//!
//! The words are rows of `tables/vocabulary.tsv`. Code asks for a role and never compares a name with a word of its own.

use std::borrow::Cow;
use std::sync::LazyLock;

use rustc_hash::FxHashSet;

use super::rows::{self, named};

const ROWS: &str = include_str!("tables/vocabulary.tsv");

named! {
    /// The decision that a word makes.
    Role {
        /// `batch` in `"test" in batch`: a container tested for a key, not a phase.
        Keyed,
        /// State that one decoder call leaves for the next. Training sees all tokens at once and passes none.
        Decoding,
        /// `sample`, `predict`: drawing is part of many steps.
        Drawing,
        /// Switches that are off unless something is looked into.
        Debugging,
        /// Inputs of a step, such as a `mask` or a `grid`: `generate_square_mask` makes inputs, not outputs.
        MadeInput,
        /// First parts of the names of functions that compute no loss: `plot_loss`.
        NotOfLoss,
        /// Last parts of names that name something else than a model: `model_path`.
        NotModel,
        /// Arguments of tensor code that are not tensors.
        Option,
        /// `rank`, `is_main_process`: selects which process runs a branch.
        Rank,
        /// Calls in a function that only moves its argument.
        OnTheWay,
        /// Methods that are nearly unique to tensors: a value that has one is a tensor.
        TensorMethod,
        /// Operations that turn a mask into a mask: they move and repeat its elements.
        MaskToMask,
        /// Methods that every module has, or that common libraries define.
        CommonMethod,
        /// Calls that hand a number on: `float(x)`.
        HandsOn,
        /// Calls that record their arguments.
        Records,
        /// First words of methods that are called only now and then: `show_gradients`.
        Shows,
        // Folders and files, by what their code is for.
        ExampleFolder, TestFile, BenchmarkFile, InferenceFile, PreparationFile,
        // Words of a file that tell what it is about.
        OfLargeProduct, OfLargeModel, OfProduct, OfDevice, OfSomeDevice, OfReducedPrecision, OfTensorFloat,
        OfCompilation, OfClipping, OfConvolution, OfBenchmark, OfDeterminism, OfChannelsLast, OfNoSync,
        OfDistribution, OfFixedSize, OfVaryingSize, OfTrainer, OfPlacedBatches,
        // Names that say themselves what they mean.
        AddsToMeter, AnyTensorType, AskedNumber, AsksEnvironment, AsksPresence, AsksSupport, AsksTensor, AsksType,
        Autograd, AutogradCall, Averages, Backward, BackwardCall, BackwardName, BatchIndex, BatchSizeOption,
        Builtin, Caches, Cadence, CallMethod, ClassMethod, ClearsGradients, CollateOption, ComputesLoss, Constant,
        Constructor, ContainerMethod, CopiedLibrary, Count, Counted, Counter, CounterBegin, Counting, Criterion,
        CrossValidation, DataAttribute, DataEnding, DataKind, DataName, DatasetOption, DecodingClass, DefaultOption,
        Described, Device, DeviceFlag, DeviceModule, DeviceName, DeviceOption, DeviceText, DeviceType, DeviceWord,
        Distributions, DrawsData, DrawsFrom, DrawsSample, DropLayer, Dtype, DtypeName, DtypeOption, Dunder,
        EndOption, Environment, EpochName, EvalMethod, Evaluation, EvaluationClass, EvaluationData, EvaluationFlag,
        Exits, FactoryOption, FewThings, Finite, FirstParameter, FloatType, Foreign, Formats, Forward,
        ForwardInTraining, Freezes, Getter, GradientFlag, GradientText, GraphOff, GraphSwitch, GroupParameters,
        HalfMethod, HostDevice, HostLibrary, Index, InputOption, IterMethod, LengthsOption, LightningOption, Loaded,
        Loader, LoaderOption, Loads, LoggingName, Logs, LogsScalar, LossClass, LossFunction, LossName, LossOption,
        MadeData, Makes, Mathematics, MayAnswer, Measured, Merges, MeterClass, MeterName, Metric, MetricClass,
        MetricFolder, Model, ModelBegin, ModelOption, ModuleOption, NamesAttribute, Next, NotEnvironment,
        NotOptimizer, NotPretrained, OfPython, OfSelf, OnlyReads, Optimizer, OptimizerPart, OptimizerStep,
        OutOfMemory, PackageFile, ParameterGroups, Pass, PassesOn, PersistentOption, PinOption, PlaceName, Posts,
        PrecisionSwitch, PrecisionText, PretrainedLibrary, ProductFunction, Property, Question, RandomName, Range,
        Reader, Reference, Result, Saves, Says, ScalarSink, Scaler, Scales, Scheduler, SelfName, Setter, Settings,
        SettingsClass, SettingsMaker, ShortCount, ShortLength, Sink, Size, SoftmaxLayer, StartOption, StateMethod,
        StaticMethod, StepByName, StepHook, StepMethod, StepNumber, StepOfClass, Stores, StoresTrue, Stream, Super,
        Synchronizes, TakesAxes, Target, TensorContainer, TensorDataset, TensorType, TestBegin, TestName,
        TestScript, TextKey, TorchText, Tracker, Tracks, TrainBegin, TrainMethod, TrainerClass, TrainerLibrary,
        TrainerStep, TrainingFile, TrainingFlag, TrainingStep, TrainingText, TrainingWord, Trouble, TruthType,
        TurnCount, TypeName, TypeOnDevice, UpdateCall, Validates, Version, VersionClass, Warns, With, WorkersOption,
        WritesUnderMask,
    }
}

/// How a word matches a name.
#[derive(Default)]
struct Words {
    is: Whole,
    begins: Vec<&'static str>,
    ends: Vec<&'static str>,
    within: Vec<&'static str>,
    /// One of the parts between underscores.
    part: Whole,
}

/// Whole words. Names are asked for some hundred thousand times in a code base and hardly ever match, so most are told from
/// all words by length and first letter, without hashing.
#[derive(Default)]
struct Whole {
    words: FxHashSet<&'static str>,
    lengths: u64,
    letters: u128,
}

impl Whole {
    fn insert(&mut self, word: &'static str) {
        let (length, letter) = Whole::bits(word);
        self.lengths |= length;
        self.letters |= letter;
        self.words.insert(word);
    }

    fn contains(&self, name: &str) -> bool {
        let (length, letter) = Whole::bits(name);
        self.lengths & length != 0 && self.letters & letter != 0 && self.words.contains(name)
    }

    fn bits(name: &str) -> (u64, u128) {
        let first = name.bytes().next().unwrap_or_default();
        (1 << name.len().min(63), 1 << (first & 127))
    }
}

static WORDS: LazyLock<Vec<Words>> = LazyLock::new(|| {
    let mut all: Vec<Words> = Role::ALL.iter().map(|_| Words::default()).collect();
    for [role, how, word, _] in rows::of(ROWS) {
        let Some(role) = Role::named(role) else { continue };
        let Words { is, begins, ends, within, part } = &mut all[role as usize];
        match how {
            "begins" => begins.push(word),
            "ends" => ends.push(word),
            "within" => within.push(word),
            "part" => part.insert(word),
            _ => is.insert(word),
        }
    }
    all
});

impl Role {
    /// Whether a word of this role matches the name.
    pub fn fits(self, name: &str) -> bool {
        let words = &WORDS[self as usize];
        words.is.contains(name)
            || words.begins.iter().any(|word| name.starts_with(word))
            || words.ends.iter().any(|word| name.ends_with(word))
            || words.within.iter().any(|word| name.contains(word))
            || words.part.lengths != 0 && name.split('_').any(|part| words.part.contains(part))
    }

    /// Like [`Self::fits`], whatever the letters' case.
    pub fn fits_any_case(self, name: &str) -> bool {
        self.fits(&lowered(name))
    }

    /// Its only word.
    pub fn word(self) -> &'static str {
        let words = &WORDS[self as usize];
        words.is.words.iter().chain(&words.begins).next().copied().unwrap_or_default()
    }

    /// The rest after a word of this role at the begin of the name.
    pub fn rest_of(self, name: &str) -> Option<&str> {
        WORDS[self as usize].begins.iter().find_map(|word| name.strip_prefix(word))
    }

    /// The name without a word of this role at its end, unless nothing is left.
    pub fn without_end(self, name: &str) -> &str {
        let mut rests = WORDS[self as usize].ends.iter().filter_map(|word| name.strip_suffix(word));
        rests.find(|rest| !rest.is_empty()).unwrap_or(name)
    }

    /// Its words that match whole names.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        WORDS[self as usize].is.words.iter().copied()
    }
}

/// Lowercases a name. Called often, so names without capitals are not copied.
pub fn lowered(name: &str) -> Cow<'_, str> {
    if name.bytes().any(|byte| byte.is_ascii_uppercase()) { name.to_ascii_lowercase().into() } else { name.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_has_a_role_and_a_way_to_match_and_stands_once() {
        let ways = ["is", "begins", "ends", "within", "part"];
        rows::check(ROWS, 3, |[role, how, ..]| Role::named(role).is_some() && ways.contains(&how));
        let unused = Role::ALL.iter().filter(|(name, _)| !rows::of(ROWS).any(|row: [&str; 4]| row[0] == *name));
        assert_eq!(unused.count(), 0);
        assert!(ROWS.lines().skip(1).is_sorted());
    }

    #[test]
    fn words_match_in_their_own_way() {
        assert!(Role::Size.fits("seq_len") && Role::Size.fits("hidden_size") && !Role::Size.fits("sizes"));
        assert!(Role::Rank.fits("local_rank") && !Role::Rank.fits("ranking"));
        assert!(Role::Cadence.fits("should_print") && !Role::Cadence.fits("print_should"));
        assert!(Role::Finite.fits("isnan") && !Role::Finite.fits("nancy"));
        assert!(!Role::Rank.fits("") && !Role::Rank.fits("_") && !Role::Size.fits("größe"));
        for role in 0..WORDS.len() {
            assert!(WORDS[role].is.words.iter().all(|word| WORDS[role].is.contains(word)), "{role}");
        }
    }
}
