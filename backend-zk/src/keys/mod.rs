//! Names of nodes, and the order of contenders; pure.
//!
//! A lock is the directory `/CHROOT/PREFIX/enc(NAME)`; a contender in it is `_c_<uuid>-lock-<sequence>`, as Curator's
//! `InterProcessMutex` writes them, or, if it shares the lock, `_c_<uuid>-shared-lock-<sequence>`, which Curator takes for one
//! of the first kind. The store's own directories are next to the locks. Their names begin with `%` and a letter that is no
//! hexadecimal digit; no encoded name begins so.
//!
//! # Invariants
//! - **zk.keys-1** Two lock names never have the same directory (G10), and no lock has one of the store's own.
//! - **zk.keys-2** Contenders are ordered by their sequence numbers. A directory gives out each number once, in growing
//!   order, until its counter is at 2 147 483 647; there it stays. Equal numbers have no order.
//! - **zk.keys-3** Every child whose name ends in ten digits of a sequence number is a contender, whichever client made it: a
//!   directory counts all its children by one counter. Any other child is none.
//! - **zk.keys-4** Only a name exactly as we give it to a sharer is read as a sharer's. A contender of any other name
//!   blocks all others, and is blocked by all.

mod note;

use std::fmt::Write as _;

use leasehold_core::{Error, ErrorKind, LockName, Mode, OwnerId, Result};
use percent_encoding::{percent_decode_str, percent_encode_byte};

pub(crate) use note::Note;

/// Where a store's nodes are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Namespace {
    /// The node of the whole store; empty for the root of the tree.
    pub(crate) root: String,
}

impl Namespace {
    /// Below `prefix` below `chroot`; slashes at the ends do not count.
    pub(crate) fn new(chroot: &str, prefix: &str) -> Result<Self> {
        let mut root = String::new();
        for part in [chroot, prefix].map(|part| part.trim_matches('/')) {
            for segment in part.split('/').filter(|_| !part.is_empty()) {
                if let Some(rule) = fault(segment) {
                    return Err(Error::invalid_option(format!("path {part:?} is invalid: {rule}")));
                }
                root.push('/');
                root.push_str(segment);
            }
        }
        Ok(Self { root })
    }

    /// That node, by its whole path.
    pub(crate) fn node(&self) -> &str {
        if self.root.is_empty() { "/" } else { &self.root }
    }

    /// The directory of a lock.
    pub(crate) fn directory(&self, name: &LockName) -> String {
        [&self.root, "/", &encoded(name.as_str())].concat()
    }

    /// The node that an answered write on proves the session `id` by.
    pub(crate) fn session(&self, id: i64) -> String {
        format!("{}/{id:016x}", self.sessions())
    }

    /// The node that exists in addition while the session takes part in a move.
    pub(crate) fn moves(&self, id: i64) -> String {
        format!("{}{MOVES}", self.session(id))
    }

    /// The directory of the sessions' nodes.
    pub(crate) fn sessions(&self) -> String {
        self.beside("%sessions")
    }

    /// The node in which the session `id` receives requests for revocation.
    pub(crate) fn inbox(&self, id: i64) -> String {
        format!("{}/{id:016x}", self.beside("%inboxes"))
    }

    /// The node with the number that is added to every counter.
    pub(crate) fn token_base(&self) -> String {
        self.beside("%token_base")
    }

    /// The record of the move to another store.
    pub(crate) fn record(&self) -> String {
        self.beside("%move")
    }

    /// The entry of a participant.
    pub(crate) fn member(&self, id: OwnerId) -> String {
        format!("{}/{}", self.members(), id.to_hex())
    }

    /// The directory of the participants' nodes.
    pub(crate) fn members(&self) -> String {
        self.beside("%members")
    }

    /// A node that is not a lock's (zk.keys-1).
    fn beside(&self, name: &str) -> String {
        format!("{}/{name}", self.root)
    }
}

/// Refuses a namespace of another format, by the data of its node. Foreign data has no format.
///
/// # Errors
///
/// [`ErrorKind::Unsupported`], which names the format.
pub(crate) fn understood(data: &[u8]) -> Result<()> {
    let text = String::from_utf8_lossy(data);
    match text.strip_prefix("leasehold ") {
        None | Some("1") => Ok(()),
        Some(format) => {
            let refused = format!("the namespace has format {format:?}, but this version reads format 1");
            Err(Error::not_applied(ErrorKind::Unsupported, refused))
        }
    }
}

