//! The unit that multiplies bfloat16 numbers on this machine.

use crate::cpu::isa::Isa;
use std::fmt;
use std::sync::OnceLock;

/// From the simplest to the fastest; a machine that has one also has those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Bf16Unit {
    /// Operands are rounded, and multiplied in single precision.
    Software,
    /// `vdpbf16ps`: two products per lane.
    Avx512,
    /// Tile registers: 16×16 sums of 32 products at a time.
    Amx,
}

impl Bf16Unit {
    const ALL: [Bf16Unit; 3] = [Bf16Unit::Software, Bf16Unit::Avx512, Bf16Unit::Amx];

    /// The fastest unit that this machine has and this process may use; determined once per process.
    pub fn detect() -> Bf16Unit {
        static DETECTED: OnceLock<Bf16Unit> = OnceLock::new();
        *DETECTED.get_or_init(ask_the_machine)
    }

    pub fn available() -> Vec<Bf16Unit> {
        let highest = Bf16Unit::detect();
        Bf16Unit::ALL.into_iter().filter(|&unit| unit <= highest).collect()
    }

    /// The fastest unit for a level of vector instructions.
    pub fn with(isa: Isa) -> Bf16Unit {
        if isa.runnable() >= Isa::Avx512 { Bf16Unit::detect() } else { Bf16Unit::Software }
    }

    /// This unit, or the machine's fastest if it lacks this one.
    pub(super) fn runnable(self) -> Bf16Unit {
        self.min(Bf16Unit::detect())
    }
}

impl fmt::Display for Bf16Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Bf16Unit::Software => "software",
            Bf16Unit::Avx512 => "avx512-bf16",
            Bf16Unit::Amx => "amx",
        })
    }
}

#[cfg(target_arch = "x86_64")]
fn ask_the_machine() -> Bf16Unit {
    match Isa::highest() {
        Isa::Amx => Bf16Unit::Amx,
        Isa::Avx512 if std::arch::is_x86_feature_detected!("avx512bf16") => Bf16Unit::Avx512,
        _ => Bf16Unit::Software,
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn ask_the_machine() -> Bf16Unit {
    Bf16Unit::Software
}
