//! The entries that block an entry; pure.
//!
//! A *blocking set* is a set of older entries that alone block an entry: while all of them exist, no other deletion matters.
//! One entry may be enough: the predecessor of an exclusive one, the nearest writer before a reader. Of permits it takes
//! several, and up to twice as many are watched: then the end of one causes no read.

use leasehold_core::Mode;
use leasehold_core::backend::Load;

use super::Revision;
use super::told::{Key, Told};

/// An entry older than the own one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Rival {
    pub(crate) key: Key,
    pub(crate) create: Revision,
    pub(crate) mode: Mode,
}

pub(super) fn admits(mode: Mode, older: &[Rival]) -> bool {
    older.iter().map(|rival| rival.mode).collect::<Load>().admits(mode)
}

/// Some of these, youngest first, that block an entry together, to be watched one by one: the ones whose watches stood `at`
/// that revision, if they block it, and else the nearest. `None` if that takes too many, or they do not block it.
pub(super) fn blocking_set(mode: Mode, older: &[Rival], told: &Told, at: Revision) -> Option<Vec<Rival>> {
    if let Some(rival) = barrier(mode, older) {
        return Some(vec![rival.clone()]);
    }
    let wide = 2 * least(mode, older).filter(|least| *least <= MOST)? - 1;
    let stands = |Rival { key, .. }: &&Rival| told.keys.get(key).is_some_and(|watch| watch.stands(key, at));
    let standing: Vec<_> = older.iter().filter(stands).take(wide).cloned().collect();
    match admits(mode, &standing) {
        true => Some(older.iter().take(wide).cloned().collect()),
        false => Some(standing),
    }
}

/// As few of these as block an entry together; all of them, if they do not.
pub(super) fn fewest(mode: Mode, mut older: Vec<Rival>) -> Vec<Rival> {
    if let Some(rival) = barrier(mode, &older) {
        return vec![rival.clone()];
    }
    older.truncate(least(mode, &older).unwrap_or(older.len()));
    older
}

/// The nearest that blocks an entry alone. No entry between the two holds before that one is deleted.
fn barrier(mode: Mode, older: &[Rival]) -> Option<&Rival> {
    older.iter().find(|rival| rival.mode.bars(mode))
}

/// How many of the nearest block an entry together.
fn least(mode: Mode, older: &[Rival]) -> Option<usize> {
    let mut load = Load::NONE;
    let refused = older.iter().position(|rival| {
        load = load.and(rival.mode);
        !load.admits(mode)
    });
    refused.map(|last| last + 1)
}

/// So many at most are watched one by one. Behind more the whole queue is watched: most releases would be reported
/// anyway.
const MOST: usize = 8;
