//! The clock whose readings can be compared between the processes of one host.

use rustix::time::{ClockId, clock_gettime};

/// `CLOCK_MONOTONIC`, in nanoseconds. Every runtime can read it, and all processes read the same.
pub fn now() -> u64 {
    let read = clock_gettime(ClockId::Monotonic);
    // Not negative since the host has started.
    read.tv_sec.cast_unsigned() * 1_000_000_000 + read.tv_nsec.cast_unsigned()
}
