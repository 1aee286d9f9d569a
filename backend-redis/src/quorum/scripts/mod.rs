//! The program of each server of a quorum, and its answers. The bytes of an answer are not trusted: an answer that cannot be read
//! is a [`Protocol`](leasehold_core::ErrorKind::Protocol) error.

use std::fmt::{self, Write as _};
use std::sync::LazyLock;
use std::time::{Duration, UNIX_EPOCH};

use leasehold_core::backend::Holder;
use leasehold_core::clock::Moment;
use leasehold_core::{Error, FencingToken, OwnerId, Result, Revoke};
use redis::Value;

use super::keys::BallotKeys;
use super::protocol::{Clock, Met, Recovered, Standing, Ticket, VoteReply};
use crate::error;
use crate::keys::FORMAT;
use crate::scripts::{Call, Inboxes, Script, TELL, millis, number, parts, text, told_info};

pub(crate) static PROGRAM: LazyLock<Script> = LazyLock::new(|| {
    let (votes, rest) = include_str!("quorum.lua").split_once("---\n").expect("the text is a constant");
    Script::new(&[&format!("local FORMAT = '{FORMAT}'\n"), votes, TELL, rest])
});

/// An acquisition, and which of its rounds; as servers write it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Ballot {
    pub(crate) ticket: Ticket,
    pub(crate) round: u64,
}

impl fmt::Display for Ballot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.ticket.owner.to_hex(), self.ticket.time, self.round)
    }
}

impl Ballot {
    /// As `to_string`, without growing.
    fn text(self) -> String {
        let mut text = String::with_capacity(TEXT);
        // A string takes everything.
        let _ = write!(text, "{self}");
        text
    }

    fn read(text: &str) -> Option<Self> {
        let mut parts = text.splitn(3, ':');
        let owner = OwnerId::from_hex(parts.next()?)?;
        let (time, round) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        Some(Self { ticket: Ticket { time, owner }, round })
    }
}

/// A request for a vote.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asker<'a> {
    pub(crate) ballot: Ballot,
    pub(crate) ttl: u64,
    pub(crate) proposal: u64,
    /// Now, by the servers' clocks, in microseconds.
    pub(crate) since: u64,
    pub(crate) inbox: &'a str,
    pub(crate) info: &'a str,
    pub(crate) terms: &'a str,
}

/// The part of the request that all servers get.
pub(crate) fn vote([vote, count]: [&str; 2], space: &str, asker: Asker<'_>) -> Call {
    let Asker { ballot, ttl, proposal, since, inbox, info, terms } = asker;
    let mut call = PROGRAM.operation("vote", &[vote, count, space]);
    call.arg(ballot.text()).arg(ttl).arg(proposal).arg(proposal.div_ceil(1000) + DAY);
    call.arg_of(&[&since.to_string(), " ", inbox, " ", info]).arg(terms);
    call
}

/// The request as the server with that `run` gets it; whether the contender waits, and whether it may be in the queue already.
pub(crate) fn vote_at(call: &Call, (waits, has_place): (bool, bool), run: &str) -> Call {
    let mut call = call.extended();
    let place = u8::from(waits) + 2 * u8::from(has_place);
    call.arg(run).arg(Some(place).filter(|place| *place != 1));
    call
}

/// The answer to a request for a vote.
#[derive(Debug)]
pub(crate) struct Voted {
    /// The server's time, in microseconds, if it has read it.
    pub(crate) now: Option<u64>,
    /// `None` if the server may have forgotten votes.
    pub(crate) answer: Option<VoteReply>,
    /// The holder, if it has voted for another.
    pub(crate) holder: Option<Holder>,
}

