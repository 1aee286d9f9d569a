//! Inspection, revocation and diagnosis of a lock, in the stores that have it.

use std::collections::BTreeMap;
use std::sync::Arc;

use leasehold_core::backend::stage::{Phase, Side};
use leasehold_core::backend::{Finding, Holder, LockState, Revoke, Severity};
use leasehold_core::{ErrorKind, LockName, Result};

use super::{SIDES, Session};
use crate::protocol::Class;
use crate::protocol::records::losses;

impl Session {
    /// The stores to ask, the one whose holder counts first, and whether nothing is known without it.
    async fn asked(self: &Arc<Self>) -> Result<Vec<(Side, bool)>> {
        self.refuse_closed()?;
        self.view_or_why().await?;
        let (phase, shuns_old) =
            self.with(|book, now| (book.view().map(|view| view.phase), book.shuns_old(now)));
        let (old, new) = ((Side::Old, true), (Side::New, true));
        Ok(match phase {
            Some(Phase::Old | Phase::Shadow) => vec![old],
            Some(Phase::Both) | None => vec![new, old],
            Some(Phase::Drain) if !shuns_old => vec![new, (Side::Old, false)],
            Some(Phase::Drain | Phase::New) => vec![new],
        })
    }

    pub(crate) async fn inspect(self: &Arc<Self>, name: &LockName) -> Result<LockState> {
        let mut whole = LockState::new(name.clone(), [], 0);
        for (side, is_needed) in self.asked().await? {
            let state = match self.open(side)?.backend.inspect(name).await {
                Err(_) if !is_needed => continue,
                state => state?,
            };
            self.add(&mut whole, side, state);
        }
        Ok(whole)
    }

    pub(crate) async fn list(self: &Arc<Self>, prefix: &str) -> Result<Vec<LockState>> {
        let mut all = BTreeMap::new();
        for (side, is_needed) in self.asked().await? {
            let states = match self.open(side)?.backend.list(prefix).await {
                Err(_) if !is_needed => continue,
                states => states?,
            };
            for state in states {
                let name = state.name.clone();
                let whole = all.entry(name.clone()).or_insert_with(|| LockState::new(name, [], 0));
                self.add(whole, side, state);
            }
        }
        Ok(all.into_values().collect())
    }

    fn add(self: &Arc<Self>, whole: &mut LockState, side: Side, part: LockState) {
        whole.contenders += part.contenders;
        if whole.holders.is_empty() {
            whole.holders = self.known_to_all(side, &part.name, part.holders);
        }
    }

    pub(crate) async fn revoke(self: &Arc<Self>, name: &LockName, how: Revoke) -> Result<Vec<Holder>> {
        let mut found = Vec::new();
        for (side, is_needed) in self.asked().await? {
            // Forced, it is taken away wherever it is.
            if !found.is_empty() && how != Revoke::Force {
                break;
            }
            let holders = match self.open(side)?.backend.revoke(name, how).await {
                Err(_) if !is_needed => continue,
                holders => holders?,
            };
            if found.is_empty() {
                found = self.known_to_all(side, name, holders);
            }
        }
        Ok(found)
    }

    fn known_to_all(self: &Arc<Self>, side: Side, name: &LockName, holders: Vec<Holder>) -> Vec<Holder> {
        self.with(|book, _| holders.into_iter().map(|holder| book.known_to_all(side, name, holder)).collect())
    }

    pub(crate) async fn diagnose(self: &Arc<Self>) -> Result<Vec<Finding>> {
        self.refuse_closed()?;
        let (view, trouble) = self.with(|book, _| (book.view(), book.trouble.clone()));
        let (severity, phase) = match view {
            Some(view) if view.class() == Class::Bridge => (Severity::Warning, view.phase.word()),
            Some(view) => (Severity::Ok, view.phase.word()),
            None => (Severity::Broken, "unknown: no lock is granted"),
        };
        let mut findings = vec![Finding::new(severity, "move", format!("phase {phase}"))];
        if let Some(times) = view.map(|view| losses(view.seen.version)).filter(|times| *times > 0) {
            let detail = format!(
                "a store has lost its data (times so far: {times}), and a process with the plain URL of the \
                 old store may have opened it since: check `leasehold migrate status`"
            );
            findings.push(Finding::new(Severity::Warning, "move", detail));
        }
        for side in SIDES {
            if let Some(error) = &trouble[side] {
                let detail = format!("the {} store: {error:#}", side.word());
                findings.push(Finding::new(Severity::Warning, "move", detail));
            }
            // Waiting for an unreachable store would leave no time for the other.
            let away = trouble[side].as_ref().is_some_and(|error| *error.kind() == ErrorKind::Unavailable);
            let Some(open) = self.stores[side].open.get().filter(|_| !away) else { continue };
            findings.extend(open.backend.diagnose().await?.into_iter().map(|finding| placed(side, finding)));
        }
        Ok(findings)
    }

    /// The findings of each store about one name, as far as it can be reached.
    pub(crate) async fn diagnose_lock(self: &Arc<Self>, name: &LockName) -> Result<Vec<Finding>> {
        self.refuse_closed()?;
        let mut findings = Vec::new();
        for side in SIDES {
            let found = match self.open(side) {
                Ok(open) => self.env.bounded(open.backend.diagnose_lock(name)).await,
                Err(error) => Err(error),
            };
            let found = found
                .unwrap_or_else(|error| vec![Finding::new(Severity::Warning, "lock", format!("{error:#}"))]);
            findings.extend(found.into_iter().map(|finding| placed(side, finding)));
        }
        Ok(findings)
    }
}

fn placed(side: Side, mut finding: Finding) -> Finding {
    finding.detail = format!("in the {} store: {}", side.word(), finding.detail);
    finding
}
