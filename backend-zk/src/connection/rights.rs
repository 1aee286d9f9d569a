//! What the rights on nodes of ours let us do.

use std::sync::Arc;

use leasehold_core::Result;
use zookeeper_client::{Acl, Acls, CreateMode, MultiWriteError, Permission};

use super::Connection;
use crate::error::Unanswered;

impl Connection {
    /// Does with a node of ours, and one below it, whatever is ever done with one: in one transaction,
    /// which leaves nothing, however it ends.
    ///
    /// The right to delete a node is its parent's, so a release may be refused although the node could be
    /// made and written: that has to be known before anything is held.
    ///
    /// # Errors
    ///
    /// `Denied`, and what for, when a right is missing.
    pub(crate) async fn try_rights(&self, path: &str) -> Result<()> {
        let (path, below, rights) = (path.to_owned(), format!("{path}/below"), Arc::clone(&self.rights));
        let tried = self.ask(async move |client| {
            let acls = Acls::new(&rights);
            let mut writer = client.new_multi_writer();
            writer.add_create(&path, &[], &CreateMode::Persistent.with_acls(acls))?;
            writer.add_check_version(&path, 0)?;
            writer.add_create(&below, &[], &CreateMode::Ephemeral.with_acls(acls))?;
            writer.add_set_data(&below, &[], None)?;
            writer.add_delete(&below, None)?;
            writer.add_delete(&path, None)?;
            Ok(writer.commit().await)
        });
        let (refused, step) = match tried.await {
            Ok(Ok(_)) => return Ok(()),
            Ok(Err(failed)) => {
                let step = match failed {
                    MultiWriteError::OperationFailed { index, .. } => RIGHTS.get(index),
                    MultiWriteError::RequestFailed { .. } => None,
                };
                (Unanswered::Refused(failed.into()), step)
            }
            Err(unanswered) => (unanswered, None),
        };
        Err(match step {
            Some(right) => refused.into_error(&format!("let us {right} nodes of ours")),
            None => refused.into_error("try the rights on nodes"),
        })
    }

    /// Whether anybody may change the rights of a node, as far as we may know.
    pub(crate) async fn is_closable(&self, path: &str) -> bool {
        let path = path.to_owned();
        let told = self.ask(async move |client| client.get_acl(&path).await).await;
        let by_anybody = |acl: &Acl| acl.scheme() == "world" && acl.permission().has(Permission::ADMIN);
        told.is_ok_and(|(acl, _)| acl.iter().any(by_anybody))
    }
}

/// What each step of the transaction takes.
const RIGHTS: [&str; 6] = ["make", "read", "make", "write", "delete", "delete"];
