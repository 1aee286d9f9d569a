//! The session's rights on its nodes.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use leasehold_core::{OwnerId, Result};
use sha1_smol::Sha1;
use zookeeper_client::{Acl, Acls, AuthId, CreateMode, Error as ZkError, MultiWriteError, Permission};

use super::Connection;
use crate::error::{Answered, Explain, Unanswered};

/// The identity of a session with such a secret, in addition to its user.
fn password(secret: OwnerId) -> String {
    format!("{USER}:{}", secret.to_hex())
}

/// These rights, except the one to write, which only the session with such a secret has. If servers are set to another digest,
/// no client has it.
pub(super) fn alone_writes(secret: OwnerId, rights: &[Acl]) -> Vec<Acl> {
    let others = Permission::READ | Permission::CREATE | Permission::DELETE | Permission::ADMIN;
    let others = rights.iter().map(|acl| Acl::new(acl.permission() & others, acl.auth_id().clone()));
    let digest = STANDARD.encode(Sha1::from(password(secret)).digest().bytes());
    let own = Acl::new(Permission::WRITE, AuthId::new("digest", &format!("{USER}:{digest}")));
    others.filter(|acl| acl.permission() != Permission::NONE).chain([own]).collect()
}

impl Connection {
    /// Sends the secret, if there is one, here and on every later connection, before any other request.
    ///
    /// # Errors
    ///
    /// `AuthFailed`, and the session has ended, when the server does not take it.
    pub(crate) async fn authenticate(&self) -> Answered<()> {
        let Some(password) = self.secret.map(password) else {
            return Ok(());
        };
        self.ask(async move |client| client.auth("digest", password.as_bytes()).await).await
    }

    /// Whether the server checks rights: a node that no client may write is not written.
    pub(crate) async fn is_kept_out(&self, path: &str) -> bool {
        let path = path.to_owned();
        let written = self.transact(move |all| {
            let options = CreateMode::Ephemeral.with_acls(Acls::anyone_read());
            all.add_create(&path, &[], &options)?;
            all.add_set_data(&path, &[], None)?;
            all.add_delete(&path, None)
        });
        matches!(written.await, Err(Unanswered::Refused(ZkError::NoAuth)))
    }

    /// Whether only this session can write to the nodes of its contenders.
    pub(crate) fn is_private(&self) -> bool {
        self.secret.is_some()
    }

    /// Does with a test node, and one below it, everything that is ever done with one: in one transaction, which leaves
    /// nothing, however it ends.
    ///
    /// The right to delete a node is its parent's, so a release may be refused although the node could be
    /// made and written: that has to be known before anything is held.
    ///
    /// # Errors
    ///
    /// `Denied`, and the operation, when a right is missing.
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
        let Err(failed) = tried.await.or_not(TRY)? else {
            return Ok(());
        };
        let right = match failed {
            MultiWriteError::OperationFailed { index, .. } => RIGHTS.get(index),
            MultiWriteError::RequestFailed { .. } => None,
        };
        let what = right.map_or_else(|| TRY.to_owned(), |right| format!("{right} nodes in the namespace"));
        Err(Unanswered::Refused(failed.into()).into_error(&what))
    }

    /// Whether every client may change the rights of a node, as far as this one can read them.
    pub(crate) async fn is_closable(&self, path: &str) -> bool {
        let path = path.to_owned();
        let told = self.ask(async move |client| client.get_acl(&path).await).await;
        let by_anybody = |acl: &Acl| acl.scheme() == "world" && acl.permission().has(Permission::ADMIN);
        told.is_ok_and(|(acl, _)| acl.iter().any(by_anybody))
    }
}

const USER: &str = "leasehold";
const TRY: &str = "check the rights on nodes";
/// The right that each step of the transaction needs.
const RIGHTS: [&str; 6] = ["make", "read", "make", "write", "delete", "delete"];
