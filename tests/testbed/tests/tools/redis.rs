//! What the tests of the Redis store rely on: that the servers are what their settings say.

use std::{io, process::Command, time::Duration};

use testbed::{
    Certificates,
    redis::{Reply, Settings, WallClock, valkey},
};

fn ok() -> Reply {
    Reply::Simple("OK".to_owned())
}

fn bulk(text: &str) -> Reply {
    Reply::Bulk(text.as_bytes().to_owned())
}

/// A server that has started answers, and its unix socket is there.
#[tokio::test]
async fn a_started_server_answers() -> io::Result<()> {
    let server = Settings::new().start().await?;
    assert_eq!(server.command(&["SET", "k", "v w\r\n"]).await?, ok());
    assert_eq!(server.command(&["GET", "k"]).await?, bulk("v w\r\n"));
    assert_eq!(server.command(&["GET", "none"]).await?, Reply::Nil);
    assert!(server.command(&["NONSENSE"]).await?.text().unwrap().starts_with("ERR"));
    assert!(server.socket().exists());
    Ok(())
}

/// What is counted is what was called, by scripts as well.
#[tokio::test]
async fn calls_are_counted() -> io::Result<()> {
    let server = Settings::new().start().await?;
    server.command(&["CONFIG", "RESETSTAT"]).await?;
    for _ in 0..3 {
        server.command(&["EVAL", "return redis.call('GET', KEYS[1])", "1", "k"]).await?;
    }
    let calls = server.calls().await?;
    assert_eq!((calls["eval"], calls["get"]), (3, 3));
    Ok(())
}

/// A kill leaves what was written to the disk; an empty start leaves nothing.
#[tokio::test]
async fn data_outlive_a_kill_only_on_the_disk() -> io::Result<()> {
    for kept in [true, false] {
        let settings = if kept { Settings::new().append_only() } else { Settings::new() };
        let mut server = settings.start().await?;
        server.command(&["SET", "k", "v"]).await?;
        server.kill().await?;
        assert!(server.client().await.is_err());

        server.start_again().await?;
        let found = server.command(&["GET", "k"]).await?;
        assert_eq!(found, if kept { bulk("v") } else { Reply::Nil });

        server.kill().await?;
        server.start_empty().await?;
        assert_eq!(server.command(&["GET", "k"]).await?, Reply::Nil);
    }
    Ok(())
}

/// A replica has what its primary has, and refuses writes until it is promoted.
#[tokio::test]
async fn a_replica_follows() -> io::Result<()> {
    let primary = Settings::new().start().await?;
    primary.command(&["SET", "k", "v"]).await?;
    let replica = Settings::new().replica_of(primary.addr()).start().await?;
    replica.follows().await?;
    assert_eq!(replica.command(&["GET", "k"]).await?, bulk("v"));
    let refused = replica.command(&["SET", "k", "w"]).await?;
    assert!(refused.text().unwrap().starts_with("READONLY"), "{refused:?}");
    assert_eq!(replica.command(&["REPLICAOF", "NO", "ONE"]).await?, ok());
    assert_eq!(replica.command(&["SET", "k", "w"]).await?, ok());
    Ok(())
}

/// The certificates are what the server and a strict client want.
#[tokio::test]
async fn tls_is_spoken_with_the_certificates() -> io::Result<()> {
    let certificates = Certificates::new("billing")?;
    let server = Settings::new().tls(&certificates).start().await?;
    let port = server.tls_addr().unwrap().port().to_string();
    let (certificate, key) = certificates.client();
    let mut client = Command::new("redis-cli");
    client.args(["-h", "localhost", "-p", &port, "--tls", "--sni", "localhost", "--cacert"]);
    client.arg(certificates.authority()).arg("--cert").arg(certificate).arg("--key").arg(key).arg("PING");
    let answer = client.output()?;
    assert_eq!(String::from_utf8_lossy(&answer.stdout), "PONG\n", "{answer:?}");
    Ok(())
}

/// A step of the clock is seen at once, forwards and backwards, and ends what it passes.
#[tokio::test]
async fn a_wall_clock_steps() -> io::Result<()> {
    let clock = WallClock::new()?;
    let server = Settings::new().clock(&clock).start().await?;
    let now = async || -> io::Result<i64> {
        let time = server.command(&["TIME"]).await?.elements();
        Ok(time[0].text().unwrap().parse().unwrap())
    };
    let before = now().await?;
    server.command(&["SET", "k", "v", "PX", "60000"]).await?;
    clock.shift_by(-3600)?;
    assert!(now().await? < before - 3500);
    assert_eq!(server.command(&["GET", "k"]).await?, bulk("v"));
    clock.shift_by(3600)?;
    assert!(now().await? > before + 3500);
    assert_eq!(server.command(&["GET", "k"]).await?, Reply::Nil);
    Ok(())
}

/// A full server refuses, or evicts.
#[tokio::test]
async fn memory_is_bounded() -> io::Result<()> {
    let full = Settings::new().memory(1, "noeviction").start().await?;
    assert!(full.command(&["SET", "k", "v"]).await?.text().unwrap().starts_with("OOM"));
    Ok(())
}

/// A stopped server accepts and says nothing.
#[tokio::test]
async fn a_stopped_server_is_silent() -> io::Result<()> {
    let server = Settings::new().start().await?;
    let mut client = server.client().await?;
    server.process().stop().await.map_err(io::Error::other)?;
    let silent = tokio::time::timeout(Duration::from_millis(200), client.command(&["PING"])).await;
    assert!(silent.is_err());
    server.process().cont().map_err(io::Error::other)?;
    assert_eq!(client.reply().await?, Reply::Simple("PONG".to_owned()));
    Ok(())
}

/// Valkey starts like Redis, where there is one, and says what it is; it speaks no TLS.
#[tokio::test]
async fn a_valkey_server_starts() -> io::Result<()> {
    let Some(program) = valkey() else {
        testbed::peers::skip("Valkey", "it is not in target/tools");
        return Ok(());
    };
    let mut server = Settings::new().program(&program).append_only().start().await?;
    assert_eq!(server.info("server").await?["server_name"].trim(), "valkey");
    server.command(&["SET", "k", "v"]).await?;
    server.kill().await?;
    server.start_again().await?;
    assert_eq!(server.command(&["GET", "k"]).await?, bulk("v"));
    let certificates = Certificates::new("billing")?;
    let refused = Settings::new().program(&program).tls(&certificates).start().await.unwrap_err();
    assert!(refused.to_string().contains("tls"), "{refused}");
    Ok(())
}
