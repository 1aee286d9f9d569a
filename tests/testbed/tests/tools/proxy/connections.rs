//! What can be done to connections as a whole, and what is known of them.

use std::io::ErrorKind;

use testbed::{Direction::*, Mode, Port, Proxy};
use tokio::{io::AsyncWriteExt, net::TcpStream};

use super::rig::{FAREWELL, Rig, hear, hear_end, never, say, soon};

/// Both sides see a reset, through a blackhole, too, and the held reply never comes.
#[tokio::test]
async fn reset_breaks_every_connection_on_both_sides() {
    let rig = Rig::start().await;
    let mut clients = [rig.client().await, rig.client().await];
    rig.proxy.set(ServerToClient, Mode::Hold).await;
    say(&mut clients[0], "request\n").await;
    soon(rig.proxy.held(ServerToClient, 1)).await;
    rig.proxy.set(ClientToServer, Mode::Blackhole).await;

    rig.proxy.reset().await;
    assert_eq!(rig.proxy.connections(), 0);
    assert_eq!(rig.proxy.traffic(ServerToClient).held, 0);
    for client in &mut clients {
        hear_end(client).await.unwrap_err();
    }
    let seen = rig.server_saw(|seen| seen.resets == 2).await;
    assert_eq!((&seen.bytes[..], seen.ends), (&b"request\n"[..], 0));
}

/// testbed.proxy-1 for actions, with tasks truly in parallel.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_connection_is_left_once_an_action_returns() {
    let rig = Rig::start().await;
    for _round in 0..100 {
        let _clients = [rig.client().await, rig.client().await];
        rig.proxy.reset().await;
        assert_eq!(rig.proxy.connections(), 0);

        let _clients = [rig.client().await, rig.client().await];
        rig.proxy.close().await;
        assert_eq!(rig.proxy.connections(), 0);
    }
}

/// Both sides see an end in order, and new connections are served.
#[tokio::test]
async fn close_ends_every_connection_in_order() {
    let rig = Rig::start().await;
    let mut client = rig.client().await;
    say(&mut client, "request\n").await;
    hear(&mut client, "request\n").await;

    rig.proxy.close().await;
    assert_eq!(rig.proxy.connections(), 0);
    hear_end(&mut client).await.unwrap();
    rig.server_saw(|seen| seen.ends == 1 && seen.resets == 0).await;

    let mut client = rig.client().await;
    say(&mut client, "again\n").await;
    hear(&mut client, "again\n").await;
}

/// A closed door refuses as a dead server does and disturbs nobody inside; it opens on the same
/// port. Closing or opening twice is no different.
#[tokio::test]
async fn a_closed_door_refuses_new_connections_only() {
    let rig = Rig::start().await;
    let mut inside = rig.client().await;
    let mut newcomers = Vec::new();

    for _round in 0..3 {
        for _twice in 0..2 {
            rig.proxy.refuse_new().await.unwrap();
            let refused = TcpStream::connect(rig.proxy.addr()).await.unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
        }
        say(&mut inside, "still here\n").await;
        hear(&mut inside, "still here\n").await;

        for _twice in 0..2 {
            rig.proxy.accept_new().await.unwrap();
            let mut client = rig.client().await;
            say(&mut client, "new here\n").await;
            hear(&mut client, "new here\n").await;
            newcomers.push(client);
        }
    }
}

/// Connections are counted as they come and go by themselves; the end travels in both directions.
#[tokio::test]
async fn connections_are_counted_while_they_live() {
    let rig = Rig::start().await;
    assert_eq!(rig.proxy.connections(), 0);
    soon(rig.proxy.idle()).await;

    let (mut first, second) = (rig.client().await, rig.client().await);
    assert_eq!(rig.proxy.connections(), 2);
    never(rig.proxy.connected(3)).await;

    drop(second);
    rig.server_saw(|seen| seen.ends == 1).await;
    first.shutdown().await.unwrap();
    hear(&mut first, FAREWELL).await;
    hear_end(&mut first).await.unwrap();
    soon(rig.proxy.idle()).await;
}

/// A proxy does not soften what happens to its neighbours.
#[tokio::test]
async fn a_reset_by_the_client_reaches_the_server() {
    let rig = Rig::start().await;
    let client = rig.client().await;

    client.set_zero_linger().unwrap();
    drop(client);
    rig.server_saw(|seen| seen.resets == 1).await;
    soon(rig.proxy.idle()).await;
}

/// Nor does it pretend that there is a server.
#[tokio::test]
async fn a_client_is_reset_when_the_server_refuses() {
    let nobody = Port::reserve().unwrap();
    let proxy = Proxy::start(nobody.addr()).unwrap();

    let mut client = TcpStream::connect(proxy.addr()).await.unwrap();
    hear_end(&mut client).await.unwrap_err();
    assert_eq!(proxy.connections(), 0);
}

/// testbed.proxy-4: nothing of a dropped proxy stays behind.
#[tokio::test]
async fn dropping_the_proxy_ends_its_connections() {
    let rig = Rig::start().await;
    let mut client = rig.client().await;

    let Rig { proxy, .. } = rig;
    drop(proxy);
    hear_end(&mut client).await.unwrap();
}
