//! The ledger: a record that is replaced at its version, and members whose entries end with their lease.
//!
//! A reader has written before, which a store may require (ledger-2).

use leasehold_core::backend::ledger::{Entry, MAX_VALUE, Participant, Written};
use leasehold_core::backend::stage::{FORMAT, Phase, Side, Stage};
use leasehold_core::backend::{Lease, LeaseScope};
use leasehold_core::clock::Deadline;
use leasehold_core::{Effect, ErrorKind, OwnerId, Timing};

use crate::network::{Fault, Network, Operation};
use crate::session::dead_member;
use crate::{Failure, Outcome, Session, Task, World, case, ensure};

case::table! { "ledger":
    a_record_is_replaced_only_at_its_version: "a write that expects another version than the current one \
         changes nothing",
    of_many_writers_one_wins: "of several writes that expect the same version exactly one is done",
    versions_never_return: "a version is not current again when the same value is written again",
    a_read_sees_what_was_written_before: "a record can be read by any session, also the largest record",
    a_lost_answer_is_unknown: "a retried write is no conflict with itself, and a read shows its result",
    oversized_value_is_refused: "a record or an entry above the size limit changes nothing",
    an_entry_has_its_latest_value: "signing again replaces the value, not the entry or its lease",
    unsigned_entry_is_removed: "leaving removes the entry at once, and leaving again changes nothing",
    members_shows_whoever_signed_before: "a reader after its own write sees every entry signed before",
    a_signature_counts_from_sending: "the deadline of an entry is a ttl after the request was sent, less the margin",
    entries_end_with_their_lease: "a dead participant is shown until its lease ends, and not after",
    move_adds_no_token_base: "a session of a move has the store's own numbers, without the token base",
    moving_process_is_not_counted: "the sessions outside a move are counted, and its own sessions are not",
    a_record_bars_plain_sessions: "a session that does not move opens the namespace only if the record admits it",
}

async fn a_record_is_replaced_only_at_its_version(world: World) -> Outcome {
    let sessions = [world.moving_session().await?, world.moving_session().await?];
    let [a, b] = [sessions[0].ledger()?, sessions[1].ledger()?];
    ensure!(a.write(Some(7), b"early").await? == Written::Conflict, "there is no record of version 7");
    let first = done(a.write(None, b"first").await?)?;
    ensure!(b.write(None, b"again").await? == Written::Conflict, "there is a record");
    let second = done(b.write(Some(first), b"second").await?)?;
    ensure!(second > first, "version {second} after {first}");
    for expected in [None, Some(first), Some(second + 1)] {
        let answer = a.write(expected, b"stale").await?;
        ensure!(answer == Written::Conflict, "{expected:?} is not {second}, and {answer:?}");
    }
    let record = a.read().await?;
    ensure!(record == Some(entry(second, b"second")), "the record is {record:?}");
    Ok(())
}

async fn of_many_writers_one_wins(world: World) -> Outcome {
    let judge = world.moving_session().await?.ledger()?;
    let mut version = None;
    for round in 0_u8..3 {
        let mut writers = Vec::new();
        for who in 0_u8..6 {
            let ledger = world.moving_session().await?.ledger()?;
            writers.push(Task::start(async move { (who, ledger.write(version, &[round, who]).await) }));
        }
        let mut winners = Vec::new();
        for writer in writers {
            let (who, answer) = writer.await?;
            if let Written::Done(version) = answer? {
                winners.push(entry(version, &[round, who]));
            }
        }
        ensure!(winners.len() == 1, "{} writes at {version:?} were done", winners.len());
        judge.sign(world.moving_session().await?.env.owner_id(), b"looks").await?;
        let record = judge.read().await?;
        ensure!(record == winners.pop(), "another one won: {record:?}");
        version = record.map(|record| record.version);
    }
    Ok(())
}

async fn versions_never_return(world: World) -> Outcome {
    let session = world.moving_session().await?;
    let ledger = session.ledger()?;
    let mut seen = vec![done(ledger.write(None, b"a").await?)?];
    for value in [b"b", b"a", b"a", b"b", b"a"] {
        let version = done(ledger.write(seen.last().copied(), value).await?)?;
        ensure!(seen.iter().all(|earlier| *earlier < version), "version {version} after {seen:?}");
        let stale = ledger.write(seen.last().copied(), b"stale").await?;
        ensure!(stale == Written::Conflict, "a replaced version is current again: {stale:?}");
        seen.push(version);
    }
    Ok(())
}

async fn a_read_sees_what_was_written_before(world: World) -> Outcome {
    let (writer, reader) = (world.moving_session().await?, world.moving_session().await?);
    let (wrote, read) = (writer.ledger()?, reader.ledger()?);
    let id = reader.env.owner_id();
    ensure!(read.read().await?.is_none(), "there is no record yet");
    let values = [vec![], vec![b'x'; MAX_VALUE], (0..=u8::MAX).collect(), b"{\"a\": 1}\n".to_vec()];
    let mut version = None;
    for value in values {
        let written = done(wrote.write(version, &value).await?)?;
        version = Some(written);
        read.sign(id, b"looks").await?;
        let record = read.read().await?;
        ensure!(record == Some(Entry { version: written, value }), "the record is {record:?}");
    }
    Ok(())
}