/// Reads the answer of `vote`.
///
/// # Errors
///
/// `Protocol` also for a number that no token can have: it would be proposed to all servers.
/// [`InvalidOption`](leasehold_core::ErrorKind::InvalidOption) if the server has other terms.
pub(crate) fn voted(value: &Value) -> Result<Voted> {
    let wrong = || error::unexpected("to a request for a vote");
    if let Value::Int(_) = value {
        let n = counted(value).ok_or_else(wrong)?;
        return Ok(Voted { now: None, answer: Some(VoteReply::Voted { n }), holder: None });
    }
    let words = parts(value);
    let at = |at: usize| words.get(at).and_then(counted).ok_or_else(wrong);
    let (kind, now) = (at(0)?, at(1)?);
    let mut holder = None;
    let answer = match (kind, words.get(2)) {
        (0, Some(ask_in)) => {
            let ballot = words.get(3).and_then(text).and_then(Ballot::read).ok_or_else(wrong)?;
            let record = words.get(4).and_then(text).and_then(VoteRecord::read);
            holder = Some(record.map_or_else(unknown, |record| record.holder()));
            let ask_in = Duration::from_millis(number(ask_in).ok_or_else(wrong)?);
            Some(VoteReply::Held { by: ballot.ticket, ask_in })
        }
        (1, Some(_)) => Some(VoteReply::Voted { n: at(2)? }),
        (2, None) => Some(VoteReply::Abstains { ask_in: Duration::ZERO }),
        (3, None) => None,
        (4, terms) => return Err(disagrees(terms.and_then(text).unwrap_or_default())),
        _ => return Err(wrong()),
    };
    Ok(Voted { now: Some(now), answer, holder })
}

/// The server votes by other options.
pub(crate) fn disagrees(terms: &str) -> Error {
    let terms = if terms.is_empty() { "options that were removed" } else { terms };
    Error::invalid_option(format!("the namespace is used with {terms}: all managers need the same options"))
}

/// The server keeps the options of another manager, and votes by none yet.
pub(crate) fn proposed(terms: &str, space: &str) -> Error {
    Error::invalid_option(format!(
        "another manager opens the namespace with {terms}, and no server votes yet: give all managers the same options; if \
         no manager with those options is left, delete the key {space:?} on all servers"
    ))
}

/// A number or a time that a token can have.
fn counted(value: &Value) -> Option<u64> {
    number(value).filter(|n| *n <= FencingToken::MAX_COUNTER)
}

pub(crate) fn confirm(
    keys: &BallotKeys,
    (space, run): (&str, &str),
    ballot: Ballot,
    ttl: u64,
    (n, token): (u64, u64),
) -> Call {
    let mut call = PROGRAM.operation("confirm", &[&keys.vote, &keys.count, space]);
    call.arg(ballot.to_string()).arg(ttl).arg(n).arg(token).arg(run);
    call
}

/// Reads the answer of `confirm`, `release`, `revoke` and `install`: whether they found their vote or episode.
pub(crate) fn was_there(value: &Value) -> Result<bool> {
    match value {
        Value::Int(0) => Ok(false),
        Value::Int(1) => Ok(true),
        _ => Err(error::unexpected("about a vote")),
    }
}

/// One vote of a common renewal.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    pub(crate) keys: BallotKeys,
    pub(crate) ballot: Ballot,
    pub(crate) n: u64,
    pub(crate) ttl: u64,
}

pub(crate) fn renew(kept: &[Kept], (space, run): (&str, &str)) -> Call {
    let keys = kept.iter().flat_map(|Kept { keys, .. }| [&*keys.vote, &keys.count, &keys.asked]);
    let mut call = PROGRAM.operation("renew", &keys.chain([space]).collect::<Vec<_>>());
    for Kept { ballot, n, ttl, .. } in kept {
        call.arg(ballot.to_string()).arg(*n).arg(*ttl);
    }
    call.arg(run);
    call
}

/// The answer to a renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Renewed {
    Gone,
    Kept,
    /// Its holder is requested to release within the grace period.
    Asked(Duration),
    /// It was not extended, as the server may have forgotten others.
    Pauses,
}

/// Reads the answers of `renew`, one for each vote.
pub(crate) fn renewed(value: &Value, votes: usize) -> Result<Vec<Renewed>> {
    let wrong = || error::unexpected("to a renewal of votes");
    let one = |value: &Value| match parts(value) {
        [Value::Int(0)] => Ok(Renewed::Gone),
        [Value::Int(1)] => Ok(Renewed::Kept),
        [Value::Int(2), grace] => Ok(Renewed::Asked(grace_of(number(grace).ok_or_else(wrong)?))),
        [Value::Int(3)] => Ok(Renewed::Pauses),
        _ => Err(wrong()),
    };
    if parts(value).len() == votes { parts(value).iter().map(one).collect() } else { Err(wrong()) }
}

/// Ends the vote and the queue entry of the owner of `ballot`, up to its round; with a ttl it waits on for so long.
pub(crate) fn release(
    vote: &str,
    inboxes: &Inboxes,
    ballot: Ballot,
    inbox: &str,
    waits_on: Option<u64>,
) -> Call {
    let mut call = PROGRAM.operation("release", &[vote]);
    call.arg(ballot.text()).arg_of(&[inbox, " ", inboxes.told()]).arg(waits_on);
    call
}

