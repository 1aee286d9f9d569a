//! The number that the namespace adds to its counters, and raising it.

use std::collections::HashSet;

use futures_util::future::join3;
use leasehold_core::Result;
use leasehold_core::backend::TokenBase;

use crate::error::Explain;
use crate::keys;
use crate::session::{Session, stored_base};

impl Session {
    /// The base as later sessions read it.
    pub(crate) async fn read_base(&self) -> Result<TokenBase> {
        // In one flight, the write first: the server answers in order, so it has caught up with all earlier writes, and a later
        // grant is of a later transaction than this one.
        let (written, listed, base) = join3(
            self.connection.write(&self.node, &[], None),
            self.connection.list(&self.site.namespace.sessions()),
            self.connection.read_if_there(&self.site.namespace.token_base()),
        )
        .await;
        let (written, listed) = (written.or_not(SHOW)?, listed.or_not(SHOW)?);
        let moving: HashSet<_> = listed.children().filter_map(keys::mover_of).collect();
        let adds = |id: &i64| *id != self.id && !moving.contains(id);
        let others = listed.children().filter_map(keys::session_of).filter(adds).count();
        let (base, _) = stored_base(base)?;
        Ok(TokenBase::new(base, written.mzxid.unsigned_abs(), Some(others)))
    }

    /// Makes the base `at_least` that large.
    pub(crate) async fn raise_base(&self, at_least: u64) -> Result<()> {
        let (path, data) = (self.site.namespace.token_base(), at_least.to_string());
        loop {
            let (base, version) = stored_base(self.connection.read_if_there(&path).await)?;
            if at_least <= base {
                return Ok(());
            }
            let raised = self.connection.compare_and_set(&path, data.as_bytes(), version).await;
            // RACE: if another client was faster, the server that refused the write knows the new value.
            if raised.or_not("raise the token_base")?.is_some() {
                return Ok(());
            }
        }
    }
}

const SHOW: &str = "show the token_base";