async fn a_lost_answer_is_unknown(world: World) -> Outcome {
    let (network, session) = far(&world).await?;
    let ledger = session.ledger()?;
    let first = done(ledger.write(None, b"first").await?)?;
    for (fault, becomes) in [(Fault::LoseRequest, &b"first"[..]), (Fault::LoseReply, b"second")] {
        network.next(Operation::WriteRecord, fault);
        let lost = world.within(world.ttl(), "an answer", ledger.write(Some(first), b"second")).await?;
        let effect = lost.as_ref().err().map(leasehold_core::Error::effect);
        ensure!(effect == Some(Effect::Unknown), "{fault:?} returned {lost:?}");
        let record = ledger.read().await?.map(|record| record.value);
        ensure!(record.as_deref() == Some(becomes), "after {fault:?} the record is {record:?}");
    }
    let stale = ledger.write(Some(first), b"third").await?;
    ensure!(stale == Written::Conflict, "the write whose answer was lost was done: {stale:?}");
    Ok(())
}

async fn oversized_value_is_refused(world: World) -> Outcome {
    let session = world.moving_session().await?;
    let (ledger, id) = (session.ledger()?, session.env.owner_id());
    let version = done(ledger.write(None, b"small").await?)?;
    let large = vec![b'x'; MAX_VALUE + 1];
    let written = ledger.write(Some(version), &large).await.map(drop);
    let signed = ledger.sign(id, &large).await.map(drop);
    for (what, answer) in [("a record", written), ("an entry", signed)] {
        let said = answer.as_ref().err().map(|error| (error.kind().clone(), error.effect()));
        ensure!(said == Some((ErrorKind::Misuse, Effect::NotApplied)), "{what} too large: {answer:?}");
    }
    ledger.sign(id, &large[1..]).await?;
    let members = ledger.members().await?;
    ensure!(members == [member(id, &large[1..])], "the largest entry is not one: {} members", members.len());
    let record = ledger.read().await?;
    ensure!(record == Some(entry(version, b"small")), "the record is {record:?}");
    Ok(())
}

async fn an_entry_has_its_latest_value(world: World) -> Outcome {
    let session = world.moving_session().await?;
    let (ledger, id) = (session.ledger()?, session.env.owner_id());
    let first = ledger.sign(id, b"first").await?;
    let second = ledger.sign(id, b"second").await?;
    ensure!(second.id == first.id, "an entry that lives got another lease");
    ensure!(second.deadline >= first.deadline, "{second:?} after {first:?}");
    let members = ledger.members().await?;
    ensure!(members == [member(id, b"second")], "{members:?}");
    Ok(())
}

async fn unsigned_entry_is_removed(world: World) -> Outcome {
    let (a, b) = (world.moving_session().await?, world.moving_session().await?);
    let (here, there, leaves, stays) = (a.ledger()?, b.ledger()?, a.env.owner_id(), b.env.owner_id());
    here.sign(leaves, b"leaves").await?;
    there.sign(stays, b"stays").await?;
    for _ in 0..2 {
        here.unsign(leaves).await?;
        there.sign(stays, b"stays").await?;
        for ledger in [&here, &there] {
            let members = ledger.members().await?;
            ensure!(members == [member(stays, b"stays")], "{members:?}");
        }
    }
    here.sign(leaves, b"is back").await?;
    ensure!(here.members().await?.len() == 2, "a participant that left cannot return");
    Ok(())
}

async fn members_shows_whoever_signed_before(world: World) -> Outcome {
    let admin = world.moving_session().await?;
    let looks = admin.ledger()?;
    let (mut version, mut signed) = (None, Vec::new());
    for count in 1..=4 {
        let session = world.moving_session().await?;
        let id = session.env.owner_id();
        session.ledger()?.sign(id, b"is here").await?;
        signed.push((session, member(id, b"is here")));
        version = Some(done(looks.write(version, b"moves").await?)?);
        let members = looks.members().await?;
        let missing = signed.iter().filter(|(_, member)| !members.contains(member)).count();
        ensure!(missing == 0 && members.len() == count, "{missing} of {count} are not among {members:?}");
    }
    Ok(())
}

async fn a_signature_counts_from_sending(world: World) -> Outcome {
    let (network, session) = far(&world).await?;
    let (ledger, id) = (session.ledger()?, session.env.owner_id());
    let slow = Timing::for_ttl(world.ttl()).op_timeout / 3;
    for _ in 0..2 {
        network.next(Operation::Sign, Fault::DelayReply(slow));
        let sent_at = world.now();
        let lease = ledger.sign(id, b"is here").await?;
        // A real store receives the request a little later.
        let latest = sent_at + slow / 2 + (lease.ttl - world.margin_of(lease.ttl));
        ensure!(lease.deadline <= Deadline::At(latest), "{lease:?}, sent at {sent_at:?}");
    }
    Ok(())
}

