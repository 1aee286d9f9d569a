//! A network between clients and a server: everything takes longer, both ways.

use std::net::SocketAddr;
use std::time::Duration;

use testbed::{Mode, Proxy};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::error::{Error, Result};
use crate::figures::{Spread, Times};

const DOING: &str = "keeping clients away";

/// What stands between clients and `server`.
pub(super) async fn between(server: SocketAddr, latency: Duration) -> Result<Proxy> {
    let proxy = Proxy::start(server).map_err(Error::during(DOING))?;
    if !latency.is_zero() {
        proxy.set_both(Mode::delay(latency / 2)).await;
    }
    Ok(proxy)
}

/// How long a round trip takes there, of a server that answers at once: timers are coarser than a network.
pub(crate) async fn measured(latency: Duration) -> Result<Spread> {
    let listener = TcpListener::bind("127.0.0.1:0").await.map_err(Error::during(DOING))?;
    let proxy = between(listener.local_addr().map_err(Error::during(DOING))?, latency).await?;
    let mut answering = JoinSet::new();
    answering.spawn(async move {
        let (mut client, _) = listener.accept().await?;
        client.set_nodelay(true)?;
        let mut byte = [0];
        while client.read(&mut byte).await? > 0 {
            client.write_all(&byte).await?;
        }
        std::io::Result::Ok(())
    });
    let mut client = TcpStream::connect(proxy.addr()).await.map_err(Error::during(DOING))?;
    client.set_nodelay(true).map_err(Error::during(DOING))?;
    let (mut times, mut byte) = (Times::new(), [1]);
    for _ in 0..ROUND_TRIPS {
        let before = contender_protocol::now();
        client.write_all(&byte).await.map_err(Error::during(DOING))?;
        client.read_exact(&mut byte).await.map_err(Error::during(DOING))?;
        times.record(contender_protocol::now() - before);
    }
    Ok(times.spread())
}

const ROUND_TRIPS: usize = 50;

#[cfg(test)]
mod tests {
    use super::*;

    /// Nothing comes sooner than it should.
    #[tokio::test]
    async fn a_round_trip_takes_the_distance_at_least() {
        let away = measured(Duration::from_millis(6)).await.expect("there is a network");
        assert!(away.p50 >= Some(6_000.0), "{away:?}");
    }
}