/// A reading of a server.
#[derive(Clone, Debug)]
pub(crate) struct Looker<'a> {
    /// The reign of the server, and whether that has followed another server.
    pub(crate) run: &'a str,
    pub(crate) has_followed: bool,
    pub(crate) terms: &'a str,
    /// For how long the manager may hold by these terms.
    pub(crate) pause: Duration,
    /// The id of an episode that begins now.
    pub(crate) episode: OwnerId,
    pub(crate) met: Option<&'a Met>,
}

pub(crate) fn admit(space: &str, looker: &Looker<'_>) -> Call {
    let Looker { run, has_followed, terms, pause, episode, met } = looker;
    let clocks = |clocks: &[Clock]| {
        let clocks = clocks.iter().map(|(run, clock)| format!("{run}={clock}"));
        clocks.collect::<Vec<_>>().join(" ")
    };
    let mut call = PROGRAM.operation("admit", &[space]);
    call.arg(run).arg(u8::from(*has_followed)).arg(terms).arg(millis(*pause)).arg(episode.to_hex());
    if let Some(met) = met {
        call.arg(&met.episode).arg(clocks(&met.since)).arg(clocks(&met.clocks)).arg(u8::from(met.is_used));
    }
    call
}

/// Reads the answer of `admit` about `run` in the namespace `space`. Another format is `Unsupported`.
pub(crate) fn known(value: &Value, (space, run): (&str, &str), sent_at: Moment) -> Result<Standing> {
    let wrong = || error::unexpected("about a namespace");
    if let Some(format) = text(value) {
        return Err(error::another_format(format, space));
    }
    let [now, whole, max, claims, is_used, pause, terms, beside, since, id, episode] = parts(value) else {
        return Err(wrong());
    };
    let read = |value| counted(value).ok_or_else(wrong);
    let flag = |value: &Value| match value {
        Value::Int(flag @ 0..=1) => Ok(*flag == 1),
        _ => Err(wrong()),
    };
    let said = |value| text(value).ok_or_else(wrong);
    let clock =
        |word: &str| word.split_once('=').and_then(|(run, at)| Some((run.to_owned(), at.parse().ok()?)));
    Ok(Standing {
        run: run.to_owned(),
        episode: said(episode)?.to_owned(),
        whole: flag(whole)?,
        claims: flag(claims)?,
        id: said(id)?.to_owned(),
        is_used: flag(is_used)?,
        max: read(max)?,
        clock: read(now)?,
        sent_at,
        up_for: Duration::ZERO,
        since: said(since)?.split_whitespace().filter_map(clock).collect(),
        pause: Duration::from_millis(read(pause)?),
        terms: said(terms)?.to_owned(),
        beside: said(beside)?.split_whitespace().map(str::to_owned).collect(),
    })
}

/// Lets `own` vote, unless another manager has met it since.
pub(crate) fn install(space: &str, own: &Standing, told: &Recovered, terms: &str) -> Call {
    let mut call = PROGRAM.operation("install", &[space]);
    call.arg(&own.episode).arg(told.floor).arg(terms).arg(told.beside.join(" "));
    call.arg(&own.terms).arg(millis(own.pause)).arg(u8::from(told.is_copy || own.id.is_empty()));
    call
}

pub(crate) fn inspect(names: &[BallotKeys]) -> Call {
    let keys = names.iter().flat_map(|keys| [&*keys.vote, &keys.count, &keys.waits]);
    PROGRAM.operation("inspect", &keys.collect::<Vec<_>>())
}

/// One server's state of a name.
#[derive(Clone, Debug)]
pub(crate) struct Shown {
    pub(crate) voted: Option<Ballot>,
    pub(crate) holder: Option<Holder>,
    pub(crate) waiting: usize,
}

/// Reads the answers of `inspect`, one for each name.
pub(crate) fn inspected(value: &Value, names: usize) -> Result<Vec<Shown>> {
    let wrong = || error::unexpected("about a name");
    let one = |value: &Value| {
        let [Value::Int(waiting), voted, record] = parts(value) else { return Err(wrong()) };
        let voted = text(voted).and_then(Ballot::read);
        let record = text(record).and_then(VoteRecord::read);
        let holder = voted.is_some().then(|| record.map_or_else(unknown, |record| record.holder()));
        Ok(Shown { voted, holder, waiting: usize::try_from(*waiting).map_err(|_| wrong())? })
    };
    if parts(value).len() == names { parts(value).iter().map(one).collect() } else { Err(wrong()) }
}

