//! Taking a lock from its holder: by asking it, or by force.
//!
//! A request is a file that names the grant and its session. A session looks for its own while it
//! holds something, and tells the core, which loses the hold and releases it. Force needs no answer:
//! the lock file is taken away, so whoever comes next locks another inode, while the former holder
//! still has the old one; until it has found the request, only its smaller token keeps it from harm.

use lockcore::backend::{Revocation, StoreEvent};
use lockcore::{LockName, LostReason, Result};

use super::{Hold, PAUSE, Session};
use crate::directory::{Access, Directory, Request};
use crate::keys::Key;

impl Session {
    /// Asks the holder to let go and waits for it, or takes the lock away by force.
    ///
    /// # Cancel safety
    ///
    /// The holder may have been asked already, or the lock taken.
    pub(crate) async fn revoke(&self, name: &LockName, force: bool) -> Result<Revocation> {
        let key = Key::of(name);
        if force {
            return self.take_away(name, &key).await;
        }
        let Some(held) = self.directory.live(name)? else {
            return Ok(Revocation::NotHeld);
        };
        let asked = Asked { directory: &self.directory, request: Request::to_holder(key, &held) };
        let give_up_at = self.env.now() + held.ttl;
        loop {
            self.open_or_refuse()?;
            // Again each time: another who asked the same may have taken the request back.
            self.directory.post(&asked.request)?;
            if self.directory.live(name)?.is_none_or(|now| now.counter != held.counter) {
                return Ok(Revocation::Released);
            }
            if give_up_at <= self.env.now() {
                return Ok(Revocation::Unanswered);
            }
            self.env.sleep(self.env.timing().op_timeout / 32).await;
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

    async fn take_away(&self, name: &LockName, key: &Key) -> Result<Revocation> {
        if !self.stays_taken(name, key).await? {
            return Ok(Revocation::NotHeld);
        }
        let mut floor = self.directory.floor(&self.env, Access::Raise).await?;
        match self.directory.live(name)? {
            // Left behind, for the holder to find.
            Some(held) => self.directory.post(&Request::to_holder(key.clone(), &held))?,
            None if self.directory.is_locked(key)? => {}
            None => return Ok(Revocation::NotHeld),
        }
        self.directory.take_away(key, &mut floor)?;
        Ok(Revocation::Released)
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

/// A request to a holder, taken back when whoever asked stops waiting.
struct Asked<'a> {
    directory: &'a Directory,
    request: Request,
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        self.directory.withdraw(&self.request);
    }
}
