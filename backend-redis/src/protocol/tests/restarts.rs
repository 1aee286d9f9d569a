//! The contenders against a server that restarts, empty or with what it had once, and pauses then (redis.protocol-9).
//!
//! A connection leads to one run of the server: what is on its way to it when it ends never arrives, what is on its way
//! back may. After every step: whoever thinks it holds is alone with that, also against whom the server has granted the
//! lock to meanwhile (G1, G2), and taken counters grow (G3). When the faults end, everybody gets the lock in turn (G6).
//! Planted mutants must be caught.

use super::*;
use crate::scripts::model::Origin;

/// Milliseconds: as long as the longest lease.
const PAUSE: u64 = TTL;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wrong {
    Nothing,
    /// One of the scripts grants what is free all the same.
    Forgets(Request),
    /// As if the lock were taken by force.
    ForceForgets,
    /// After a reconnect it is not asked which run of the server that leads to.
    RunUnasked,
    /// Only a server that knows of no run is taken for another one.
    RunUnseen,
    /// The pause is shorter than the leases.
    ShortPause,
    /// There is none.
    NoPause,
}

#[derive(Debug)]
struct Client {
    contender: Contender,
    owner: Owner,
    wants: bool,
    held: bool,
    leaving: BTreeSet<Owner>,
    renewed_at: u64,
    connection: Connection,
}

/// Which run of the server it leads to, and until when nothing is to be granted over it.
#[derive(Clone, Copy, Debug)]
struct Connection {
    run: u64,
    paused_until: u64,
}

/// What is written in the server.
#[derive(Clone, Debug, Default)]
struct Data {
    server: Server,
    origin: Option<Origin>,
}

#[derive(Debug)]
struct World {
    now: u64,
    run: u64,
    /// When that has begun.
    came_up_at: u64,
    data: Data,
    /// As it was once.
    old: Data,
    clients: Vec<Client>,
    /// What is on its way, and what was sent over which connection.
    flying: Vec<(Option<Connection>, Message)>,
    owners: Owner,
    taken: u64,
    wrong: Wrong,
}

impl World {
    fn new(wrong: Wrong) -> Self {
        let client = |owner| Client {
            contender: contender(),
            owner,
            wants: true,
            held: false,
            leaving: BTreeSet::new(),
            renewed_at: 0,
            connection: Connection { run: 0, paused_until: 0 },
        };
        Self {
            now: 1_000,
            run: 1,
            came_up_at: 0,
            data: Data::default(),
            old: Data::default(),
            clients: (1..=CLIENTS as u64).map(client).collect(),
            flying: Vec::new(),
            owners: CLIENTS as u64,
            taken: 0,
            wrong,
        }
    }

    /// What a connection that is made now is told.
    fn admit(&mut self) -> Connection {
        let known = &mut self.data.origin;
        if let (Wrong::RunUnseen, Some(known)) = (self.wrong, known.as_mut()) {
            known.run = self.run;
        }
        let since = Origin::admit(known, self.run, micros(self.now));
        let pause = match self.wrong {
            Wrong::NoPause => 0,
            Wrong::ShortPause => PAUSE / 2,
            _ => PAUSE,
        };
        Connection { run: self.run, paused_until: since + micros(pause) }
    }

    /// The connection of a client, made anew if its server is gone.
    fn connection(&mut self, id: usize) -> Connection {
        let before = self.clients[id].connection;
        if before.run != self.run {
            let mut admitted = self.admit();
            if self.wrong == Wrong::RunUnasked && before.run != 0 {
                admitted.paused_until = before.paused_until;
            }
            self.clients[id].connection = admitted;
        }
        self.clients[id].connection
    }

    fn send(&mut self, id: usize, owner: Owner, request: Request) {
        let connection = self.connection(id);
        let message = Message::Request { client: id, owner, request, sent_at: self.now };
        self.flying.push((Some(connection), message));
    }