pub(crate) fn revoke(keys: &BallotKeys, inboxes: &Inboxes, owner: OwnerId, how: Revoke) -> Call {
    let mut call = PROGRAM.operation("revoke", &[&keys.vote, &keys.count, &keys.waits, &keys.asked]);
    call.arg(inboxes.told()).arg(owner.to_hex());
    match how {
        Revoke::Ask { grace } => call.arg(grace.as_millis().to_string()),
        Revoke::Force => call.arg("force"),
    };
    call
}

/// The record of a vote, "N BALLOT SINCE INBOX INFO".
#[derive(Debug)]
struct VoteRecord<'v> {
    n: u64,
    since: u64,
    info: &'v str,
}

impl<'v> VoteRecord<'v> {
    fn read(text: &'v str) -> Option<Self> {
        let mut words = text.splitn(5, ' ');
        let n = words.next()?.parse().ok()?;
        let since = words.nth(1)?.parse().ok()?;
        Some(Self { n, since, info: words.nth(1)? })
    }

    fn holder(&self) -> Holder {
        let (label, metadata) = told_info(self.info).unwrap_or(("unknown", None));
        let mut holder = Holder::new(label);
        holder.token = FencingToken::new(self.n, 0);
        holder.since = UNIX_EPOCH.checked_add(Duration::from_micros(self.since));
        holder.metadata = metadata.map(str::to_owned);
        holder
    }
}

fn unknown() -> Holder {
    Holder::new("unknown")
}

fn grace_of(millis: u64) -> Duration {
    Duration::from_millis(millis).min(Revoke::MAX_GRACE)
}

/// Longer than nearly all ballots.
const TEXT: usize = 64;
/// In milliseconds: for how long a number is remembered once the clock has passed it.
const DAY: u64 = 86_400_000;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A ballot is read as it is written, and nothing else is.
    #[test]
    fn ballots_round_trip() {
        let ticket = Ticket { time: 7, owner: OwnerId::from_random([9; 16]) };
        let ballot = Ballot { ticket, round: 3 };
        assert_eq!(Ballot::read(&ballot.to_string()), Some(ballot));
        for strange in ["", "a:1:1", &ballot.to_string()[1..], &format!("{ballot}:1")] {
            assert_eq!(Ballot::read(strange), None, "{strange}");
        }
    }

    /// A number that no token can have is refused in every answer: it would be proposed to all servers.
    #[test]
    fn numbers_beyond_every_token_are_refused() {
        let (now, most) = (Value::Int(7), Value::Int(FencingToken::MAX_COUNTER as i64));
        let beyond = Value::Int(FencingToken::MAX_COUNTER as i64 + 1);
        let vote = |now: &Value, n: &Value| voted(&Value::Array(vec![Value::Int(1), now.clone(), n.clone()]));
        assert!(voted(&most).is_ok() && voted(&beyond).is_err());
        let space = |now: &Value, max: &Value| {
            let zero = || Value::Int(0);
            let mut words = vec![now.clone(), Value::Int(1), max.clone(), zero(), zero(), zero()];
            words.extend(std::iter::repeat_n(Value::SimpleString(String::new()), 5));
            known(&Value::Array(words), ("p", "1"), Moment::from_nanos(0))
        };
        assert!(vote(&now, &most).is_ok() && space(&now, &most).is_ok());
        assert!(vote(&now, &beyond).is_err() && space(&now, &beyond).is_err());
        assert!(vote(&beyond, &most).is_err() && space(&beyond, &most).is_err());
    }

    fn values() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Nil),
            any::<i64>().prop_map(Value::Int),
            prop::collection::vec(any::<u8>(), 0..40).prop_map(Value::BulkString),
            "[0-9a-f:]{0,40}".prop_map(|text| Value::BulkString(text.into_bytes())),
        ];
        leaf.prop_recursive(2, 12, 6, |inner| prop::collection::vec(inner, 0..6).prop_map(Value::Array))
    }

    proptest! {
        /// Every answer is read or refused.
        #[test]
        fn strange_answers_are_refused_without_panic(value in values()) {
            let _ = (voted(&value), was_there(&value), renewed(&value, 2), known(&value, ("p", "1"), Moment::from_nanos(0)), inspected(&value, 1));
        }
    }
}
