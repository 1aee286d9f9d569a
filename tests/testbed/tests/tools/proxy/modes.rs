//! What each mode does to frames, and that it does so from the moment it is set.

use std::time::Duration;

use testbed::{Direction, Direction::*, Mode};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::Instant,
};

use super::setup::{FAREWELL, Setup, hear, never, say, soon};

/// testbed.proxy-2 and the counters, by many times more bytes than the proxy holds.
#[tokio::test]
async fn pass_carries_everything_unchanged_and_counts_it() {
    let setup = Setup::start().await;
    let sent: Vec<u8> = (0..2_000_000_u32).map(|i| (i % 251) as u8).collect();
    let (mut from, mut to) = setup.client().await.into_split();

    let mut heard = vec![0; sent.len()];
    let (wrote, read) = soon(async { tokio::join!(to.write_all(&sent), from.read_exact(&mut heard)) }).await;
    wrote.unwrap();
    read.unwrap();
    assert!(heard == sent, "the bytes differ");
    for direction in Direction::BOTH {
        soon(setup.proxy.forwarded(direction, sent.len() as u64)).await;
        assert_eq!(setup.proxy.traffic(direction).forwarded, sent.len() as u64);
    }
}

/// Not before its time, however long the test itself is kept waiting.
#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "of the proxy's own clock")]
async fn delay_keeps_each_frame_for_its_time() {
    const DELAY: Duration = Duration::from_millis(100);
    for direction in Direction::BOTH {
        let setup = Setup::start().await;
        let mut client = setup.client().await;
        setup.proxy.set(direction, Mode::delay(DELAY)).await;

        let begun = Instant::now();
        say(&mut client, "late\n").await;
        hear(&mut client, "late\n").await;
        assert!(begun.elapsed() >= DELAY, "after {:?}", begun.elapsed());
    }
}

/// Jitter never reorders: this is still TCP.
#[tokio::test]
async fn delayed_frames_keep_their_order() {
    let setup = Setup::start_lines().await;
    let mut client = setup.client().await;
    let (base, jitter, seed) = (Duration::ZERO, Duration::from_millis(20), 1);
    setup.proxy.set_both(Mode::Delay { base, jitter, seed }).await;

    let lines: String = (0..50).map(|i| format!("line {i}\n")).collect();
    say(&mut client, &lines).await;
    hear(&mut client, &lines).await;
}

/// The request does not arrive, and does once healed. Replies pass meanwhile.
#[tokio::test]
async fn a_blackhole_swallows_requests_until_healed() {
    let setup = Setup::start().await;
    let mut client = setup.client().await;
    setup.proxy.set(ServerToClient, Mode::Hold).await;
    say(&mut client, "before\n").await;
    soon(setup.proxy.held(ServerToClient, 1)).await;

    setup.proxy.set(ClientToServer, Mode::Blackhole).await;
    say(&mut client, "after\n").await;
    client.shutdown().await.unwrap();
    never(setup.server_saw(|seen| seen.bytes != b"before\n" || seen.ends > 0)).await;
    setup.proxy.set(ServerToClient, Mode::Pass).await;
    hear(&mut client, "before\n").await;

    setup.proxy.set(ClientToServer, Mode::Pass).await;
    hear(&mut client, &format!("after\n{FAREWELL}")).await;
}

/// `held` proves that the reply is in flight; `release_held` forwards the frames that are held, and no later
/// ones.
#[tokio::test]
async fn hold_keeps_replies_until_each_is_released() {
    let setup = Setup::start().await;
    let mut client = setup.client().await;
    setup.proxy.set(ServerToClient, Mode::Hold).await;

    let mut forwarded = 0;
    for request in ["one\n", "and two\n"] {
        say(&mut client, request).await;
        soon(setup.proxy.held(ServerToClient, 1)).await;
        assert!(setup.seen().bytes.ends_with(request.as_bytes()));
        assert_eq!(setup.proxy.traffic(ServerToClient).forwarded, forwarded);

        setup.proxy.release_held(ServerToClient).await;
        assert_eq!(setup.proxy.traffic(ServerToClient).held, 0);
        hear(&mut client, request).await;
        forwarded += request.len() as u64;
    }
}

/// The end of the stream is a reply as well, and can be held behind frames that go.
#[tokio::test]
async fn hold_keeps_the_end_of_the_stream() {
    let setup = Setup::start().await;
    let mut client = setup.client().await;
    setup.proxy.set(ClientToServer, Mode::Hold).await;

    say(&mut client, "held\n").await;
    client.shutdown().await.unwrap();
    soon(setup.proxy.held(ClientToServer, 1)).await;
    setup.proxy.set(ClientToServer, Mode::drop_frames(<[u8]>::is_empty)).await;
    hear(&mut client, "held\n").await;
    never(setup.server_saw(|seen| seen.ends > 0)).await;
    setup.proxy.set(ClientToServer, Mode::Pass).await;
    hear(&mut client, FAREWELL).await;
}

