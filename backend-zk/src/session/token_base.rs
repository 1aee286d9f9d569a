//! What the namespace adds to its counters, and raising that.

use futures_util::future::join3;
use lockcore::backend::TokenBase;
use lockcore::{Error, ErrorKind, Result};
use zookeeper_client::{CreateMode, Error as ZkError, Stat};

use super::Session;
use crate::error::Unanswered;
use crate::keys;
use crate::znode::Answered;

impl Session {
    /// The base as later sessions read it.
    pub(crate) async fn read_base(&self) -> Result<TokenBase> {
        let failed = |unanswered: Unanswered| unanswered.into_error("show the token_base");
        // In one flight, the write first: the server answers in order, so it has caught up with what was
        // written before, and what is granted later is of a later transaction than this one.
        let (written, listed, base) = join3(
            self.connection.write(&self.node, &[], None),
            self.connection.list(&self.namespace.sessions()),
            self.connection.read(&self.namespace.token_base()),
        )
        .await;
        let (written, listed) = (written.map_err(failed)?, listed.map_err(failed)?);
        let others = listed.children().filter_map(keys::session_of).filter(|id| *id != self.id).count();
        let (base, _) = stored(base)?;
        Ok(TokenBase { base, floor: written.mzxid.unsigned_abs(), sessions: Some(others) })
    }

    /// Makes the base `at_least` that large.
    pub(crate) async fn raise_base(&self, at_least: u64) -> Result<()> {
        let (path, data) = (self.namespace.token_base(), at_least.to_string());
        loop {
            let (base, version) = stored(self.connection.read(&path).await)?;
            if at_least <= base {
                return Ok(());
            }
            let raised = match version {
                Some(_) => self.connection.write(&path, data.as_bytes(), version).await,
                None => self.connection.create(&path, data.as_bytes(), CreateMode::Persistent).await,
            };
            match raised {
                Ok(_) => return Ok(()),
                // RACE: somebody else was faster. The server has caught up with that: it has said so.
                Err(Unanswered::Refused(ZkError::BadVersion | ZkError::NodeExists)) => {}
                Err(gone) if gone.is_absent() => {}
                Err(unanswered) => return Err(unanswered.into_error("raise the token_base")),
            }
        }
    }
}

/// The base in what was read of its node, and that node's version; none is 0.
pub(super) fn stored(read: Answered<(Vec<u8>, Stat)>) -> Result<(u64, Option<i32>)> {
    let (data, stat) = match read {
        Ok(read) => read,
        Err(missing) if missing.is_absent() => return Ok((0, None)),
        Err(unanswered) => return Err(unanswered.into_error("read the token_base")),
    };
    let number = std::str::from_utf8(&data).ok().and_then(|text| text.trim().parse().ok());
    let number = number.ok_or_else(|| {
        Error::not_applied(
            ErrorKind::Protocol,
            "the node %token_base is not a whole number in decimal digits",
        )
    })?;
    Ok((number, Some(stat.version)))
}
