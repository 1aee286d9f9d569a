//! Who holds, and how many wait.

use std::collections::BTreeMap;

use etcd_client::{GetOptions, KeyValue};
use leasehold_core::backend::{Holder, LockState};
use leasehold_core::{LockName, Result};

use crate::error;
use crate::keys::{end_of, holder};
use crate::protocol::Revision;
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
        let mut queues = BTreeMap::<LockName, (Revision, Holder, usize)>::new();
        // An empty key is none to etcd.
        let begin = if begin.is_empty() { vec![0] } else { begin };
        let (mut from, mut at, mut page) = (begin.clone(), 0, PAGE);
        loop {
            let options = GetOptions::new().with_range(end.clone()).with_limit(page).with_revision(at);
            let answer = match self.endpoints.get(from.clone(), options).await {
                // The moment of the first page is forgotten: what is shown is of a later one.
                Err(error) if at > 0 && error::tells(&error, error::COMPACTED) => {
                    queues.clear();
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
            // Every page shows the same moment.
            at = answer.header().map_or(at, |header| if at == 0 { header.revision() } else { at });
            for kv in answer.kvs() {
                let Some(name) = self.keys.name_of(kv.key()) else {
                    continue;
                };
                let create = kv.create_revision();
                let queue = queues.entry(name).or_insert_with(|| (create, self.holder(kv), 0));
                queue.2 += 1;
                if create < queue.0 {
                    (queue.0, queue.1) = (create, self.holder(kv));
                }
            }
            match answer.kvs().last().filter(|_| answer.more()) {
                Some(last) => from = [last.key(), &[0]].concat(),
                None => break,
            }
        }
        let state = |(name, (_, holder, entries))| LockState::new(name, Some(holder), entries - 1);
        Ok(queues.into_iter().map(state).collect())
    }

    pub(super) fn holder(&self, kv: &KeyValue) -> Holder {
        holder(kv.key(), kv.value(), self.shown_counter(kv.create_revision()))
    }
}

/// How many keys are read at once.
const PAGE: i64 = 1_000;
