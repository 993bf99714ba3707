//! The CPUs that this process may use, and pinning a thread to one of them (Linux; elsewhere nothing is pinned).

/// The CPUs of the calling thread's affinity mask, its current one first; empty if unknown.
#[cfg(all(target_os = "linux", not(any(miri, loom))))]
pub fn allowed_cpus() -> Vec<usize> {
    // SAFETY: `cpu_set_t` is plain bits, for which all zeros is valid.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: `set` is valid memory of the size that is passed.
    if unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut set) } != 0 {
        return Vec::new();
    }
    // SAFETY: every index is below CPU_SETSIZE, the number of bits in the set.
    let mut cpus: Vec<usize> =
        (0..libc::CPU_SETSIZE as usize).filter(|&cpu| unsafe { libc::CPU_ISSET(cpu, &set) }).collect();
    // SAFETY: no preconditions; -1 on failure, which matches no CPU.
    let current = unsafe { libc::sched_getcpu() };
    if let Some(at) = cpus.iter().position(|&cpu| cpu as i32 == current) {
        cpus.rotate_left(at);
    }
    cpus
}

/// Restricts the calling thread, and those that it starts later, to these CPUs. Best effort.
#[cfg(all(target_os = "linux", not(any(miri, loom))))]
pub fn keep_to(cpus: &[usize]) {
    // SAFETY: all zeros is a valid `cpu_set_t`, and indices past its end are skipped.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        cpus.iter().filter(|cpu| **cpu < libc::CPU_SETSIZE as usize).for_each(|cpu| libc::CPU_SET(*cpu, &mut set));
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set);
    }
}

#[cfg(any(not(target_os = "linux"), miri, loom))]
pub fn keep_to(_cpus: &[usize]) {}

/// The caller is worker 0 and keeps its current CPU, so worker `i` gets the `i`-th of [`allowed_cpus`].
pub fn cpu_for_worker(cpus: &[usize], worker: usize) -> Option<usize> {
    cpus.get(worker).copied()
}

/// Best effort: an unpinned thread is slower, not wrong.
#[cfg(all(target_os = "linux", not(any(miri, loom))))]
pub fn pin_this_thread(cpu: usize) {
    // SAFETY: all zeros is a valid `cpu_set_t`; `cpu` came out of such a set, so it is below CPU_SETSIZE.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set);
    }
}

#[cfg(any(not(target_os = "linux"), miri, loom))]
pub fn allowed_cpus() -> Vec<usize> {
    Vec::new()
}

#[cfg(any(not(target_os = "linux"), miri, loom))]
pub fn pin_this_thread(_cpu: usize) {}
