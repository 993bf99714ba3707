//! Vectors of floats at each instruction-set level, for loops that the compiler does not vectorise well by itself.

#[cfg(target_arch = "x86_64")]
mod x86;

#[cfg(target_arch = "x86_64")]
pub use x86::{Avx2, Avx512};

use crate::cpu::math;

/// A vector register's worth of floats. Every function is inlined into a caller compiled for the level.
///
/// # Safety
/// The functions may be called only if the CPU has the level's instructions, with pointers valid for the lanes they
/// touch. `first(n)` masks touch only the first `n` lanes.
pub unsafe trait Lanes {
    type Vector: Copy;
    type Mask: Copy;
    const LANES: usize;
    unsafe fn splat(value: f32) -> Self::Vector;
    unsafe fn load(from: *const f32) -> Self::Vector;
    unsafe fn store(to: *mut f32, value: Self::Vector);
    unsafe fn first(lanes: usize) -> Self::Mask;
    unsafe fn load_masked(mask: Self::Mask, from: *const f32) -> Self::Vector;
    unsafe fn store_masked(mask: Self::Mask, to: *mut f32, value: Self::Vector);
    unsafe fn multiply(a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// `a * b + c`, rounded once if the level has FMA.
    unsafe fn multiply_add(a: Self::Vector, b: Self::Vector, c: Self::Vector) -> Self::Vector;
    unsafe fn add(a: Self::Vector, b: Self::Vector) -> Self::Vector;
    unsafe fn subtract(a: Self::Vector, b: Self::Vector) -> Self::Vector;
    unsafe fn divide(a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// The larger of each lane; `b` if either is NaN.
    unsafe fn larger(a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// `e^x` to within a few units in the last place; NaN stays NaN.
    unsafe fn exp(x: Self::Vector) -> Self::Vector;
    /// The sum of all lanes; the order depends on the level.
    unsafe fn total(x: Self::Vector) -> f32;
    /// The largest of all lanes; NaN may be ignored.
    unsafe fn largest(x: Self::Vector) -> f32;
    /// Prefetches the cache line at an address that is needed soon; any address is allowed.
    unsafe fn prefetch(at: *const f32);
    /// As `prefetch`, for a line that is needed later.
    unsafe fn prefetch_to_l2(at: *const f32);
}

/// Plain Rust, eight lanes.
pub struct Portable;

// SAFETY: touches what the pointers of the trait's contract allow.
unsafe impl Lanes for Portable {
    type Vector = [f32; 8];
    type Mask = usize;
    const LANES: usize = 8;

    #[inline(always)]
    unsafe fn splat(value: f32) -> [f32; 8] {
        [value; 8]
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> [f32; 8] {
        // SAFETY: the caller vouches for eight lanes.
        unsafe { from.cast::<[f32; 8]>().read_unaligned() }
    }

    #[inline(always)]
    unsafe fn store(to: *mut f32, value: [f32; 8]) {
        // SAFETY: the caller vouches for eight lanes.
        unsafe { to.cast::<[f32; 8]>().write_unaligned(value) }
    }

    #[inline(always)]
    unsafe fn first(lanes: usize) -> usize {
        lanes.min(8)
    }

    #[inline(always)]
    unsafe fn load_masked(mask: usize, from: *const f32) -> [f32; 8] {
        // SAFETY: the caller vouches for the masked lanes.
        std::array::from_fn(|lane| if lane < mask { unsafe { *from.add(lane) } } else { 0.0 })
    }

    #[inline(always)]
    unsafe fn store_masked(mask: usize, to: *mut f32, value: [f32; 8]) {
        for (lane, value) in value.into_iter().enumerate().take(mask) {
            // SAFETY: the caller vouches for the masked lanes.
            unsafe { *to.add(lane) = value };
        }
    }

    #[inline(always)]
    unsafe fn multiply(a: [f32; 8], b: [f32; 8]) -> [f32; 8] {
        std::array::from_fn(|lane| a[lane] * b[lane])
    }

    #[inline(always)]
    unsafe fn multiply_add(a: [f32; 8], b: [f32; 8], c: [f32; 8]) -> [f32; 8] {
        std::array::from_fn(|lane| a[lane] * b[lane] + c[lane])
    }

    #[inline(always)]
    unsafe fn add(a: [f32; 8], b: [f32; 8]) -> [f32; 8] {
        std::array::from_fn(|lane| a[lane] + b[lane])
    }

    #[inline(always)]
    unsafe fn subtract(a: [f32; 8], b: [f32; 8]) -> [f32; 8] {
        std::array::from_fn(|lane| a[lane] - b[lane])
    }

    #[inline(always)]
    unsafe fn divide(a: [f32; 8], b: [f32; 8]) -> [f32; 8] {
        std::array::from_fn(|lane| a[lane] / b[lane])
    }

    #[inline(always)]
    unsafe fn larger(a: [f32; 8], b: [f32; 8]) -> [f32; 8] {
        std::array::from_fn(|lane| if a[lane] > b[lane] { a[lane] } else { b[lane] })
    }

    #[inline(always)]
    unsafe fn exp(x: [f32; 8]) -> [f32; 8] {
        x.map(math::exp)
    }

    #[inline(always)]
    unsafe fn total(x: [f32; 8]) -> f32 {
        x.iter().sum()
    }

    #[inline(always)]
    unsafe fn largest(x: [f32; 8]) -> f32 {
        x.into_iter().fold(f32::NEG_INFINITY, |a, b| if b > a { b } else { a })
    }

    #[inline(always)]
    unsafe fn prefetch(_at: *const f32) {}

    #[inline(always)]
    unsafe fn prefetch_to_l2(_at: *const f32) {}
}

/// Compiles each function's body, generic over [`Lanes`], for every level and generates `name(isa, arguments...)`,
/// which picks the copy. Vector operations inside are still `unsafe`: the body vouches for its pointers.
macro_rules! by_lanes {
    ($(
        $(#[$attribute:meta])*
        $visibility:vis fn $name:ident<$lanes:ident>($($argument:ident : $type:ty),* $(,)?) $(-> $result:ty)? $body:block
    )*) => {$(
        $(#[$attribute])*
        $visibility fn $name(isa: $crate::cpu::isa::Isa, $($argument: $type),*) $(-> $result)? {
            /// # Safety
            /// Inlined into a function compiled for the level, on a CPU that has it.
            #[inline(always)]
            unsafe fn body<$lanes: $crate::cpu::lanes::Lanes>($($argument: $type),*) $(-> $result)? $body

            /// # Safety
            /// The CPU has the level.
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma")]
            unsafe fn avx2($($argument: $type),*) $(-> $result)? {
                // SAFETY: compiled for the level.
                unsafe { body::<$crate::cpu::lanes::Avx2>($($argument),*) }
            }

            /// # Safety
            /// The CPU has the level.
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
            unsafe fn avx512($($argument: $type),*) $(-> $result)? {
                // SAFETY: compiled for the level.
                unsafe { body::<$crate::cpu::lanes::Avx512>($($argument),*) }
            }

            match isa.runnable() {
                // SAFETY: `runnable` never exceeds what the CPU was found to have.
                #[cfg(target_arch = "x86_64")]
                $crate::cpu::isa::Isa::Avx512 | $crate::cpu::isa::Isa::Amx => unsafe { avx512($($argument),*) },
                // SAFETY: `runnable` never exceeds what the CPU was found to have.
                #[cfg(target_arch = "x86_64")]
                $crate::cpu::isa::Isa::Avx2 => unsafe { avx2($($argument),*) },
                // SAFETY: plain Rust runs everywhere.
                _ => unsafe { body::<$crate::cpu::lanes::Portable>($($argument),*) },
            }
        }
    )*};
}

pub(crate) use by_lanes;
