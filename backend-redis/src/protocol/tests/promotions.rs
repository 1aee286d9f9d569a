//! The contenders against a primary and a replica, which is promoted with what it had some steps ago.
//!
//! Replication is asynchronous. The primary before goes on for a lag, with clients that have not heard of the next one, and with
//! new ones. Then it follows, and may be promoted again: the same process, in another reign. What must hold is that of
//! `restarts`.

use std::collections::VecDeque;

use super::restarts::Data;
use super::*;
use crate::scripts::model::{Connection, Origin, Reign};

/// For how long the primary before goes on at most, in milliseconds.
pub(super) const LAG: u64 = TTL * 2 / 3;

/// How many steps of the primary a replica may miss.
const LOST: usize = 8;

/// The other server.
#[derive(Debug, Default)]
pub(super) struct Replication {
    /// Its process, if it has been a primary.
    run: Option<u64>,
    /// What it may have.
    past: VecDeque<Data>,
    /// It is the primary before, and goes on; and others from where the slot was before.
    formers: Vec<Former>,
}

#[derive(Debug)]
struct Former {
    server: Server,
    origin: Option<Origin>,
    reign: Reign,
    /// As [`World::reign`].
    count: u64,
    until: u64,
}

/// A replica is promoted that lacks the last steps; the primary before goes on until then.
#[derive(Clone, Copy, Debug)]
struct Promote {
    lost: usize,
    until: u64,
}

impl Replication {
    /// It has those data, and follows from there.
    pub(super) fn follow(&mut self, data: Data) {
        self.past = VecDeque::from([data]);
    }

    /// It is another one, which has been in these states.
    pub(super) fn follow_another(&mut self, past: [Data; 2]) {
        (self.run, self.past) = (None, past.into());
    }
}

impl Runs {
    pub(super) fn leads_to_former(&self, over: Connection, now: u64) -> bool {
        let mut formers = self.replication.formers.iter();
        formers.any(|former| over.reign == former.count && now < former.until)
    }
}

impl World {
    /// A server dies or is promoted, or a client leaves its server for one of both.
    pub(super) fn change_server(&mut self, client: usize, pick: usize) {
        if self.move_slot(pick) {
            return;
        }
        let Some(runs) = &mut self.runs else { return };
        match (runs.lag, pick % 8) {
            (1.., 0) => {
                let until = self.now + if pick.is_multiple_of(5) { 0 } else { runs.lag };
                self.promote(Promote { lost: pick % LOST, until });
            }
            (1.., 1..=4) => {
                runs.connections[client] = Connection::default();
                self.connection(client);
            }
            (1.., 5) => self.reach_former(client),
            (1.., 6) => {}
            _ => self.restart(pick),
        }
    }

    fn promote(&mut self, Promote { lost, until }: Promote) {
        let Some(runs) = &mut self.runs else { return };
        let past = &runs.replication.past;
        let Some(data) = past.get(past.len().saturating_sub(lost + 1)).cloned() else { return };
        let former = Former {
            server: self.server.clone(),
            origin: runs.origin,
            reign: runs.reign,
            count: runs.count,
            until,
        };
        let run = runs.replication.run.replace(former.reign.run);
        // The primary before has stopped if it is the one that is promoted.
        runs.replication.formers.retain(|former| Some(former.reign.run) != run);
        runs.replication.formers.push(former);
        let replaced = runs.reign.replid;
        self.come_up(data, run);
        if let Some(runs) = &mut self.runs
            && let Some(slots) = &mut runs.slots
        {
            slots.replaced.insert(runs.reign.replid, replaced);
        }
    }

    /// The client connects to the primary before, by an address that is out of date.
    fn reach_former(&mut self, client: usize) {
        if let Some(runs) = &mut self.runs
            && let Some(Former { origin: Some(origin), reign, count, until, .. }) =
                runs.replication.formers.last()
            && self.now < *until
            && origin.reign == *reign
        {
            let (paused_until, lag_until) =
                (origin.since + micros(restarts::PAUSE + LAG), origin.since + micros(LAG));
            let lag_until = runs.slots.as_mut().map_or(lag_until, |slots| {
                slots.enters(client, reign.replid, (micros(self.now), lag_until), self.mutant)
            });
            runs.connections[client] =
                Connection { reign: *count, paused_until: Some(paused_until), lag_until };
        }
    }

    /// A step is over, which the replica may get or not.
    pub(super) fn remember(&mut self) {
        let Some(runs) = self.runs.as_mut().filter(|runs| runs.lag > 0) else { return };
        let past = &mut runs.replication.past;
        past.push_back((self.server.clone(), runs.origin));
        if past.len() > LOST {
            past.pop_front();
        }
    }

    /// The primary before has stopped.
    pub(super) fn end_former(&mut self) {
        if let Some(runs) = &mut self.runs {
            runs.replication.formers.clear();
        }
    }

    /// A request reaches the server that its connection leads to, unless that has ended.
    pub(super) fn deliver(&mut self, message: Message) -> Result<(), String> {
        let Message::Request { over, .. } = message else { return self.serve(message) };
        if over.reign == self.reign() {
            let is_renewal = self.is_renewal(&message);
            self.serve(message)?;
            return if is_renewal { self.was_renewed() } else { Ok(()) };
        }
        let leads_to_former = self.runs.as_ref().is_some_and(|runs| runs.leads_to_former(over, self.now));
        if leads_to_former {
            self.swap_former(over);
            self.serve(message)?;
            self.swap_former(over);
        }
        Ok(())
    }

    fn swap_former(&mut self, over: Connection) {
        let formers = self.runs.iter_mut().flat_map(|runs| &mut runs.replication.formers);
        for former in formers.filter(|former| former.count == over.reign) {
            std::mem::swap(&mut self.server, &mut former.server);
        }
    }
}

#[test]
fn promotions_keep_the_guarantees() {
    Setting::Promotions.search(Depth::of_run().pick(5_000, 10_000, 500_000), Mutant::None).unwrap();
}

#[test]
fn without_a_part_of_the_reign_two_hold() {
    Setting::Promotions.catches(&[
        Mutant::RunOnly,
        Mutant::NoLag,
        Mutant::CountsUnextended,
        Mutant::PauseOnceForever,
        Mutant::Scripts(Fault::SharesInPause),
        Mutant::Scripts(Fault::RenewsInLag),
    ]);
}