/// The suffix of the additional node of a session that takes part in a move.
const MOVES: &str = "-moves";

/// The session that takes part in a move by this child of their directory.
pub(crate) fn mover_of(child: &str) -> Option<i64> {
    session_of(child.strip_suffix(MOVES)?)
}

/// The session of a child of their directory; `None` for other nodes.
pub(crate) fn session_of(child: &str) -> Option<i64> {
    let id = u64::from_str_radix(child, 16).ok()?.cast_signed();
    (format!("{id:016x}") == child).then_some(id)
}

/// The parent of a node; `None` for one at the top.
pub(crate) fn parent(path: &str) -> Option<&str> {
    path.rsplit_once('/').map(|(parent, _)| parent).filter(|parent| !parent.is_empty())
}

/// The lock of a directory, by its last segment; `None` for segments that no lock has.
pub(crate) fn decoded(segment: &str) -> Option<LockName> {
    let name = LockName::new(percent_decode_str(segment).decode_utf8().ok()?).ok()?;
    // Another spelling of the same name is a foreign node.
    (encoded(name.as_str()) == segment).then_some(name)
}

/// The number that the server gave a contender, which is its position in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Sequence(u32);

impl Sequence {
    /// The server counts in 32 bits with a sign. Below 0 it is past the end.
    pub(crate) fn new(number: i32) -> Self {
        Self(u32::try_from(number).unwrap_or(PAST_THE_END))
    }

    /// The number of the child called `node`, if that is a contender.
    ///
    /// A sign looks like a dash, so a number past the end is read as one that is near it.
    pub(crate) fn of(node: &str) -> Option<Self> {
        let digits = node.get(node.len().checked_sub(DIGITS)?..)?;
        let all_digits = digits.bytes().all(|byte| byte.is_ascii_digit());
        let number = digits.parse().ok().filter(|number| all_digits && *number <= PAST_THE_END);
        number.map(Self)
    }

    /// The next number, if it can be held without a listing.
    pub(crate) fn next(self) -> Option<Self> {
        Self(self.0.saturating_add(1)).if_in_the_middle()
    }

    /// The next number of a directory, if it can be held without a listing: the number of children that it has ever had.
    /// The server shows how often a child was made or deleted, in 32 bits. With the number of children that is twice as
    /// many.
    pub(crate) fn after_all(changes: i32, children: usize) -> Option<Self> {
        let twice = changes.cast_unsigned().wrapping_add(u32::try_from(children).ok()?);
        if twice % 2 == 0 { Self(twice / 2).if_in_the_middle() } else { None }
    }

    /// Unless the directory is to be renewed, or the numbers are near their end.
    fn if_in_the_middle(self) -> Option<Self> {
        (!self.calls_for_renewal() && !self.is_near_the_end()).then_some(self)
    }

    /// Whether the directory that gave it out is to be renewed, if that is possible now.
    ///
    /// Not for all numbers from the half on, so that a directory in constant use is not disturbed all the time.
    pub(crate) fn calls_for_renewal(self) -> bool {
        HALF <= self.0 && self.0 % RENEWAL_EVERY < RENEWAL_LASTS
    }

    /// Whether no lock may be acquired among such numbers.
    pub(crate) fn is_near_the_end(self) -> bool {
        END <= self.0
    }
}

/// One of our own contenders.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Node {
    owner: OwnerId,
    mode: Mode,
    number: i32,
}

impl Node {
    pub(crate) fn new(owner: OwnerId, mode: Mode, number: i32) -> Self {
        Self { owner, mode, number }
    }

    /// Whether it shares the lock.
    pub(crate) fn is_shared(&self) -> bool {
        self.mode == Mode::SHARED
    }

    pub(crate) fn sequence(&self) -> Sequence {
        Sequence::new(self.number)
    }

    /// The name of the child, as the server writes it.
    pub(crate) fn name(&self) -> String {
        self.path("").split_off(1)
    }

    /// The path of the child.
    pub(crate) fn path(&self, directory: &str) -> String {
        let mut path = stem_in(directory, self.owner, self.mode);
        // A string takes everything.
        let _infallible = write!(path, "{:010}", self.number);
        path
    }
}

/// The name of `owner`'s child without its sequence number, which the server appends.
pub(crate) fn stem(owner: OwnerId, mode: Mode) -> String {
    stem_in("", owner, mode).split_off(1)
}

