//! Who holds, and how many wait.

use std::collections::BTreeMap;

use etcd_client::{GetOptions, KeyValue, ResponseHeader};
use leasehold_core::backend::{Holder, LockState};
use leasehold_core::{LockName, Result};

use crate::error;
use crate::keys::{end_of, holder};
use crate::session::{Sessions, oldest};

impl Sessions {
    pub(crate) async fn inspect(&self, name: &LockName) -> Result<LockState> {
        let (first, entries) = self.first(name).await?;
        let holder = first.map(|kv| self.holder(&kv));
        Ok(LockState::new(name.clone(), holder, entries.saturating_sub(1)))
    }

    /// The oldest entry of a queue, and how many there are.
    pub(super) async fn first(&self, name: &LockName) -> Result<(Option<KeyValue>, usize)> {
        let answer = self.endpoints.get(self.keys.queue(name), oldest()).await?;
        Ok((answer.kvs().first().cloned(), usize::try_from(answer.count()).unwrap_or(0)))
    }

    pub(crate) async fn list(&self, prefix: &str) -> Result<Vec<LockState>> {
        let begin = self.keys.names(prefix);
        let end = end_of(&begin);
        // An empty key is none to etcd.
        let read = self.read_all(if begin.is_empty() { vec![0] } else { begin }, end).await?;
        let mut queues = BTreeMap::<LockName, (&KeyValue, usize)>::new();
        for kv in &read {
            if let Some(name) = self.keys.name_of(kv.key()) {
                let (oldest, entries) = queues.entry(name).or_insert((kv, 0));
                *entries += 1;
                if kv.create_revision() < oldest.create_revision() {
                    *oldest = kv;
                }
            }
        }
        let state = |(name, (oldest, entries)): (_, (&KeyValue, usize))| {
            LockState::new(name, Some(self.holder(oldest)), entries - 1)
        };
        Ok(queues.into_iter().map(state).collect())
    }

    /// Reads the keys from one to before another, all at the same moment, in pages.
    pub(crate) async fn read_all(&self, begin: Vec<u8>, end: Vec<u8>) -> Result<Vec<KeyValue>> {
        let (mut read, mut from, mut at, mut page) = (Vec::<KeyValue>::new(), begin.clone(), 0, PAGE);
        loop {
            let options = GetOptions::new().with_range(end.clone()).with_limit(page).with_revision(at);
            let mut answer = match self.endpoints.get(from.clone(), options).await {
                // The moment of the first page is forgotten: what is shown is of a later one.
                Err(error) if at > 0 && error::tells(&error, error::COMPACTED) => {
                    read.clear();
                    (from, at) = (begin.clone(), 0);
                    continue;
                }
                // Long values: fewer at a time.
                Err(error) if page > 1 && error::tells(&error, error::TOO_LONG) => {
                    page /= 2;
                    continue;
                }
                answer => answer?,
            };
            if at == 0 {
                at = answer.header().map_or(0, ResponseHeader::revision);
            }
            read.append(&mut answer.take_kvs());
            match read.last().filter(|_| answer.more()) {
                Some(last) => from = [last.key(), &[0]].concat(),
                None => return Ok(read),
            }
        }
    }

    pub(crate) fn holder(&self, kv: &KeyValue) -> Holder {
        holder(kv.key(), kv.value(), self.shown_counter(kv.create_revision()))
    }
}

/// How many keys are read at once.
const PAGE: i64 = 1_000;
