//! The number that the directory adds to its counters, and raising it.

use leasehold_core::Result;
use leasehold_core::backend::TokenBase;

use crate::directory::Access;
use crate::record::Floor;
use crate::session::Session;

impl Session {
    /// The base as later sessions read it, without a lock. A file's counter may be any number, so the floor is 0.
    pub(crate) async fn read_base(&self) -> Result<TokenBase> {
        let base = self.directory.look_at_floor()?.unwrap_or_default().token_base;
        let sessions = self.directory.sessions_beside(self.id)?;
        Ok(TokenBase::new(base, 0, Some(sessions)))
    }

    /// Makes the base `at_least` that large, durably.
    ///
    /// # Cancel safety
    ///
    /// Nothing is changed before the last wait.
    pub(crate) async fn raise_base(&self, at_least: u64) -> Result<()> {
        let mut floor = self.directory.floor(&self.env, Access::Raise).await?;
        self.directory.require_in_place()?;
        self.directory.raise(&mut floor, Floor { token_base: at_least, ..Floor::default() })
    }
}
