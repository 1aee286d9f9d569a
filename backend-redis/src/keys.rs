//! The keys of a name, and back.
//!
//! All keys of a name carry it in braces, escaped, so they lie in one slot of a cluster and no two
//! names share one (G10): braces never occur elsewhere in them.
//!
//! | key | holds |
//! |---|---|
//! | `P:{N}`, or a key of other libraries | the lock: the holder's owner id, with the lease as expiry |
//! | `P:{N}:q` | the queue: owner ids in order of arrival |
//! | `P:{N}:e` | the queue's entries, and until when they are live |
//! | `P:{N}:n` | the last grant: its counter and its owner; it ends a day after the grant or its last renewal, or later |
//! | `P:{N}:h`, or a key of other libraries | the holders of a lock that several share; or the list of foreign waiters |
//!
//! Checked by the tests below and the cases of `g10`.

use std::borrow::Cow;

use leasehold_core::{Error, ErrorKind, LockName, OwnerId, Result};

/// How names become keys in one namespace.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Keys {
    prefix: String,
    /// The same without the slot in which all keys lie, if they do: servers and slots have origins in slots of their own.
    unpinned: String,
    /// The parts around the name in the key of a lock that is shared with other libraries.
    around: Option<(Box<str>, Box<str>)>,
    /// The key of the list on which foreign clients wait, without the name at its end; `None` if they wait on no list.
    list: Option<&'static str>,
}

/// Where a template has the name.
pub(crate) const NAME: &str = "{name}";

/// The keys of one name, one behind the other.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct NameKeys {
    text: Box<str>,
    /// Where each but the last ends.
    ends: [usize; 4],
}

impl NameKeys {
    /// In the order in which scripts are given them: lock, queue, entries, grants, sharers or the list of foreign waiters.
    pub(crate) fn all(&self) -> [&str; 5] {
        let [lock, queue, entries, grants] = self.ends;
        let text = &self.text;
        [&text[..lock], &text[lock..queue], &text[queue..entries], &text[entries..grants], &text[grants..]]
    }
}

/// How many keys a name has.
pub(crate) const KEYS: usize = 5;

/// How the keys of a name end that are not those of other libraries.
const ENDS: [&str; KEYS] = ["", ":q", ":e", ":n", ":h"];

/// The layout of keys and messages; a namespace without a format key has this format.
pub(crate) const FORMAT: &str = "1";

/// The id of a session's inbox: hexadecimal, and the database behind it, as channels do not belong to one; and something more
/// if the session takes part in a move.
pub(crate) fn inbox(session: OwnerId, database: u32, moves: bool) -> String {
    format!("{}-{database}{}", session.to_hex(), if moves { "-moves" } else { "" })
}

/// Whether an inbox is that of a session in `database` which takes no part in a move, and so adds the base it has read.
pub(crate) fn is_inbox_of_one_that_adds(id: &str, database: u32) -> bool {
    id.split_once('-').is_some_and(|(session, behind)| {
        OwnerId::from_hex(session).is_some() && behind == database.to_string()
    })
}

impl Keys {
    /// Keys that begin with `prefix`; locks lie under the `template` with their name, if given.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidOption`] for a prefix that could be part of a name.
    pub(crate) fn new(prefix: &str, template: Option<&str>) -> Result<Self> {
        let wrong = |c: char| c.is_control() || c == '{' || c == '}';
        if prefix.is_empty() || prefix.contains(wrong) {
            return Err(Error::invalid_option(format!(
                "prefix {prefix:?} is invalid: expected a text without braces and control characters"
            )));
        }
        let parts = |template: &str| {
            let (before, behind) = template.split_once(NAME).unwrap_or((template, ""));
            (before.into(), behind.into())
        };
        let (prefix, unpinned) = (prefix.to_owned(), prefix.to_owned());
        Ok(Self { prefix, unpinned, around: template.map(parts), list: None })
    }

    /// The same keys, all of them in the slot of `tag`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidOption`] for a tag that does not fit between braces.
    pub(crate) fn in_slot_of(self, tag: &str) -> Result<Self> {
        if tag.is_empty() || tag.contains(|c: char| c.is_control() || c == '{' || c == '}') {
            return Err(Error::invalid_option(format!(
                "pin={tag:?} is invalid: expected a text without braces and control characters"
            )));
        }
        Ok(Self { prefix: format!("{}:{{{tag}}}", self.prefix), ..self })
    }