    fn act(&mut self, id: usize) -> Result<(), String> {
        let now = at(self.now);
        if !self.clients[id].wants {
            return Ok(());
        }
        match self.clients[id].contender.step(now) {
            Step::Enter => {
                self.send(id, self.clients[id].owner, Request::Acquire);
            }
            Step::Refresh => {
                self.send(id, self.clients[id].owner, Request::Refresh);
                self.clients[id].contender.unanswered(now);
            }
            Step::Take { counter, .. } if !self.clients[id].held => {
                if counter <= self.taken {
                    return Err(format!("counter {counter} was taken after {}", self.taken));
                }
                self.taken = counter;
                self.clients[id].held = true;
            }
            Step::Wait(_) | Step::Take { .. } => {}
            Step::Over(_) => self.leave(id, true),
        }
        Ok(())
    }

    fn leave(&mut self, id: usize, wants: bool) {
        self.owners += 1;
        let client = &mut self.clients[id];
        (client.contender, client.wants, client.held) = (contender(), wants, false);
        let left = std::mem::replace(&mut client.owner, self.owners);
        client.leaving.insert(left);
        self.send(id, left, Request::Release);
    }

    fn renew(&mut self, id: usize) {
        for owner in self.clients[id].leaving.clone() {
            self.send(id, owner, Request::Release);
        }
        let Client { contender, owner, wants, .. } = &self.clients[id];
        if *wants && (contender.is_waiting() || contender.held_as().is_some()) {
            self.send(id, *owner, Request::Refresh);
        }
        self.clients[id].renewed_at = self.now;
    }

    fn deliver(&mut self, (over, message): (Option<Connection>, Message)) {
        // What was sent to a server that has died meanwhile has died with it.
        if over.is_some_and(|over| over.run != self.run) {
            return;
        }
        let (now, mut sent) = (self.now, Vec::new());
        let id = message.client();
        let client = &mut self.clients[id];
        match message {
            Message::Request { owner, request, sent_at, .. } => {
                let server = &mut self.data.server;
                server.paused_until = over.map(|over| over.paused_until);
                if self.wrong == Wrong::Forgets(request) {
                    server.paused_until = None;
                }
                let asker = Asker::new(owner, id, TTL);
                let answer = match request {
                    Request::Acquire => Some(server.acquire(micros(now), asker, true, &mut sent)),
                    Request::Refresh => Some(server.refresh(micros(now), asker, &mut sent)),
                    Request::Release => {
                        server.release(micros(now), owner, &mut sent);
                        None
                    }
                };
                sent.push(match answer {
                    Some(answer) => Message::Reply { client: id, owner, answer, sent_at },
                    None => Message::Released { client: id, owner },
                });
            }
            Message::Reply { owner, answer, sent_at, .. } if client.owner == owner && client.wants => {
                client.contender.answered(at(now), at(sent_at), answer);
            }
            Message::Released { owner, .. } => _ = client.leaving.remove(&owner),
            Message::Push { owner, counter, .. } if client.owner == owner && client.wants => {
                client.contender.told(at(now), counter);
            }
            Message::Push { owner, .. } => {
                client.leaving.insert(owner);
                self.send(id, owner, Request::Release);
            }
            Message::Due { owner, ask_in, .. } if client.owner == owner => {
                client.contender.due(at(now), Duration::from_millis(ask_in));
            }
            _ => {}
        }
        self.flying.extend(sent.into_iter().map(|message| (None, message)));
    }

    /// The server dies, and comes up with what it had once, or with nothing.
    fn restart(&mut self, with: Data) {
        // That takes a moment, by which what was granted before is told from what is granted after.
        self.now += 1;
        (self.run, self.came_up_at) = (self.run + 1, micros(self.now));
        self.data = with;
    }

    /// Somebody takes the lock from whoever has it.
    fn force(&mut self) {
        let mut sent = Vec::new();
        let admitted = self.admit();
        // Which this breaks by itself: only a lock that nobody has is of interest.
        self.data.server.expire(micros(self.now));
        if self.data.server.lock.is_none() {
            let is_told = self.wrong != Wrong::ForceForgets;
            self.data.server.paused_until = is_told.then_some(admitted.paused_until);
            self.data.server.revoke(micros(self.now), None, &mut sent);
        }
        self.flying.extend(sent.into_iter().map(|message| (None, message)));
    }

