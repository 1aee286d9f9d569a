//! The holders of a lock, and the number of its waiters.

use std::collections::BTreeMap;

use etcd_client::{GetOptions, KeyValue, ResponseHeader};
use leasehold_core::backend::{Holder, Load, LockState};
use leasehold_core::{LockName, Mode, Result};

use crate::error;
use crate::keys::{end_of, holder};
use crate::session::{Sessions, oldest};

impl Sessions {
    pub(crate) async fn inspect(&self, name: &LockName) -> Result<LockState> {
        let (holders, entries) = self.holders(name).await?;
        Ok(self.state(name.clone(), &holders, entries))
    }

    fn state(&self, name: LockName, holders: &[KeyValue], entries: usize) -> LockState {
        let waiting = entries.saturating_sub(holders.len());
        LockState::new(name, holders.iter().map(|kv| self.holder(kv)), waiting)
    }

    /// The entries that hold, in order of arrival, and the number of all entries.
    pub(super) async fn holders(&self, name: &LockName) -> Result<(Vec<KeyValue>, usize)> {
        let queue = self.keys.queue(name);
        let first = match self.endpoints.get(queue.clone(), oldest().with_limit(AT_FIRST)).await {
            // Long values: fewer at a time.
            Err(error) if error::tells(&error, error::TOO_LONG) => None,
            answer => Some(answer?),
        };
        if let Some(mut answer) = first {
            let (read, entries) = (answer.take_kvs(), usize::try_from(answer.count()).unwrap_or(0));
            let is_alone = |kv: &KeyValue| self.keys.mode_of(kv.key()).bars(Mode::SHARED);
            if read.len() == entries || read.first().is_some_and(is_alone) {
                return Ok((self.who_hold(read), entries));
            }
        }
        let read = self.read_all(&queue).await?;
        let entries = read.len();
        Ok((self.who_hold(read), entries))
    }

    fn who_hold(&self, mut entries: Vec<KeyValue>) -> Vec<KeyValue> {
        entries.sort_unstable_by_key(KeyValue::create_revision);
        let mut older = Load::NONE;
        let holds = |kv: &KeyValue| {
            let mode = self.keys.mode_of(kv.key());
            let holds = older.admits(mode);
            older = older.and(mode);
            holds
        };
        entries.into_iter().take_while(holds).collect()
    }

    pub(crate) async fn list(&self, prefix: &str) -> Result<Vec<LockState>> {
        let read = self.read_all(&self.keys.names(prefix)).await?;
        let mut queues = BTreeMap::<LockName, Vec<KeyValue>>::new();
        for kv in read {
            if let Some(name) = self.keys.name_of(kv.key()) {
                queues.entry(name).or_default().push(kv);
            }
        }
        let state = |(name, entries): (_, Vec<_>)| {
            let all = entries.len();
            self.state(name, &self.who_hold(entries), all)
        };
        Ok(queues.into_iter().map(state).collect())
    }

    /// Reads the keys that begin with `prefix`, all at the same moment, in pages.
    pub(crate) async fn read_all(&self, prefix: &[u8]) -> Result<Vec<KeyValue>> {
        // etcd takes no empty key.
        let begin = if prefix.is_empty() { &[0] } else { prefix };
        let (mut read, mut from, mut at, mut page) = (Vec::<KeyValue>::new(), begin.to_vec(), 0, PAGE);
        loop {
            let options = GetOptions::new().with_range(end_of(prefix)).with_limit(page).with_revision(at);
            let mut answer = match self.endpoints.get(from.clone(), options).await {
                // The revision of the first page is compacted: all is read again, at a later one.
                Err(error) if at > 0 && error::tells(&error, error::COMPACTED) => {
                    read.clear();
                    (from, at) = (begin.to_vec(), 0);
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
        let mut holder = holder(kv.key(), kv.value(), self.shown_counter(kv.create_revision()));
        holder.mode = self.keys.mode_of(kv.key());
        holder
    }
}

const PAGE: i64 = 1_000;
/// The first request reads so many entries, which is all of them most of the time.
const AT_FIRST: i64 = 32;