    /// With the list of foreign waiters, whose key is `before` and the name, in place of the holders that share a lock.
    pub(crate) fn with_list(self, before: Option<&'static str>) -> Self {
        Self { list: before, ..self }
    }

    /// Refuses a name that has no keys.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidName`] for a name whose lock would lie among the keys of the store.
    pub(crate) fn admit(&self, name: &LockName) -> Result<()> {
        if self.around.is_none() {
            return Ok(());
        }
        let list = self.list.map(|before| [before, name.as_str()].concat());
        if let Some(key) = [self.lock(name)].iter().chain(&list).find(|key| self.is_ours(key)) {
            return Err(Error::not_applied(
                ErrorKind::InvalidName,
                format!(
                    "the lock's key would be {key:?}: keys that begin with \"{}:\" are reserved for the \
                     store",
                    self.prefix
                ),
            ));
        }
        Ok(())
    }

    /// Calls `add` with the parts that keys of `name` begin with, and the end of each, in the order of [`NameKeys::all`].
    ///
    /// # Errors
    ///
    /// As [`Keys::admit`].
    pub(crate) fn each(&self, name: &LockName, mut add: impl FnMut(&[&str], &[&str])) -> Result<()> {
        self.admit(name)?;
        let (mut ends, text) = (&ENDS[..], name.as_str());
        if let Some((before, behind)) = &self.around {
            add(&[before, text, behind], &[""]);
            ends = &ends[1..];
        }
        if self.list.is_some() {
            ends = &ends[..ends.len() - 1];
        }
        add(&[&self.prefix, ":{", &escaped(text), "}"], ends);
        if let Some(before) = self.list {
            add(&[before, text], &[""]);
        }
        Ok(())
    }

    /// How long keys of `name` are, unless they are escaped.
    pub(crate) fn longest(&self, name: &LockName) -> usize {
        let around = self.around.as_ref().map_or(0, |(before, behind)| before.len() + behind.len());
        name.as_str().len() + around.max(self.prefix.len() + ":{}:q".len())
    }

    /// The keys of `name`.
    ///
    /// # Errors
    ///
    /// As [`Keys::admit`].
    pub(crate) fn of(&self, name: &LockName) -> Result<NameKeys> {
        let (mut text, mut ends) = (String::new(), Vec::with_capacity(KEYS));
        self.each(name, |parts, behind| {
            for end in behind {
                text.extend(parts.iter().chain([end]).copied());
                ends.push(text.len());
            }
        })?;
        Ok(NameKeys { ends: [0, 1, 2, 3].map(|key| ends[key]), text: text.into() })
    }

    /// The key of the lock of `name`.
    pub(crate) fn lock(&self, name: &LockName) -> String {
        match &self.around {
            Some((before, behind)) => [before, name.as_str(), behind].concat(),
            None => self.each_of(name, [""]).concat(),
        }
    }

    /// The beginning of an inbox's channel, before its id.
    pub(crate) fn channels(&self) -> String {
        format!("{}:inbox:", self.prefix)
    }

    /// The beginning of a channel of the slot of `tag`, before the id of an inbox.
    pub(crate) fn slot_channels(&self, tag: &str) -> String {
        format!("{}:{{{tag}}}:inbox:", self.prefix)
    }

    /// The pattern of the channels of all inboxes.
    pub(crate) fn inboxes(&self) -> String {
        glob_escaped(&self.channels()) + "*"
    }

    /// The key of the number that is added to every counter of the namespace.
    pub(crate) fn token_base(&self) -> String {
        format!("{}:token_base", self.prefix)
    }

    /// The key for the run of the server.
    pub(crate) fn origin(&self) -> String {
        format!("{}:{{%origin}}", self.prefix)
    }

    /// The key for the origin of a slot of a cluster, which has that `tag`.
    pub(crate) fn origin_of(&self, tag: &str) -> String {
        format!("{}:{{{tag}}}:%origin", self.unpinned)
    }

    /// The key for the origin of a server of a cluster, in a slot of its own with that `tag`.
    pub(crate) fn origin_of_server(&self, tag: &str) -> String {
        format!("{}:{{{tag}}}:%server", self.unpinned)
    }

    /// The key for the state of a quorum's server in the namespace.
    pub(crate) fn space(&self) -> String {
        format!("{}:{{%quorum}}", self.prefix)
    }

