//! Instruction-set levels, and one plain Rust body compiled for each of them.

use std::fmt;
use std::sync::OnceLock;

/// The environment variable that selects a level: `HEADROOM_ISA=avx2` for a comparison, `HEADROOM_ISA=amx` to try
/// tiles.
pub const VARIABLE: &str = "HEADROOM_ISA";

/// A level of vector instructions; a higher level includes the lower ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Isa {
    /// Instructions that the target guarantees (SSE2 on x86-64).
    Portable,
    /// AVX2 and FMA.
    Avx2,
    /// AVX-512 F, BW, DQ and VL, beside AVX2 and FMA.
    Avx512,
    /// AMX tiles of bfloat16, beside AVX-512 with BF16: large products go through them, see [`super::gemm`].
    Amx,
}

impl Isa {
    const ALL: [Isa; 4] = [Isa::Portable, Isa::Avx2, Isa::Avx512, Isa::Amx];

    /// The level that runs use: the one that [`VARIABLE`] names, or the highest vector level. Determined once per
    /// process; a program rejects what [`Isa::asked`] rejects before it gets here.
    pub fn detect() -> Isa {
        static DETECTED: OnceLock<Isa> = OnceLock::new();
        *DETECTED.get_or_init(|| Isa::asked().ok().flatten().unwrap_or(Isa::Avx512).runnable())
    }

    /// The level that [`VARIABLE`] names, if it is set and not empty.
    pub fn asked() -> Result<Option<Isa>, UnusableLevel> {
        let asked = std::env::var_os(VARIABLE).unwrap_or_default();
        let named = Isa::ALL.into_iter().find(|isa| *isa.to_string() == *asked);
        match named {
            None if asked.is_empty() => Ok(None),
            Some(isa) if isa <= Isa::highest() => Ok(Some(isa)),
            _ => Err(UnusableLevel(asked.to_string_lossy().into_owned())),
        }
    }

    /// The highest level this machine can run.
    pub fn highest() -> Isa {
        static HIGHEST: OnceLock<Isa> = OnceLock::new();
        *HIGHEST.get_or_init(ask_the_cpu)
    }

    /// Every level this machine can run, lowest first.
    pub fn available() -> Vec<Isa> {
        let highest = Isa::highest();
        Isa::ALL.into_iter().filter(|&isa| isa <= highest).collect()
    }

    /// This level, or the machine's highest if it cannot run this one. Every safe dispatch goes through here, so that
    /// no value of `Isa` can reach instructions the CPU lacks.
    #[inline]
    pub fn runnable(self) -> Isa {
        self.min(Isa::highest())
    }
}

/// Value of [`VARIABLE`] that this machine cannot run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnusableLevel(String);

impl fmt::Display for UnusableLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let levels: Vec<String> = Isa::available().iter().map(Isa::to_string).collect();
        write!(f, "{VARIABLE} is `{}`; this machine can run {}", self.0, levels.join(", "))
    }
}

impl std::error::Error for UnusableLevel {}

impl fmt::Display for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Isa::Portable => "portable",
            Isa::Avx2 => "avx2",
            Isa::Avx512 => "avx512",
            Isa::Amx => "amx",
        })
    }
}

#[cfg(target_arch = "x86_64")]
fn ask_the_cpu() -> Isa {
    use std::arch::is_x86_feature_detected as has;
    if !(has!("avx2") && has!("fma")) {
        Isa::Portable
    } else if !(has!("avx512f") && has!("avx512bw") && has!("avx512dq") && has!("avx512vl")) {
        Isa::Avx2
    } else if has!("avx512bf16") && has_tiles() && may_use_tiles() {
        Isa::Amx
    } else {
        Isa::Avx512
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn ask_the_cpu() -> Isa {
    Isa::Portable
}

/// Checks AMX-BF16 and AMX-TILE: bits 22 and 24 of EDX in CPUID leaf 7.
#[cfg(target_arch = "x86_64")]
fn has_tiles() -> bool {
    use std::arch::x86_64::__cpuid_count;
    let both = 1 << 22 | 1 << 24;
    __cpuid_count(0, 0).eax >= 7 && __cpuid_count(7, 0).edx & both == both
}

/// Requests tile registers: 8 KiB per thread that the kernel saves and restores only for processes that asked. The
/// permission holds for every thread of this process.
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
fn may_use_tiles() -> bool {
    const ARCH_REQ_XCOMP_PERM: libc::c_ulong = 0x1023;
    const XFEATURE_XTILEDATA: libc::c_ulong = 18;
    // SAFETY: requests a permission and touches no memory; a kernel that does not know the request refuses it.
    unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0 }
}

#[cfg(all(target_arch = "x86_64", not(target_os = "linux")))]
fn may_use_tiles() -> bool {
    false
}

/// Compiles each function's plain body once for every [`Isa`] and generates `name(isa, arguments...)`, which picks the
/// copy: the compiler vectorises the same loops with the registers of each level.
///
/// The body must spell out what the compiler will not do by itself: a float sum is vectorised only over an explicit
/// array of partial sums, and a multiply and add are fused only by `mul_add` (a slow library call in the portable
/// copy). Closures and small helpers are compiled for the level only if they are inlined.
#[macro_export]
macro_rules! by_isa {
    ($(
        $(#[$attribute:meta])*
        $visibility:vis fn $name:ident($($argument:ident : $type:ty),* $(,)?) $(-> $result:ty)? $body:block
    )*) => {$(
        $(#[$attribute])*
        $visibility fn $name(isa: $crate::cpu::isa::Isa, $($argument: $type),*) $(-> $result)? {
            #[inline(always)]
            fn body($($argument: $type),*) $(-> $result)? $body

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma")]
            fn avx2($($argument: $type),*) $(-> $result)? {
                body($($argument),*)
            }

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
            fn avx512($($argument: $type),*) $(-> $result)? {
                body($($argument),*)
            }

            match isa.runnable() {
                // SAFETY: `runnable` never exceeds what the CPU was found to have.
                #[cfg(target_arch = "x86_64")]
                $crate::cpu::isa::Isa::Avx512 | $crate::cpu::isa::Isa::Amx => unsafe { avx512($($argument),*) },
                // SAFETY: `runnable` never exceeds what the CPU was found to have.
                #[cfg(target_arch = "x86_64")]
                $crate::cpu::isa::Isa::Avx2 => unsafe { avx2($($argument),*) },
                _ => body($($argument),*),
            }
        }
    )*};
}

#[cfg(test)]
mod tests {
    use super::Isa;

    by_isa! {
        /// `y += alpha * x`
        fn scaled_add(alpha: f32, x: &[f32], y: &mut [f32]) {
            for (y, x) in y.iter_mut().zip(x) {
                *y += alpha * x;
            }
        }

        fn longest(left: &[f32], right: &[f32]) -> usize {
            left.len().max(right.len())
        }
    }

    #[test]
    fn every_level_computes_the_same() {
        for isa in Isa::available() {
            let x: Vec<f32> = (0..37).map(|i| i as f32).collect();
            let mut y = vec![1.0; 37];
            scaled_add(isa, 2.0, &x, &mut y);
            let want: Vec<f32> = x.iter().map(|x| 1.0 + 2.0 * x).collect();
            assert_eq!(y, want, "{isa}");
            assert_eq!(longest(isa, &x[..3], &y), 37);
        }
    }

    #[test]
    fn a_level_the_machine_lacks_falls_to_its_highest() {
        assert_eq!(Isa::Portable.runnable(), Isa::Portable);
        assert_eq!(Isa::Amx.runnable(), Isa::highest());
    }
}
