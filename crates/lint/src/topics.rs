//! Topics that a file mentions: devices, reduced precision, compilation and so on.

use rustc_hash::FxHashMap;
use std::sync::OnceLock;

use ruff_python_ast::token::{TokenKind, Tokens};
use ruff_text_size::{Ranged, TextRange};

use super::ids::FileId;
use super::switches::Switches;
use super::vocabulary::Role;

/// Topics with the roles of the words that speak of them.
macro_rules! topics {
    ($($(#[$doc:meta])* $topic:ident: [$($role:ident)*],)*) => {
        /// Facts a rule may ask about a file's surroundings, detected by keywords.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Topic { $($(#[$doc])* $topic,)* }

        const TOPICS: &[(Topic, &[Role])] = &[$((Topic::$topic, &[$(Role::$role),*]),)*];
    };
}

topics! {
    /// A device other than the host.
    Device: [OfDevice],
    /// `device` is mentioned, but not which one.
    SomeDevice: [OfSomeDevice],
    /// The host is named as the device.
    Cpu: [],
    ReducedPrecision: [OfReducedPrecision],
    TensorFloat: [OfTensorFloat],
    Compiled: [OfCompilation],
    Clipping: [OfClipping],
    Convolution: [OfConvolution],
    MatrixProduct: [OfProduct OfLargeProduct],
    /// Products over sequences: a single perceptron layer does not count.
    LargeProduct: [OfLargeProduct OfLargeModel],
    Benchmark: [OfBenchmark],
    Deterministic: [OfDeterminism],
    ChannelsLast: [OfChannelsLast],
    NoSync: [OfNoSync],
    Distributed: [OfDistribution],
    FixedSize: [OfFixedSize],
    VaryingSize: [OfVaryingSize],
    Trainer: [OfTrainer],
    Trains: [],
    /// A library that puts batches on the device itself.
    Placed: [OfPlacedBatches],
    /// Reduced precision that is off by default.
    PrecisionByChoice: [],
}

#[derive(Default)]
pub struct Groups {
    /// One bit per topic: the file itself, its imports and its importers.
    pub(super) masks: Vec<u64>,
    pub(super) own: Vec<u64>,
    /// Whether the file is part of a program whose training loop is among the files.
    pub(super) programs: Vec<bool>,
    /// Whether another file imports it.
    pub(super) imported: Vec<bool>,
}

impl Groups {
    pub fn mentions(&self, file: FileId, topic: Topic) -> bool {
        self.masks.get(file).is_some_and(|mask| speak_of(*mask, topic))
    }

    pub fn is_of_program(&self, file: FileId) -> bool {
        self.programs.get(file) == Some(&true)
    }

    pub fn is_imported(&self, file: FileId) -> bool {
        self.imported.get(file) == Some(&true)
    }

    /// Whether the file itself mentions the topic, without its surroundings.
    pub fn mentions_itself(&self, file: FileId, topic: Topic) -> bool {
        self.own.get(file).is_some_and(|words| speak_of(*words, topic))
    }

    /// Whether the script puts anything on a device. Modules without a training loop are assumed to be used on one.
    pub fn touches_device(&self, file: FileId) -> bool {
        let mentions = |topic| self.mentions(file, topic);
        mentions(Topic::Device)
            || mentions(Topic::SomeDevice) && !mentions(Topic::Cpu)
            || !mentions(Topic::Trains) && !mentions(Topic::Cpu)
    }
}

/// Whether a file's own words, as returned by `words_of`, mention a topic.
pub fn speak_of(words: u64, topic: Topic) -> bool {
    words & bit(topic) != 0
}

pub(super) fn bit(topic: Topic) -> u64 {
    1 << (topic as u8)
}

/// The topics of a file's own words, one bit each.
pub fn words_of(text: &str, tokens: &Tokens) -> u64 {
    static BITS: OnceLock<FxHashMap<&str, u64>> = OnceLock::new();
    let bits = BITS.get_or_init(|| {
        let mut bits: FxHashMap<&str, u64> = FxHashMap::default();
        for (topic, roles) in TOPICS {
            for word in roles.iter().flat_map(|role| role.names()) {
                *bits.entry(word).or_default() |= bit(*topic);
            }
        }
        bits
    });
    let (mut mask, mut of_trainer, mut has_own_trainer) = (0, 0, false);
    let (mut switches, mut is_off) = (Switches::default(), false);
    let slice = |range: TextRange| text.get(range.to_std_range()).unwrap_or_default();
    let mut before = Before::default();
    for token in tokens {
        match token.kind() {
            TokenKind::Name => {
                let word = slice(token.range());
                let known = bits.get(word).copied().unwrap_or(0);
                match before.last {
                    // A trainer that the project defines, here or in `.train`, is not a library's.
                    Some(TokenKind::Class) if Role::TrainerClass.fits(word) => has_own_trainer = true,
                    _ if Role::TrainerClass.fits(word) => match before.from_library {
                        Some(false) => has_own_trainer = true,
                        _ => of_trainer |= known,
                    },
                    // `half` of a width is not a precision.
                    last if Role::HalfMethod.fits(word) && last != Some(TokenKind::Dot) => {}
                    _ => mask |= known,
                }
                switches.name(word);
                // `self._device`, `main_device`
                if Role::DeviceWord.fits(word) {
                    mask |= bit(Topic::SomeDevice);
                }
            }
            TokenKind::String => {
                let text = slice(token.range());
                let inner = text.trim_matches(|quote| matches!(quote, '"' | '\''));
                is_off |= switches.text(inner);
                if text.len() < 40 {
                    if Role::DeviceText.fits(inner) {
                        mask |= bit(Topic::Device);
                    } else if Role::HostDevice.fits(inner) {
                        mask |= before.means_of_cpu();
                    } else if Role::PrecisionText.fits(inner) {
                        mask |= bit(Topic::ReducedPrecision);
                    }
                }
            }
            kind => is_off |= switches.other(kind),
        }
        mask |= before.pass(token.kind(), slice(token.range()));
    }
    if is_off {
        mask |= bit(Topic::PrecisionByChoice);
    }
    if has_own_trainer { mask } else { mask | of_trainer }
}

/// State of the tokens before the current one, enough to tell what `"cpu"` is for.
#[derive(Default)]
struct Before {
    last: Option<TokenKind>,
    /// Whether the token before the last is a name that ends with `device`.
    after_device: bool,
    last_is_device: bool,
    /// Whether the last tokens are `.cpu`.
    after_dot_cpu: bool,
    /// Inside a function's signature: the number of open brackets.
    head: Option<u32>,
    in_device_parameter: bool,
    /// After an `else`, until the end of its line or block.
    in_else: bool,
    in_block: bool,
    /// Inside `from … import`: whether the module belongs to a library that provides trainers.
    from_library: Option<bool>,
}

impl Before {
    /// `torch.device("cpu")` and `device = "cpu"` select the host. A parameter's default leaves the choice to the
    /// caller, `x.to("cpu")` copies from elsewhere, and `device.type != "cpu"` is written where it may be another
    /// device.
    fn means_of_cpu(&self) -> u64 {
        match self.last {
            Some(TokenKind::EqEqual | TokenKind::NotEqual | TokenKind::In) => bit(Topic::Device),
            // `… if available else "cpu"`: the fallback says nothing about where it usually runs.
            _ if self.in_else => 0,
            Some(TokenKind::Lpar) if self.after_device => bit(Topic::Cpu),
            Some(TokenKind::Equal) if self.after_device && self.head.is_none() => bit(Topic::Cpu),
            _ => 0,
        }
    }

    /// Advances by one token. A parameter `device` with a default leaves the choice to the caller, which counts as a
    /// device. `x.cpu()` copies from some device.
    fn pass(&mut self, kind: TokenKind, text: &str) -> u64 {
        if kind == TokenKind::NonLogicalNewline || kind == TokenKind::Comment {
            return 0;
        }
        match kind {
            TokenKind::Else => self.in_else = true,
            TokenKind::Newline if self.last != Some(TokenKind::Colon) => self.in_else &= self.in_block,
            TokenKind::Indent => self.in_block = self.in_else,
            TokenKind::Dedent => (self.in_else, self.in_block) = (false, false),
            _ => {}
        }
        match kind {
            TokenKind::Newline => self.from_library = None,
            TokenKind::Dot if self.last == Some(TokenKind::From) => self.from_library = Some(false),
            TokenKind::Name if self.last == Some(TokenKind::From) => {
                self.from_library = Some(Role::TrainerLibrary.fits(text));
            }
            _ => {}
        }
        let opens = matches!(self.last, Some(TokenKind::Lpar | TokenKind::Comma));
        match (kind, self.head) {
            (TokenKind::Name, Some(1)) if opens => self.in_device_parameter = Role::DeviceOption.fits(text),
            (TokenKind::Comma | TokenKind::Rpar, Some(1)) | (_, None) => self.in_device_parameter = false,
            _ => {}
        }
        let is_default = kind == TokenKind::Equal && self.in_device_parameter;
        self.head = match (kind, self.head) {
            (TokenKind::Def, _) => Some(0),
            (TokenKind::Lpar | TokenKind::Lsqb | TokenKind::Lbrace, Some(open)) => Some(open + 1),
            (TokenKind::Rpar | TokenKind::Rsqb | TokenKind::Rbrace, Some(open)) => Some(open.saturating_sub(1)),
            (TokenKind::Colon, Some(0)) => None,
            (_, head) => head,
        };
        let fetches = kind == TokenKind::Lpar && self.after_dot_cpu;
        self.after_dot_cpu =
            kind == TokenKind::Name && Role::HostDevice.fits(text) && self.last == Some(TokenKind::Dot);
        self.after_device = self.last_is_device;
        self.last_is_device = kind == TokenKind::Name && Role::DeviceWord.fits(text);
        self.last = Some(kind);
        match (is_default, fetches) {
            (true, _) => bit(Topic::Device),
            (false, true) => bit(Topic::SomeDevice),
            (false, false) => 0,
        }
    }
}
