//! Taking a lock from its holder: by asking it, or by force.
//!
//! A request is a file that names the grant and its session. A session looks for its own while it
//! holds something, and tells the core, which loses the hold and releases it. Force needs no answer:
//! the lock file is taken away, so whoever comes next locks another inode, while the former holder
//! still has the old one; until it has found the request, only its smaller token keeps it from harm.

use lockcore::backend::{Holder, Revoke, StoreEvent};
use lockcore::{LockName, LostReason, Result};

use super::{Hold, PAUSE, Session};
use crate::directory::{Access, Request};
use crate::keys::Key;

impl Session {
    /// Asks the holder to let go, or takes the lock away; whom it found.
    ///
    /// # Cancel safety
    ///
    /// The holder may have been asked already, or the lock taken.
    pub(crate) async fn revoke(&self, name: &LockName, how: Revoke) -> Result<Option<Holder>> {
        let key = Key::of(name);
        match how {
            Revoke::Force => self.take_away(name, &key).await,
            Revoke::Ask { .. } => {
                let Some(held) = self.directory.live(name)? else {
                    return Ok(None);
                };
                self.directory.post(&Request::to_holder(key, &held))?;
                Ok(Some(self.holder(held)))
            }
        }
    }

    /// Looks for requests to this session, and whether its files are still where they were.
    pub(crate) fn patrol(&self) {
        let requests = self.directory.take_requests(self.id);
        let mut state = self.state.lock();
        let was_blind = std::mem::replace(&mut state.blind, requests.is_err());
        let mut lost = Vec::new();
        for hold in state.holds.values_mut().filter(|hold| !hold.told) {
            let asked = requests.as_ref().is_ok_and(|requests| requests.iter().any(|r| hold.is_asked_by(r)));
            let reason = match asked {
                true => LostReason::Revoked,
                false if !self.has_its_path(hold) => LostReason::Gone,
                false => continue,
            };
            hold.told = true;
            let counter = self.told(hold.tenure.counter);
            lost.push(StoreEvent::GrantLost { name: hold.name.clone(), counter, reason });
        }
        drop(state);
        if let (Err(error), false) = (requests, was_blind) {
            self.tell(StoreEvent::Warning(format!("revocations are not heard: {error:#}").into()));
        }
        lost.into_iter().for_each(|event| self.tell(event));
    }

    async fn take_away(&self, name: &LockName, key: &Key) -> Result<Option<Holder>> {
        if !self.stays_taken(name, key).await? {
            return Ok(None);
        }
        let mut floor = self.directory.floor(&self.env, Access::Raise).await?;
        let holder = match self.directory.live(name)? {
            Some(held) => {
                // Left behind, for the holder to find.
                self.directory.post(&Request::to_holder(key.clone(), &held))?;
                self.holder(held)
            }
            None if self.directory.is_locked(key)? => Holder::new("somebody who has recorded no grant"),
            None => return Ok(None),
        };
        self.directory.take_away(key, &mut floor)?;
        Ok(Some(holder))
    }

    /// Whether the lock has a holder, or its file is locked by somebody who neither records a grant nor
    /// gives it back: one who was given it in the kernel and is not polled any more, or another program.
    async fn stays_taken(&self, name: &LockName, key: &Key) -> Result<bool> {
        let give_up_at = self.env.now() + self.patience();
        loop {
            if self.directory.live(name)?.is_some() {
                return Ok(true);
            }
            if !self.directory.is_locked(key)? {
                return Ok(false);
            }
            if give_up_at <= self.env.now() {
                return Ok(true);
            }
            self.env.sleep(PAUSE).await;
        }
    }
}

impl Hold {
    fn is_asked_by(&self, request: &Request) -> bool {
        self.key == request.key && self.tenure.counter == request.counter
    }
}