/// The path of that child without its sequence number, with room for that.
pub(crate) fn stem_in(directory: &str, owner: OwnerId, mode: Mode) -> String {
    let (hex, kind) = (owner.to_hex(), kind_of(mode));
    let (a, b, c, d, e) = (&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]);
    let mut path = String::with_capacity(directory.len() + LONGEST);
    path.extend([directory, "/_c_", a, "-", b, "-", c, "-", d, "-", e, kind]);
    path
}

/// The part of a name between owner and number.
fn kind_of(mode: Mode) -> &'static str {
    if mode == Mode::SHARED { "-shared-lock-" } else { "-lock-" }
}

/// The owner of a child for a hold of that mode, if the name is as we give it.
pub(crate) fn owner_of(child: &str, mode: Mode) -> Option<OwnerId> {
    let named = child.get(..child.len().checked_sub(DIGITS)?)?;
    let made_by = named.strip_suffix(kind_of(mode))?.strip_prefix("_c_")?;
    let owner = OwnerId::from_hex(&made_by.replace('-', ""))?;
    (named == stem(owner, mode) && Sequence::of(child).is_some()).then_some(owner)
}

/// The mode of a contender of this name (zk.keys-4).
pub(crate) fn mode_of(child: &str) -> Mode {
    if owner_of(child, Mode::SHARED).is_some() { Mode::SHARED } else { Mode::EXCLUSIVE }
}

/// The next number of a directory. A contender that gets it there holds, if the listing that predicts it admits the contender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Next {
    pub(crate) number: Sequence,
    /// The transaction that made the directory: another directory of the same name counts anew.
    pub(crate) directory: i64,
}

/// The children of a lock's directory, as a server has listed them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Listing {
    children: Vec<String>,
    /// Whether this store may have made the directory.
    pub(crate) may_be_ours: bool,
    /// The next number of the directory, if it is as we make them.
    next: Option<Next>,
}

/// The position of a contender in a listing.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum NodePosition {
    /// Not in it.
    Absent,
    /// The older contenders admit us.
    Admitted,
    /// An older contender does not admit us.
    Behind(Barrier),
}

/// The youngest contender that blocks another one alone.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Barrier {
    pub(crate) name: String,
    /// It blocks all others, and without it the other older contenders admit us.
    pub(crate) end_admits: bool,
    /// It blocks all others, so none was older when it began to hold. The contenders between it and this one admit this one:
    /// one that does not would be the barrier instead.
    pub(crate) pass_admits: bool,
}

impl Listing {
    pub(crate) fn new(children: Vec<String>, may_be_ours: bool) -> Self {
        Self { children, may_be_ours, next: None }
    }

    /// The same of a `directory` as we make them, with the number of `changes` of its children.
    pub(crate) fn counted(mut self, directory: i64, changes: i32) -> Self {
        let number = Sequence::after_all(changes, self.children.len());
        self.next = number.map(|number| Next { number, directory });
        self
    }

    /// The same of a directory whose numbers prove nothing.
    pub(crate) fn uncounted(self) -> Self {
        Self { next: None, ..self }
    }

    /// The next number, if a contender that gets it, in a mode that the listing admits, need not list again
    /// (zk.contender-6).
    pub(crate) fn next(&self) -> Option<Next> {
        self.next.filter(|_| self.near_the_end().is_none())
    }

    pub(crate) fn children(&self) -> impl Iterator<Item = &str> {
        self.children.iter().map(String::as_str)
    }

    /// Leaves out contenders that are known to be gone.
    pub(crate) fn without(mut self, gone: &[String]) -> Self {
        self.children.retain(|child| !gone.contains(child));
        self
    }

    /// The position of `node`.
    ///
    /// Contenders of these two modes that each admit this node admit it together, too.
    pub(crate) fn place_of(&self, node: &Node) -> NodePosition {
        let (name, own) = (node.name(), node.sequence());
        if !self.children.contains(&name) {
            return NodePosition::Absent;
        }
        // As other clients read it.
        let ours = mode_of(&name);
        let older = self.children().filter(|child| *child != name).filter_map(|child| {
            let sequence = Sequence::of(child).filter(|sequence| *sequence <= own)?;
            mode_of(child).bars(ours).then_some((sequence, child))
        });
        let barriers: Vec<_> = older.collect();
        let Some((_, youngest)) = barriers.iter().max() else {
            return NodePosition::Admitted;
        };
        NodePosition::Behind(Barrier {
            name: (*youngest).to_owned(),
            end_admits: mode_of(youngest) == Mode::EXCLUSIVE && barriers.len() == 1,
            pass_admits: owner_of(youngest, Mode::EXCLUSIVE).is_some(),
        })
    }