    /// Nobody has what another thinks it holds.
    fn check(&mut self) -> Result<(), String> {
        let server = &mut self.data.server;
        server.expire(micros(self.now));
        // Whom it had when it died, it has granted nothing since.
        let granted = server.grant.filter(|grant| grant.since >= self.came_up_at);
        let mut holder = granted.map(|grant| grant.owner).filter(|owner| server.is_held_by(*owner));
        for client in &mut self.clients {
            if !client.wants || !matches!(client.contender.step(at(self.now)), Step::Take { .. }) {
                continue;
            }
            if *holder.get_or_insert(client.owner) != client.owner {
                return Err(format!("{} and {holder:?} hold at {}: {client:?}", client.owner, self.now));
            }
        }
        Ok(())
    }

    fn event(&mut self, kind: u8, pick: usize) -> Result<(), String> {
        let id = pick % CLIENTS;
        let message = (!self.flying.is_empty()).then(|| pick % self.flying.len().max(1));
        match (kind, message) {
            (0, _) => self.now += pick as u64 % (TTL / 3),
            (1 | 2, _) => self.act(id)?,
            (3, _) => self.renew(id),
            (4, _) if self.clients[id].held || pick.is_multiple_of(5) => {
                self.leave(id, pick.is_multiple_of(2))
            }
            (5, Some(message)) if pick.is_multiple_of(2) => _ = self.flying.remove(message),
            (6, _) if pick.is_multiple_of(3) => self.restart(Data::default()),
            (6, _) if pick.is_multiple_of(2) => self.restart(self.old.clone()),
            (6, _) => self.old = self.data.clone(),
            (7, _) => self.force(),
            (8..=12, Some(message)) => {
                let message = self.flying.remove(message);
                self.deliver(message);
            }
            _ => {}
        }
        self.check()
    }

    /// Faults end: everybody gets the lock, in turn.
    fn settle(&mut self) -> Result<(), String> {
        let mut missing: BTreeSet<_> = (0..CLIENTS).filter(|id| self.clients[*id].wants).collect();
        let ends = self.now + PAUSE + (CLIENTS as u64 + 1) * 2 * TTL;
        while !missing.is_empty() {
            self.now += ROUND;
            for id in 0..CLIENTS {
                self.act(id)?;
                if self.now >= self.clients[id].renewed_at + TTL / 3 {
                    self.renew(id);
                }
            }
            while !self.flying.is_empty() {
                let message = self.flying.remove(0);
                self.deliver(message);
                self.check()?;
            }
            for id in missing.clone() {
                self.act(id)?;
                if self.clients[id].held {
                    missing.remove(&id);
                    self.leave(id, false);
                }
            }
            if self.now > ends {
                return Err(format!("{missing:?} never got the lock: {self:?}"));
            }
        }
        Ok(())
    }
}

fn run(events: &[(u8, u16)], wrong: Wrong) -> Result<(), String> {
    let mut world = World::new(wrong);
    for (kind, pick) in events {
        world.event(*kind, usize::from(*pick))?;
    }
    world.settle()
}

fn schedules() -> impl Strategy<Value = Vec<(u8, u16)>> {
    prop::collection::vec((0_u8..13, any::<u16>()), 0..150)
}

proptest! {
    #![proptest_config(Config { failure_persistence: None, ..Config::with_cases(20_000) })]

    /// However often the server restarts, and whatever it forgets.
    #[test]
    fn restarts_keep_the_guarantees(events in schedules()) {
        if let Err(violation) = run(&events, Wrong::Nothing) {
            return Err(TestCaseError::fail(violation));
        }
    }
}

/// Each part of the rule is needed.
#[test]
fn without_a_part_of_the_pause_two_hold() {
    for wrong in [
        Wrong::NoPause,
        Wrong::Forgets(Request::Acquire),
        Wrong::Forgets(Request::Refresh),
        Wrong::Forgets(Request::Release),
        Wrong::ForceForgets,
        Wrong::RunUnasked,
        Wrong::RunUnseen,
        Wrong::ShortPause,
    ] {
        let config = Config { failure_persistence: None, max_shrink_iters: 0, ..Config::with_cases(60_000) };
        let rng = proptest::test_runner::TestRng::deterministic_rng(config.rng_algorithm);
        let mut runner = TestRunner::new_with_rng(config, rng);
        let outcome = runner.run(&schedules(), |events| run(&events, wrong).map_err(TestCaseError::fail));
        assert!(matches!(outcome, Err(TestError::Fail(..))), "{wrong:?} was not caught");
        ::model::caught("redis restarts", wrong, "random schedules");
    }
}