async fn entries_end_with_their_lease(world: World) -> Outcome {
    let onlooker = world.moving_session().await?;
    let (looks, own) = (onlooker.ledger()?, onlooker.env.owner_id());
    let (id, lease) = dead_member(&world).await?;
    let over = match lease.deadline {
        Deadline::At(deadline) => deadline + world.margin_of(lease.ttl) + (world.takeover() - world.ttl()),
        Deadline::Never => world.now(),
    };
    loop {
        // Whoever looks has written.
        looks.sign(own, b"looks").await?;
        if looks.members().await?.iter().all(|member| member.id != id) {
            break;
        }
        ensure!(world.now() <= over + world.soon(), "the entry of a dead member stays: {lease:?}");
        world.pass(world.ttl() / 30).await;
    }
    ensure!(lease.deadline.has_passed(world.now()), "an entry ended before its deadline: {lease:?}");
    lapses_and_begins_anew(&world, onlooker).await
}

/// A participant that lapsed gets another lease with its next entry.
async fn lapses_and_begins_anew(world: &World, session: Session) -> Outcome {
    let (ledger, id) = (session.ledger()?, session.env.owner_id());
    let first: Lease = ledger.sign(id, b"sleeps").await?;
    if first.scope == LeaseScope::Session {
        // The session's lease, which ends with all that it has.
        return Ok(());
    }
    world.pass(world.takeover()).await;
    let second = ledger.sign(id, b"is back").await?;
    ensure!(second.id != first.id, "an entry that had lapsed has its old lease");
    Ok(())
}

async fn move_adds_no_token_base(world: World) -> Outcome {
    let base = 1 << 40;
    let before = world.session().await?;
    let first = before.take("a").await?;
    before.backend.release(&first).await?;
    before.backend.raise_token_base(before.backend.token_base().await?.base + base).await?;
    let (plain, moving) = (world.session().await?, world.moving_session().await?);
    let with = plain.take("a").await?;
    ensure!(with.counter >= first.counter + base, "{} after a base of {base}", with.counter);
    plain.backend.release(&with).await?;
    let without = moving.take("a").await?;
    let own = first.counter < without.counter && without.counter < with.counter;
    ensure!(own, "{} is not the store's own: before {first:?}, with a base {with:?}", without.counter);
    let told = moving.backend.token_base().await?;
    ensure!(told.base >= base, "{told:?} after a base of {base}");
    moving.backend.release(&without).await?;
    Ok(())
}

async fn moving_process_is_not_counted(world: World) -> Outcome {
    let counts = world.moving_session().await?;
    // Some stores cannot tell that there is no other session.
    let others = async || Outcome::Ok(counts.backend.token_base().await?.sessions.unwrap_or(0));
    let before = others().await?;
    let _moving = world.moving_session().await?;
    let after = others().await?;
    ensure!(after == before, "{after} sessions, before another one moved {before}");
    let _plain = world.session().await?;
    let after = others().await?;
    ensure!(after == before + 1, "{after} sessions, before one that does not move {before}");
    Ok(())
}

async fn a_record_bars_plain_sessions(world: World) -> Outcome {
    let (plain, moving) = (world.session().await?, world.moving_session().await?);
    let ledger = moving.ledger()?;
    let stage = |side: Side, phase: Phase| Stage { side, phase }.line();
    let mut version = None;
    for (record, refused_as) in [
        (stage(Side::Old, Phase::Old), None),
        (stage(Side::Old, Phase::Shadow), Some(ErrorKind::Misuse)),
        (stage(Side::New, Phase::Drain), Some(ErrorKind::Misuse)),
        (stage(Side::New, Phase::New), None),
        (format!("{} old old", FORMAT + 1), Some(ErrorKind::Unsupported)),
        ("no record".to_owned(), Some(ErrorKind::Protocol)),
    ] {
        version = Some(done(ledger.write(version, record.as_bytes()).await?)?);
        let opened = world.config().open(moving.env.clone()).await;
        ensure!(opened.is_ok(), "{record} refuses a session of the move: {opened:?}");
        let opened = world.config().open(plain.env.clone()).await;
        let refusal = opened.as_ref().err().map(|error| error.kind().clone());
        ensure!(refusal == refused_as, "with {record} a session outside the move returned {opened:?}");
    }
    Ok(())
}

/// A session beyond a network.
async fn far(world: &World) -> Outcome<(Network, Session)> {
    let network = Network::new(world.crossing());
    let session = world.behind(network.wrap()).moving_session().await?;
    Ok((network, session))
}

fn done(written: Written) -> Outcome<u64> {
    let Written::Done(version) = written else {
        return Err(Failure::new("a write at the current version was refused"));
    };
    Ok(version)
}

fn entry(version: u64, value: &[u8]) -> Entry {
    Entry { version, value: value.to_vec() }
}

fn member(id: OwnerId, value: &[u8]) -> Participant {
    Participant { id, value: value.to_vec() }
}
