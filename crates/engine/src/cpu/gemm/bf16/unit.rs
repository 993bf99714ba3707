//! What multiplies bfloat16 numbers on this machine.

use crate::cpu::isa::Isa;
use std::fmt;
use std::sync::OnceLock;

/// From the plainest to the fastest; a machine with one has those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Bf16Unit {
    /// Operands are rounded, and multiplied as single floats.
    Software,
    /// `vdpbf16ps`: two products a lane.
    Avx512,
    /// Tile registers: 16×16 sums of 32 products at a time.
    Amx,
}

impl Bf16Unit {
    const ALL: [Bf16Unit; 3] = [Bf16Unit::Software, Bf16Unit::Avx512, Bf16Unit::Amx];

    /// The fastest that this machine has and this process may use; asked once a process.
    pub fn detect() -> Bf16Unit {
        static DETECTED: OnceLock<Bf16Unit> = OnceLock::new();
        *DETECTED.get_or_init(ask_the_machine)
    }

    pub fn available() -> Vec<Bf16Unit> {
        let highest = Bf16Unit::detect();
        Bf16Unit::ALL.into_iter().filter(|&unit| unit <= highest).collect()
    }

    /// The fastest that goes with a level of vector instructions.
    pub fn with(isa: Isa) -> Bf16Unit {
        if isa.runnable() == Isa::Avx512 { Bf16Unit::detect() } else { Bf16Unit::Software }
    }

    /// This unit, or the machine's fastest where it lacks this one.
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
    if Isa::detect() != Isa::Avx512 || !std::arch::is_x86_feature_detected!("avx512bf16") {
        Bf16Unit::Software
    } else if has_tiles() && may_use_tiles() {
        Bf16Unit::Amx
    } else {
        Bf16Unit::Avx512
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn ask_the_machine() -> Bf16Unit {
    Bf16Unit::Software
}

/// AMX-BF16 and AMX-TILE, bits 22 and 24 of the seventh leaf's EDX.
#[cfg(target_arch = "x86_64")]
fn has_tiles() -> bool {
    use std::arch::x86_64::__cpuid_count;
    let both = 1 << 22 | 1 << 24;
    __cpuid_count(0, 0).eax >= 7 && __cpuid_count(7, 0).edx & both == both
}

/// Tile registers are 8 KiB a thread that the kernel saves and restores only for processes that asked; the answer holds
/// for every thread of this one.
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
fn may_use_tiles() -> bool {
    const ARCH_REQ_XCOMP_PERM: libc::c_ulong = 0x1023;
    const XFEATURE_XTILEDATA: libc::c_ulong = 18;
    // SAFETY: asks for a permission and touches no memory; a kernel that does not know the request refuses it.
    unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0 }
}

#[cfg(all(target_arch = "x86_64", not(target_os = "linux")))]
fn may_use_tiles() -> bool {
    false
}
