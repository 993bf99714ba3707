//! The standard library's synchronisation primitives that the pool uses. Under `--cfg loom` they are loom's, which runs
//! a test under every thread interleaving (`cargo xtask miri`).

#[cfg(not(loom))]
mod parts {
    pub use std::hint::spin_loop;
    pub use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    pub use std::sync::{Arc, Mutex, MutexGuard};
    pub use std::thread::{Builder, JoinHandle, park, yield_now};

    /// A no-op: `SeqCst` accesses have a total order already.
    #[inline(always)]
    pub fn order_of_all() {}

    /// Has loom's interface: the contents are accessed through a pointer for the duration of a call.
    pub struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

    impl<T> UnsafeCell<T> {
        pub fn new(value: T) -> UnsafeCell<T> {
            UnsafeCell(std::cell::UnsafeCell::new(value))
        }

        #[inline(always)]
        pub fn with<R>(&self, read: impl FnOnce(*const T) -> R) -> R {
            read(self.0.get())
        }

        #[inline(always)]
        pub fn with_mut<R>(&self, write: impl FnOnce(*mut T) -> R) -> R {
            write(self.0.get())
        }
    }
}

#[cfg(loom)]
mod parts {
    pub use loom::cell::UnsafeCell;
    pub use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    pub use loom::sync::{Arc, Mutex, MutexGuard};
    pub use loom::thread::{Builder, JoinHandle, park, yield_now};

    /// Loom treats `SeqCst` accesses as acquire and release, and derives the total order from fences only. Without this
    /// fence it reports that a sleeper is not woken, which the accesses themselves rule out.
    pub fn order_of_all() {
        loom::sync::atomic::fence(Ordering::SeqCst);
    }

    /// Yields to the other threads: polling again by itself changes nothing.
    pub fn spin_loop() {
        yield_now();
    }
}

pub use parts::*;