    /// Whether a contender of that mode would be admitted if it came now.
    pub(crate) fn admits(&self, mode: Mode) -> bool {
        !self.contenders().into_iter().any(|child| mode_of(child).bars(mode))
    }

    /// The oldest contender, which holds; empty without contenders.
    pub(crate) fn first(&self) -> String {
        self.contenders().first().copied().unwrap_or_default().to_owned()
    }

    /// A contender whose number is near the end of the directory's counter.
    pub(crate) fn near_the_end(&self) -> Option<&str> {
        self.children().find(|child| Sequence::of(child).is_some_and(Sequence::is_near_the_end))
    }

    /// A contender whose name is given neither by us nor by Curator's mutex: it may not wait for us.
    pub(crate) fn foreign(&self) -> Option<&str> {
        let mut numbered = self.children().filter(|child| Sequence::of(child).is_some());
        numbered.find(|child| {
            let kind = &child[..child.len() - DIGITS];
            !["lock-", "lock--"].iter().any(|ours| kind.ends_with(ours))
        })
    }

    /// The node of `owner`, found by name.
    pub(crate) fn find(&self, owner: OwnerId, mode: Mode) -> Option<Node> {
        let stem = stem(owner, mode);
        let number = self.children().find_map(|child| child.strip_prefix(&stem)?.parse().ok())?;
        Some(Node::new(owner, mode, number))
    }

    /// The contenders, the oldest first.
    pub(crate) fn contenders(&self) -> Vec<&str> {
        let numbered = |child| Some((Sequence::of(child)?, child));
        let mut contenders: Vec<(Sequence, &str)> = self.children().filter_map(numbered).collect();
        contenders.sort_unstable();
        contenders.into_iter().map(|(_, child)| child).collect()
    }

    /// The contenders that hold, the oldest first: the sharers before the first exclusive one, or that one alone.
    pub(crate) fn holding(&self) -> Vec<&str> {
        let mut contenders = self.contenders();
        let sharing = contenders.iter().take_while(|child| mode_of(child) == Mode::SHARED).count();
        contenders.truncate(sharing.max(1));
        contenders
    }
}

/// A name as a segment of a path: other characters become `%` and two upper-case hexadecimal digits per byte.
fn encoded(name: &str) -> String {
    let mut segment = String::with_capacity(name.len());
    // These segments have a meaning of their own; one escape makes them ordinary.
    let reserved = matches!(name, "." | ".." | "zookeeper");
    for (at, c) in name.char_indices() {
        if stands_for_itself(c) && !(reserved && at == 0) {
            segment.push(c);
            continue;
        }
        segment.extend(c.encode_utf8(&mut [0; 4]).bytes().map(percent_encode_byte));
    }
    segment
}

/// In addition to the separator and the escape, the server refuses in a path: control characters, and UTF-16 units from D800 to
/// F8FF and from FFF0 on, which every character beyond U+FFFF is made of.
fn stands_for_itself(c: char) -> bool {
    !matches!(c, '/' | '%') && !matches!(u32::from(c), 0..=0x1f | 0x7f..=0x9f | 0xd800..=0xf8ff | 0xfff0..)
}

/// Why a text is not a segment of the chroot or the prefix.
fn fault(segment: &str) -> Option<&'static str> {
    match segment {
        "" => Some("a segment is empty"),
        "." | ".." => Some("a segment must not be . or .."),
        _ if !segment.chars().all(|c| c == '%' || stands_for_itself(c)) => {
            Some("it has a character that ZooKeeper does not allow")
        }
        _ => None,
    }
}

/// The word that Curator's `Revoker` writes into the node of a holder.
pub(crate) const REVOKE: &[u8] = b"__REVOKE__";
/// Room for a slash and the name of one of our children.
const LONGEST: usize = 64;
/// The digits of a sequence number in a name.
const DIGITS: usize = 10;
/// From here on a directory is renewed where possible: half of the numbers are left.
const HALF: u32 = 1 << 30;
/// Of so many numbers, the first [`RENEWAL_LASTS`] call for it: more than there are contenders.
const RENEWAL_EVERY: u32 = 1 << 20;
const RENEWAL_LASTS: u32 = 1 << 16;
/// From here on no contender holds. The rest is left for contenders that come while the last admitted one holds.
const END: u32 = PAST_THE_END - (1 << 22);
const PAST_THE_END: u32 = 1 << 31;

#[cfg(test)]
mod tests;
