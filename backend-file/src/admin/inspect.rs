//! The holder of a lock, and the number of its waiters.

use std::collections::BTreeMap;

use leasehold_core::backend::LockState;
use leasehold_core::{LockName, Result};
use tokio::task::coop::consume_budget;

use crate::keys::Key;
use crate::session::Session;

impl Session {
    pub(crate) async fn inspect(&self, name: &LockName) -> Result<LockState> {
        self.open_or_refuse()?;
        let directory = &self.directory;
        let holder = directory.live(name)?.map(|record| self.holder(record));
        let key = Key::of(name);
        let contenders = directory.waiting()?.into_iter().filter(|waiting| *waiting == key).count();
        Ok(LockState::new(name.clone(), holder, contenders))
    }

    pub(crate) async fn list(&self, prefix: &str) -> Result<Vec<LockState>> {
        self.open_or_refuse()?;
        let directory = &self.directory;
        let mut waiting = BTreeMap::<Key, usize>::new();
        for key in directory.waiting()? {
            *waiting.entry(key).or_default() += 1;
        }
        let mut states = Vec::new();
        let mut keys = directory.keys()?;
        keys.retain(|key| key.may_begin_with(prefix));
        for key in keys {
            consume_budget().await;
            let contenders = waiting.get(&key).copied().unwrap_or_default();
            if let Some((record, lives)) = directory.newest(&key)?
                && record.name.as_str().starts_with(prefix)
                && (lives || contenders > 0)
            {
                let name = record.name.clone();
                let holder = lives.then(|| self.holder(record));
                states.push(LockState::new(name, holder, contenders));
            }
        }
        states.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(states)
    }
}