/// A held reply can still come late, or be lost with the connection intact.
#[tokio::test]
async fn ended_hold_is_judged_by_the_next_mode() {
    let setup = Setup::start().await;
    let mut client = setup.client().await;
    let hold = async |client: &mut TcpStream, reply| {
        setup.proxy.set(ServerToClient, Mode::Hold).await;
        say(client, reply).await;
        soon(setup.proxy.held(ServerToClient, 1)).await;
    };

    hold(&mut client, "late\n").await;
    let late = Mode::delay(Duration::from_millis(1));
    setup.proxy.set(ServerToClient, late).await;
    hear(&mut client, "late\n").await;

    hold(&mut client, "lost\n").await;
    let lost = Mode::drop_frames(|_| true);
    setup.proxy.set(ServerToClient, lost).await;
    soon(setup.proxy.dropped(ServerToClient, 1)).await;

    setup.proxy.set(ServerToClient, Mode::Pass).await;
    say(&mut client, "found\n").await;
    hear(&mut client, "found\n").await;
}

/// testbed.proxy-3: a held direction fills up and then reads no more, and nothing of it is lost.
#[tokio::test]
async fn a_held_direction_stops_reading() {
    const LINE: &str = "fifteen bytes.\n";
    let setup = Setup::start_lines().await;
    let (mut from, mut to) = setup.client().await.into_split();
    setup.proxy.set(ClientToServer, Mode::Hold).await;

    let sent = LINE.repeat(100_000).into_bytes();
    let mut heard = vec![0; sent.len()];
    let steps = async {
        soon(setup.proxy.held(ClientToServer, 64 * 1024 / LINE.len())).await;
        never(setup.proxy.held(ClientToServer, 256 * 1024 / LINE.len())).await;
        setup.proxy.set(ClientToServer, Mode::Pass).await;
    };
    let (wrote, read, ()) =
        soon(async { tokio::join!(to.write_all(&sent), from.read_exact(&mut heard), steps) }).await;
    wrote.unwrap();
    read.unwrap();
    assert!(heard == sent, "the bytes differ");
}

/// Frames are the framer's, though they come in one read; only those that are picked vanish.
#[tokio::test]
async fn dropped_frames_vanish_from_among_the_others() {
    let setup = Setup::start_lines().await;
    let mut client = setup.client().await;
    setup.proxy.set(ClientToServer, Mode::drop_frames(|line| line.starts_with(b"DEL "))).await;

    say(&mut client, "SET a\nDEL a\nGET a\nDEL b\nend\n").await;
    hear(&mut client, "SET a\nGET a\nend\n").await;
    assert_eq!(setup.proxy.traffic(ClientToServer).dropped, 2);
}

/// A predicate never sees half a frame, and a receiver gets none, unless the stream ends in it.
#[tokio::test]
async fn a_frame_is_carried_whole() {
    let setup = Setup::start_lines().await;
    let mut client = setup.client().await;

    say(&mut client, "half").await;
    never(setup.proxy.forwarded(ClientToServer, 1)).await;
    say(&mut client, " and half\nrest").await;
    hear(&mut client, "half and half\n").await;

    client.shutdown().await.unwrap();
    hear(&mut client, &format!("rest{FAREWELL}")).await;
}

/// One bit of one frame, and the rest is intact, on the same connection.
#[tokio::test]
async fn corrupt_next_flips_one_bit_of_one_frame() {
    let setup = Setup::start_lines().await;
    let mut client = setup.client().await;
    setup.proxy.set(ClientToServer, Mode::corrupt_next(42)).await;

    say(&mut client, "first\nother\n").await;
    let seen = setup.server_saw(|seen| seen.bytes.len() == 12).await.bytes;
    let flipped = seen.iter().zip(b"first\nother\n").map(|(saw, sent)| (saw ^ sent).count_ones());
    assert_eq!(flipped.sum::<u32>(), 1);
    assert_eq!(seen[6..], *b"other\n");
}

/// testbed.proxy-1, on connections that exist and on one that comes later, with tasks truly in parallel.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_mode_is_in_force_on_every_connection_once_set_returns() {
    let setup = Setup::start().await;
    let mut clients: Vec<TcpStream> = Vec::new();

    for round in 0..50 {
        setup.proxy.set(ServerToClient, Mode::Hold).await;
        clients.push(setup.client().await);
        let before = setup.proxy.traffic(ServerToClient).forwarded;
        for client in &mut clients {
            say(client, "word\n").await;
        }
        soon(setup.proxy.held(ServerToClient, clients.len())).await;
        assert_eq!(setup.proxy.traffic(ServerToClient).forwarded, before, "round {round}");

        setup.proxy.set(ServerToClient, Mode::Pass).await;
        for client in &mut clients {
            hear(client, "word\n").await;
        }
        // The counter follows the bytes.
        soon(setup.proxy.forwarded(ServerToClient, before + 5 * clients.len() as u64)).await;
    }
}
