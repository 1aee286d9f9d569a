//! How a lock is held.

/// How a lock is held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Mode {
    /// By one holder.
    #[default]
    Exclusive,
}
