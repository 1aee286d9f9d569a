//! Revoking a lock: by a request to its holder, or by force.
//!
//! A request is a file with the grant, its session, and the grace. A session checks for its requests while it holds something,
//! takes them and notifies the core, which ends the hold in time and releases it. Force needs no answer: the lock file is moved
//! away, so the next holder locks another inode, while the former holder still has the old one. Until the former holder has
//! found the request, only its smaller token protects the resource.

use std::time::Duration;

use leasehold_core::backend::{Holder, Revoke, StoreEvent};
use leasehold_core::{LockName, Result};

use crate::directory::{Access, Request};
use crate::keys::Key;
use crate::session::Session;
use crate::session::acquisition::PAUSE;

impl Session {
    /// Sends the holder the request to release, or removes the lock from it; returns the holder.
    ///
    /// # Cancel safety
    ///
    /// The request may have been sent already, or the lock removed.
    pub(crate) async fn revoke(&self, name: &LockName, how: Revoke) -> Result<Option<Holder>> {
        let key = Key::of(name);
        match how {
            Revoke::Force => self.take_away(name, &key).await,
            Revoke::Ask { grace } => {
                let Some(held) = self.directory.live(name)? else {
                    return Ok(None);
                };
                let request = Request::to_holder(key, &held);
                self.directory.ask(&self.env, &request, grace)?;
                Ok(Some(self.holder(held)))
            }
        }
    }

    async fn take_away(&self, name: &LockName, key: &Key) -> Result<Option<Holder>> {
        if !self.stays_taken(name, key).await? {
            return Ok(None);
        }
        let mut floor = self.directory.floor(&self.env, Access::Raise).await?;
        let holder = match self.directory.live(name)? {
            Some(held) => {
                // The holder also checks its file, so the lock is removed without the request, too.
                let request = Request::to_holder(key.clone(), &held);
                if let Err(error) = self.directory.ask(&self.env, &request, Duration::ZERO) {
                    let warning =
                        format!("cannot notify the holder of {name} of its forced revocation: {error:#}");
                    self.events.tell(StoreEvent::Warning(warning.into()));
                }
                self.holder(held)
            }
            None if self.directory.is_locked(key)? => Holder::new("a process that recorded no grant"),
            None => return Ok(None),
        };
        self.directory.take_away(key, &mut floor)?;
        Ok(Some(holder))
    }

    /// Whether the lock has a holder, or its file stays locked without a record: by an acquisition that got it from the
    /// kernel and is not polled any more, or by another program.
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