    /// The key of the record of a move to another store or from one. No name is escaped like that.
    pub(crate) fn record(&self) -> String {
        format!("{}:{{%move}}:record", self.prefix)
    }

    /// The key for the format of the namespace, and for the mark of its message key.
    pub(crate) fn format(&self) -> String {
        format!("{}:{{%move}}:format", self.prefix)
    }

    /// The keys of the participants: their entries, and until when they are live.
    pub(crate) fn members(&self) -> [String; 2] {
        ["members", "until"].map(|part| format!("{}:{{%move}}:{part}", self.prefix))
    }

    /// The pattern of the keys of every name that begins with `start`.
    pub(crate) fn pattern(&self, start: &str) -> String {
        format!("{}:{{{}*", glob_escaped(&self.prefix), glob_escaped(&escaped(start)))
    }

    /// The name that `key` belongs to, unless it is not a key of this namespace.
    pub(crate) fn name_of(&self, key: &str) -> Option<LockName> {
        self.name_with_one_of(&ENDS, key)
    }

    /// The name behind which one of `parts` makes `key`.
    pub(crate) fn name_with_one_of(&self, parts: &[&str], key: &str) -> Option<LockName> {
        let rest = key.strip_prefix(&self.prefix)?.strip_prefix(":{")?;
        let (name, part) = rest.split_once('}')?;
        LockName::new(unescaped(name)?).ok().filter(|_| parts.contains(&part))
    }

    /// A key of `name` for each of the parts that it has.
    pub(crate) fn each_of<const N: usize>(&self, name: &LockName, parts: [&str; N]) -> [String; N] {
        let name = escaped(name.as_str());
        parts.map(|part| [&self.prefix, ":{", &*name, "}", part].concat())
    }

    /// The name whose lock `key` is, unless it is not a key of this namespace.
    pub(crate) fn name_of_lock(&self, key: &str) -> Option<LockName> {
        match &self.around {
            Some((before, behind)) => {
                LockName::new(key.strip_prefix(&**before)?.strip_suffix(&**behind)?).ok()
            }
            None => self.name_of(key),
        }
    }

    fn is_ours(&self, key: &str) -> bool {
        key.strip_prefix(&self.prefix).is_some_and(|rest| rest.starts_with(':'))
    }
}

/// `name` without braces; injective.
fn escaped(name: &str) -> Cow<'_, str> {
    if name.bytes().any(|byte| matches!(byte, b'%' | b'{' | b'}')) {
        name.replace('%', "%25").replace('{', "%7B").replace('}', "%7D").into()
    } else {
        name.into()
    }
}

/// The reverse of [`escaped`]; `None` for another text.
fn unescaped(text: &str) -> Option<String> {
    let name = text.replace("%7B", "{").replace("%7D", "}").replace("%25", "%");
    (escaped(&name) == text).then_some(name)
}

