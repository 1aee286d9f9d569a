//! What can be done to connections as a whole, and what is known of them.

use std::io::ErrorKind;

use testbed::{Direction::*, Mode};
use tokio::net::TcpStream;

use super::setup::{Setup, hear, hear_end, say, soon};

/// Both sides see a reset, through a blackhole, too, and the held reply never comes.
#[tokio::test]
async fn reset_breaks_every_connection_on_both_sides() {
    let setup = Setup::start().await;
    let mut clients = [setup.client().await, setup.client().await];
    setup.proxy.set(ServerToClient, Mode::Hold).await;
    say(&mut clients[0], "request\n").await;
    soon(setup.proxy.held(ServerToClient, 1)).await;
    setup.proxy.set(ClientToServer, Mode::Blackhole).await;

    setup.proxy.reset().await;
    assert_eq!(setup.proxy.connections(), 0);
    assert_eq!(setup.proxy.traffic(ServerToClient).held, 0);
    for client in &mut clients {
        hear_end(client).await.unwrap_err();
    }
    let seen = setup.server_saw(|seen| seen.resets == 2).await;
    assert_eq!((&seen.bytes[..], seen.ends), (&b"request\n"[..], 0));
}

/// Live connections are reset, and later ones reach the other server.
#[tokio::test]
async fn address_leads_to_another_server() {
    let (setup, other) = (Setup::start().await, Setup::start().await);
    let mut before = setup.client().await;
    setup.proxy.lead_to(other.proxy.addr()).await;
    hear_end(&mut before).await.unwrap_err();
    let mut after = setup.client().await;
    say(&mut after, "hello\n").await;
    other.server_saw(|seen| seen.bytes == b"hello\n").await;
}

/// testbed.proxy-1 for actions, with tasks truly in parallel.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_connection_is_left_once_an_action_returns() {
    let setup = Setup::start().await;
    for _round in 0..100 {
        let _clients = [setup.client().await, setup.client().await];
        setup.proxy.reset().await;
        assert_eq!(setup.proxy.connections(), 0);

        let _clients = [setup.client().await, setup.client().await];
        setup.proxy.close().await;
        assert_eq!(setup.proxy.connections(), 0);
    }
}

/// A closed door refuses as a dead server does and leaves live connections alone; it opens on the same
/// port. Closing or opening twice is no different.
#[tokio::test]
async fn a_closed_door_refuses_new_connections_only() {
    let setup = Setup::start().await;
    let mut inside = setup.client().await;
    let mut newcomers = Vec::new();

    for _round in 0..3 {
        for _twice in 0..2 {
            setup.proxy.refuse_new().await.unwrap();
            let refused = TcpStream::connect(setup.proxy.addr()).await.unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
        }
        say(&mut inside, "still here\n").await;
        hear(&mut inside, "still here\n").await;

        for _twice in 0..2 {
            setup.proxy.accept_new().await.unwrap();
            let mut client = setup.client().await;
            say(&mut client, "new here\n").await;
            hear(&mut client, "new here\n").await;
            newcomers.push(client);
        }
    }
}

/// testbed.proxy-4: nothing of a dropped proxy stays behind.
#[tokio::test]
async fn dropping_the_proxy_ends_its_connections() {
    let setup = Setup::start().await;
    let mut client = setup.client().await;

    let Setup { proxy, .. } = setup;
    drop(proxy);
    hear_end(&mut client).await.unwrap();
}
