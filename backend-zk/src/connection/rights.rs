//! What the rights on nodes of ours let us do.

use leasehold_core::Result;
use zookeeper_client::{Acl, Acls, CreateMode, MultiWriteError, Permission};

use super::Connection;
use crate::error::Explain;

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
        let below = format!("{path}/below");
        let acls = Acls::new(&self.rights);
        let mut step = None;
        let tried = self.ask(async |client| {
            let mut writer = client.new_multi_writer();
            writer.add_create(path, &[], &CreateMode::Persistent.with_acls(acls))?;
            writer.add_check_version(path, 0)?;
            writer.add_create(&below, &[], &CreateMode::Ephemeral.with_acls(acls))?;
            writer.add_set_data(&below, &[], None)?;
            writer.add_delete(&below, None)?;
            writer.add_delete(path, None)?;
            writer.commit().await.map_err(|failed| {
                if let MultiWriteError::OperationFailed { index, .. } = failed {
                    step = RIGHTS.get(index);
                }
                failed.into()
            })
        });
        let tried = tried.await.map(drop);
        match step {
            Some(right) => tried.or_not(&format!("let us {right} nodes of ours")),
            None => tried.or_not("try the rights on nodes"),
        }
    }

    /// Whether anybody may change the rights of a node, as far as we may know.
    pub(crate) async fn is_closable(&self, path: &str) -> bool {
        let told = self.ask(async |client| client.get_acl(path).await).await;
        let by_anybody = |acl: &Acl| acl.scheme() == "world" && acl.permission().has(Permission::ADMIN);
        told.is_ok_and(|(acl, _)| acl.iter().any(by_anybody))
    }
}

/// What each step of the transaction takes.
const RIGHTS: [&str; 6] = ["make", "read", "make", "write", "delete", "delete"];