/// `text` as a pattern that matches only itself.
fn glob_escaped(text: &str) -> String {
    let escape = |c| Some('\\').filter(|_| "*?[]\\".contains(c));
    text.chars().flat_map(|c| escape(c).into_iter().chain([c])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::HashSlot;

    fn keys() -> Keys {
        Keys::new("p", None).unwrap()
    }

    /// Names that an encoding might merge have keys of their own, and every key leads back to its name.
    #[test]
    fn keys_are_injective_and_lead_back() {
        let mut seen = std::collections::BTreeSet::new();
        for name in ["a", "a}", "a}:q", "{a}", "a%7D", "a%257D", "a:q", "%", "é", "a*", "a b", "."] {
            let name = LockName::new(name).unwrap();
            for key in keys().of(&name).unwrap().all() {
                assert_eq!(keys().name_of(key), Some(name.clone()), "{key}");
                assert_eq!(key.matches(['{', '}']).count(), 2, "{key}");
                assert!(seen.insert(key.to_owned()));
            }
        }
    }

    /// Keys of others, and of spellings we never write, belong to no name.
    #[test]
    fn foreign_keys_belong_to_no_name() {
        let moves = Keys::new("p", None).unwrap();
        for key in moves.members().iter().chain([&moves.record(), &moves.origin(), &moves.format()]) {
            assert_eq!(moves.name_of(key), None, "{key}");
        }
        for key in ["p", "p:x", "p:{a", "p:{a}:z", "q:{a}", "p:{%41}", "p:{}", "p:{a%7}", "p:{%é}", "pp:{a}"]
        {
            assert_eq!(keys().name_of(key), None, "{key}");
        }
    }

    /// A key may be the bare name; a name that could be a key of ours is refused then.
    #[test]
    fn bare_names_are_no_keys_of_ours() {
        let (bare, own) = (Keys::new("p", Some(NAME)).unwrap(), keys());
        let name = LockName::new("orders").unwrap();
        let five = ["orders", "p:{orders}:q", "p:{orders}:e", "p:{orders}:n", "p:{orders}:h"];
        assert_eq!(bare.of(&name).unwrap().all(), five);
        for ours in ["p:{orders}:q", "p:token_base", "p:orders", "p:"] {
            let error = bare.of(&LockName::new(ours).unwrap()).unwrap_err();
            assert_eq!(*error.kind(), ErrorKind::InvalidName, "{ours}");
            assert!(own.of(&LockName::new(ours).unwrap()).is_ok(), "{ours}");
        }
        assert!(bare.of(&LockName::new("porders").unwrap()).is_ok());
        assert_eq!(bare.name_of_lock("orders"), Some(name.clone()));
        assert_eq!(own.name_of_lock("p:{orders}"), Some(name));
    }

    /// A template's key leads back to its name, and one that lies where keys of ours do is refused.
    #[test]
    fn a_template_is_a_key_of_its_own() {
        let keys = Keys::new("p", Some("lock:{name}:v1")).unwrap();
        let name = LockName::new("a:v1").unwrap();
        assert_eq!(keys.of(&name).unwrap().all()[0], "lock:a:v1:v1");
        assert_eq!(keys.name_of_lock("lock:a:v1:v1"), Some(name));
        for other in ["lock:a", "a:v1", "lock::v", "lock:v1", "p:{a}"] {
            assert_eq!(keys.name_of_lock(other), None, "{other}");
        }
        let ours = Keys::new("p", Some("p:{name}")).unwrap();
        let refused = ours.of(&LockName::new("a").unwrap()).unwrap_err();
        assert_eq!(*refused.kind(), ErrorKind::InvalidName);
        assert!(refused.to_string().contains("\"p:a\""), "{refused}");
        let list = |prefix| Keys::new(prefix, Some("lock:{name}")).unwrap().with_list(Some("signal:"));
        let name = LockName::new("a").unwrap();
        assert_eq!(list("p").of(&name).unwrap().all()[4], "signal:a");
        assert_eq!(*list("signal").of(&name).unwrap_err().kind(), ErrorKind::InvalidName);
    }

    /// A pattern matches what it says literally.
    #[test]
    fn patterns_escape_what_globs_mean() {
        let keys = Keys::new("p*", None).unwrap();
        assert_eq!(keys.inboxes(), "p\\*:inbox:*");
        assert_eq!(keys.pattern("a[1]?\\{"), "p\\*:{a\\[1\\]\\?\\\\%7B*");
    }

    /// Every key and channel of a pinned prefix lies in one slot, and leads back to its name there alone.
    #[test]
    fn pinned_keys_lie_in_one_slot() {
        let pinned = keys().in_slot_of("all").unwrap();
        let slot = HashSlot::of("all");
        for name in ["a", "b:q", "{c}", "%"] {
            let name = LockName::new(name).unwrap();
            for key in pinned.of(&name).unwrap().all() {
                assert_eq!(HashSlot::of(key), slot, "{key}");
                assert_eq!(pinned.name_of(key), Some(name.clone()), "{key}");
                assert_eq!(keys().name_of(key), None, "{key}");
            }
        }
        for key in [pinned.token_base(), pinned.record(), pinned.origin(), pinned.slot_channels("1")] {
            assert_eq!(HashSlot::of(&key), slot, "{key}");
        }
        for key in [pinned.origin_of("1"), pinned.origin_of_server("1")] {
            assert_eq!(HashSlot::of(&key), HashSlot::of("1"), "{key}");
        }
        for tag in ["", "a}", "{", "\n"] {
            assert!(keys().in_slot_of(tag).is_err(), "{tag:?}");
        }
    }

    /// A prefix that could be taken for a name is refused.
    #[test]
    fn prefixes_have_no_braces() {
        for prefix in ["", "a{b", "a}", "a\nb"] {
            assert!(Keys::new(prefix, None).is_err(), "{prefix:?}");
        }
    }
}
