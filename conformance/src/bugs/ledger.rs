//! Ledgers that show too little, forget to compare, or return another version.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::backend::ledger::{Entry, MAX_VALUE, MoveLedger, Participant, Written, fits};
use leasehold_core::backend::{Grant, Lease, LockBackend, StoreConfig};
use leasehold_core::{Env, OwnerId, Result};
use parking_lot::Mutex;

use super::{Mutation, store, table};
use crate::layer::{Below, Layer};

table! {
    record_overwritten, ledger::a_record_is_replaced_only_at_its_version, store(Books::new(Flaw::Overwrites)),
        "a SET instead of a compare-and-set: a slow writer overwrites a later decision";
    record_compared_by_reading, ledger::of_many_writers_one_wins, store(Books::new(Flaw::ReadsFirst)),
        "the version is read in one request and the record replaced in the next";
    version_of_the_value, ledger::versions_never_return, store(Books::new(Flaw::VersionOfValue)),
        "a checksum as version: an earlier record that returns has the same version (ABA)";
    record_cached, ledger::a_read_sees_what_was_written_before, store(Books::new(Flaw::CachesRecord)),
        "the record is read once and cached, as from a replica that lags";
    write_repeated, ledger::a_lost_answer_is_unknown, super::driver(Books::new(Flaw::RepeatsWrite)),
        "a client that retries reports a conflict with its own write; every automatic retry";
    record_cut_short, ledger::oversized_value_is_refused, store(Books::new(Flaw::CutsShort)),
        "a column that is too narrow keeps what fits";
    first_value_stays, ledger::an_entry_has_its_latest_value, store(Books::new(Flaw::FirstValue)),
        "a second signature only renews the entry and does not replace its value";
    unsigned_by_the_lease, ledger::unsigned_entry_is_removed, store(Books::new(Flaw::NeverUnsigns)),
        "a participant that left counts until its lease ends";
    members_cached, ledger::members_shows_whoever_signed_before, store(Books::new(Flaw::CachesMembers)),
        "the list of participants is stale, so a later participant is missed";
    signature_counts_from_receipt, ledger::a_signature_counts_from_sending, super::driver(Books::new(Flaw::FromReceipt)),
        "the deadline of an entry counts from the reply, so it outlives the entry";
    entries_without_lease, ledger::entries_end_with_their_lease, store(Books::new(Flaw::Immortal)),
        "a dead participant is waited for without end";
    base_added_while_moving, ledger::move_adds_no_token_base, store(Based),
        "the token base is added by the session and by the move, so it counts twice";
    movers_counted, ledger::moving_process_is_not_counted, Mutation::Store(Arc::new(|below| Box::new(Doubled(below, Mutex::default())))),
        "a move counts its own sessions as sessions outside the move, or the reverse";
    record_not_looked_at, ledger::a_record_bars_plain_sessions, Mutation::Store(Arc::new(|below| Box::new(Unbarred(below)))),
        "a forgotten process opens the old store after the move";
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flaw {
    Overwrites,
    ReadsFirst,
    VersionOfValue,
    CachesRecord,
    RepeatsWrite,
    CutsShort,
    FirstValue,
    NeverUnsigns,
    CachesMembers,
    FromReceipt,
    Immortal,
}

#[derive(Debug)]
struct Books {
    flaw: Flaw,
    kept: Arc<Mutex<Kept>>,
}

/// What the flaws remember; nothing of it ends with a session.
#[derive(Debug, Default)]
struct Kept {
    record: Option<Entry>,
    members: Vec<Participant>,
    first_values: BTreeMap<OwnerId, Vec<u8>>,
}

impl Books {
    fn new(flaw: Flaw) -> Self {
        Self { flaw, kept: Arc::default() }
    }
}

impl Layer for Books {
    fn ledger(&self, below: &Below) -> Option<Arc<dyn MoveLedger>> {
        let ledger = below.backend.ledger()?;
        Some(Arc::new(Wrong {
            flaw: self.flaw,
            kept: Arc::clone(&self.kept),
            ledger,
            env: below.env.clone(),
        }))
    }
}

#[derive(Clone, Debug)]
struct Wrong {
    flaw: Flaw,
    kept: Arc<Mutex<Kept>>,
    ledger: Arc<dyn MoveLedger>,
    env: Env,
}

impl Wrong {
    async fn version(&self) -> Result<Option<u64>> {
        Ok(self.ledger.read().await?.map(|record| record.version))
    }

    /// The number by which this ledger calls a record.
    fn called(&self, record: Entry) -> Entry {
        if self.flaw != Flaw::VersionOfValue {
            return record;
        }
        let version = record.value.iter().fold(0, |sum: u64, byte| sum * 31 + u64::from(*byte));
        Entry { version, ..record }
    }
}

#[async_trait]
impl MoveLedger for Wrong {
    async fn read(&self) -> Result<Option<Entry>> {
        let record = self.ledger.read().await?.map(|record| self.called(record));
        if self.flaw != Flaw::CachesRecord {
            return Ok(record);
        }
        let mut kept = self.kept.lock();
        if kept.record.is_none() {
            kept.record = record;
        }
        Ok(kept.record.clone())
    }

    async fn write(&self, expected: Option<u64>, value: &[u8]) -> Result<Written> {
        match self.flaw {
            Flaw::Overwrites => self.ledger.write(self.version().await?, value).await,
            Flaw::ReadsFirst | Flaw::VersionOfValue => {
                let record = self.ledger.read().await?;
                let version = record.as_ref().map(|record| record.version);
                if record.map(|record| self.called(record).version) != expected {
                    return Ok(Written::Conflict);
                }
                if self.flaw == Flaw::ReadsFirst {
                    self.env.sleep(Duration::from_millis(1)).await;
                    return self.ledger.write(self.version().await?, value).await;
                }
                self.ledger.write(version, value).await?;
                let record = self.ledger.read().await?.map(|record| self.called(record));
                Ok(record.map_or(Written::Conflict, |record| Written::Done(record.version)))
            }
            Flaw::RepeatsWrite => match self.ledger.write(expected, value).await {
                Err(_) => self.ledger.write(expected, value).await,
                answer => answer,
            },
            Flaw::CutsShort => self.ledger.write(expected, &value[..value.len().min(MAX_VALUE)]).await,
            _ => self.ledger.write(expected, value).await,
        }
    }

    async fn sign(&self, member: OwnerId, value: &[u8]) -> Result<Lease> {
        let first = match self.flaw {
            Flaw::FirstValue => {
                fits(value)?;
                self.kept.lock().first_values.entry(member).or_insert_with(|| value.to_vec()).clone()
            }
            _ => value.to_vec(),
        };
        let mut lease = self.ledger.sign(member, &first).await?;
        match self.flaw {
            Flaw::FromReceipt => lease.deadline = self.env.deadline(self.env.now(), lease.ttl),
            Flaw::Immortal => {
                let wrong = self.clone();
                self.env.spawn(async move {
                    while wrong.ledger.sign(member, &first).await.is_ok() {
                        wrong.env.sleep(lease.ttl / 3).await;
                    }
                });
            }
            _ => {}
        }
        Ok(lease)
    }

    async fn unsign(&self, member: OwnerId) -> Result<()> {
        if self.flaw == Flaw::NeverUnsigns {
            return Ok(());
        }
        self.ledger.unsign(member).await
    }

    async fn members(&self) -> Result<Vec<Participant>> {
        let members = self.ledger.members().await?;
        if self.flaw != Flaw::CachesMembers {
            return Ok(members);
        }
        let mut kept = self.kept.lock();
        if kept.members.is_empty() {
            kept.members = members;
        }
        Ok(kept.members.clone())
    }
}

/// A base that is added whether or not the session moves.
#[derive(Debug)]
struct Based;

impl Layer for Based {
    fn granted(&self, below: &Below, mut grant: Grant) -> Grant {
        if !below.env.adds_token_base() {
            grant.counter += 1 << 41;
        }
        grant
    }
}

/// Beside a session that moves there is one that does not.
#[derive(Debug)]
struct Doubled(Box<dyn StoreConfig>, Mutex<Vec<Arc<dyn LockBackend>>>);

#[async_trait]
impl StoreConfig for Doubled {
    fn min_ttl(&self) -> Duration {
        self.0.min_ttl()
    }

    async fn open(&self, env: Env) -> Result<Arc<dyn LockBackend>> {
        if !env.adds_token_base() {
            let plain = Env::new(env.timing().clone())?.with_clock(Arc::clone(env.clock()));
            let session = self.0.open(plain).await?;
            self.1.lock().push(session);
        }
        self.0.open(env).await
    }
}

/// Every session is opened as one that moves.
#[derive(Debug)]
struct Unbarred(Box<dyn StoreConfig>);

#[async_trait]
impl StoreConfig for Unbarred {
    fn min_ttl(&self) -> Duration {
        self.0.min_ttl()
    }

    async fn open(&self, env: Env) -> Result<Arc<dyn LockBackend>> {
        self.0.open(env.without_token_base()).await
    }
}
