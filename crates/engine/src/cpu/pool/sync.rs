//! The parts of the standard library that the pool's synchronisation is made of; under `--cfg loom` those of loom, which runs
//! a test under every order in which threads may take turns (`cargo xtask miri`).

#[cfg(not(loom))]
mod parts {
    pub use std::hint::spin_loop;
    pub use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    pub use std::sync::{Arc, Mutex, MutexGuard};
    pub use std::thread::{Builder, JoinHandle, park, yield_now};

    /// The order of all `SeqCst` accesses holds by itself.
    #[inline(always)]
    pub fn order_of_all() {}

    /// As loom has it: what is inside is reached by a pointer for the time of a call.
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

    /// Loom takes `SeqCst` accesses for acquire and release and knows the order of all from fences alone; without one it
    /// reports that a sleeper is not woken, which the accesses themselves rule out.
    pub fn order_of_all() {
        loom::sync::atomic::fence(Ordering::SeqCst);
    }

    /// A turn for the others: looking again by itself changes nothing.
    pub fn spin_loop() {
        yield_now();
    }
}

pub use parts::*;
