//! What a client is told besides answers: what it watches, who writes there, connections and time.

use leasehold_core::{Mode, OwnerId};

use super::super::super::*;
use super::directory::Write;
use super::{Client, Mutant, World};

impl World {
    pub(in super::super) fn watch(&mut self, at: usize, ahead: String, lag: usize) -> Answer {
        self.view(at, lag);
        let (ahead, shown) = (self.meant(ahead), self.shown_to(at));
        if self.clients[at].watches_own && !shown.contains(&self.name_of(at)) {
            return Ok(Said::Removed);
        }
        if !shown.contains(&ahead) {
            return Err(Failure::Absent);
        }
        let version = self.directory.version(self.clients[at].seen, &ahead);
        let passes = match self.mutant {
            Some(Mutant::TrustsStrangers) => true,
            Some(Mutant::IgnoresVersion) => is_trusted(&ahead, 0),
            // Of a ghost our server shows what it was.
            _ => is_trusted(&ahead, version.unwrap_or(0)),
        };
        self.clients[at].watched = Some(ahead);
        Ok(Said::Watched { passes })
    }

    fn name_of(&self, at: usize) -> String {
        let stem = crate::keys::stem(self.clients[at].owner, self.clients[at].mode);
        let mut of_all = self.directory.history.iter().flatten().map(|child| self.directory.name(child));
        of_all.rfind(|name| name.starts_with(&stem)).unwrap_or_default()
    }

    /// The server shows a client more of the history, and tells what it watches; after an answer that is out.
    pub(in super::super) fn advance(&mut self, at: usize) {
        if self.clients[at].watched.is_some() && self.clients[at].asked.is_some() {
            return;
        }
        while self.clients[at].seen + 1 < self.directory.history.len() && self.clients[at].end.is_none() {
            let before = self.clients[at].seen;
            self.clients[at].seen += 1;
            let (own, shown) = (self.name_of(at), self.shown_to(at));
            let client = &self.clients[at];
            let Some(watched) = client.watched.clone() else {
                continue;
            };
            if client.watches_own && !shown.contains(&own) {
                return self.happens(at, Happening::Removed);
            }
            let passed = self.directory.passes.contains(&(before + 1));
            if passed && !shown.contains(&watched) && self.takes_for_a_pass(&watched) {
                return self.believes(at);
            }
            let (was, is) =
                (self.directory.version(before, &watched), self.directory.version(before + 1, &watched));
            if !shown.contains(&watched) {
                let taken = self.mutant == Some(Mutant::EndIsPass) && is_trusted(&watched, 0);
                let changed = passed || taken;
                return self.happens(at, if changed { Happening::Changed } else { Happening::Ended });
            }
            if was.is_some() && is.is_some() && was != is {
                let ends = self.mutant == Some(Mutant::ChangedIsEnded);
                return self.happens(at, if ends { Happening::Ended } else { Happening::Changed });
            }
        }
    }

    /// Somebody writes to what a client watches, if anybody can, or has before.
    pub(in super::super) fn change(&mut self, at: usize) {
        let watched = self.clients[at].watched.clone();
        let newest = self.directory.history.len() - 1;
        let version = watched.as_ref().and_then(|watched| self.directory.version(newest, watched));
        if let (Some(watched), Some(version)) = (watched, version)
            && !is_trusted(&watched, version)
        {
            let _written = self.directory.carry_out(&Write::Change(watched));
        }
    }

    /// Who may write everywhere writes to a client's node, before anybody watches it; everybody's server has
    /// heard of it.
    pub(in super::super) fn change_by_force(&mut self, at: usize) {
        let newest = self.directory.history.len() - 1;
        let Some(name) = self.mine(at).map(|mine| mine.name()) else {
            return;
        };
        let up_to_date =
            |client: &Client| client.seen == newest || (client.watched.is_none() && !client.watches_own);
        let watched = self.clients.iter().any(|client| client.watched.as_ref() == Some(&name));
        if !watched && self.clients.iter().all(up_to_date) {
            let _written = self.directory.carry_out(&Write::Change(name));
            self.clients.iter_mut().for_each(|client| client.seen = newest + 1);
        }
    }

    /// A client's node has stood for a while.
    pub(in super::super) fn stands(&mut self, at: usize) {
        if self.clients[at].watches_own || self.clients[at].asked.is_some() {
            return;
        }
        if self.mutant == Some(Mutant::OwnNeverWatched) {
            self.clients[at].stood = self.mine(at).is_some() && self.clients[at].watched.is_some();
        } else {
            self.happens(at, Happening::Stands);
        }
    }

    /// The connection is made again; a watch may have got lost.
    pub(in super::super) fn reconnect(&mut self, at: usize, watch_is_lost: bool) {
        if watch_is_lost {
            let client = &mut self.clients[at];
            (client.watched, client.watches_own, client.stood) = (None, false, false);
        }
        self.connects_again(self.clients[at].session, watch_is_lost);
        if self.mutant != Some(Mutant::NoListingAfterReconnect) {
            self.happens(at, Happening::Reconnected);
        }
    }

    /// Nothing has happened for long.
    pub(in super::super) fn overdue(&mut self, at: usize) {
        if self.clients[at].asked.is_none() && self.mutant != Some(Mutant::NeverOverdue) {
            self.happens(at, Happening::Overdue);
        }
    }

    /// A watch is lost, and the connection is not; or the server loses the end of what is watched for good.
    pub(in super::super) fn goes_wrong(&mut self, at: usize, for_good: bool) {
        self.silent = true;
        let watched = self.clients[at].watched.take();
        if for_good && watched.is_some() {
            self.clients[at].ghost.clone_from(&watched);
            self.clients[at].watched = watched;
        }
    }
}

/// Whether a contender says that it passes, and nobody else may write its node: not Curator's, and not
/// those with an open ACL.
pub(super) fn passes(owner: OwnerId) -> bool {
    let number = u128::from_str_radix(&owner.to_hex(), 16).unwrap();
    number < 1_000 && !number.is_multiple_of(4)
}

fn is_trusted(name: &str, version: u32) -> bool {
    version == 0 && crate::keys::owner_of(name, Mode::EXCLUSIVE).is_some_and(passes)
}
