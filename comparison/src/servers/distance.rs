//! A network between clients and a server: everything takes longer, both ways.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use contender_protocol::now;
use testbed::{Mode, Proxy};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::error::{Error, Result};
use crate::figures::{Spread, Times};

const DOING: &str = "keeping clients away";

/// A way to a server on which a round trip takes `latency` longer.
pub(super) async fn way(server: SocketAddr, latency: Duration) -> Result<Proxy> {
    let way = Proxy::start(server).map_err(Error::during(DOING))?;
    way.set_both(Mode::delay(latency / 2)).await;
    Ok(way)
}

/// How long a round trip takes there, of a server that answers at once: what is on the way wakes up at both ends.
pub(crate) async fn measured(latency: Duration) -> Result<Spread> {
    let listener = TcpListener::bind("127.0.0.1:0").await.map_err(Error::during(DOING))?;
    let way = way(listener.local_addr().map_err(Error::during(DOING))?, latency).await?;
    let mut answering = JoinSet::new();
    answering.spawn(async move {
        let (mut client, _) = listener.accept().await?;
        client.set_nodelay(true)?;
        let mut byte = [0];
        while client.read(&mut byte).await? > 0 {
            client.write_all(&byte).await?;
        }
        io::Result::Ok(())
    });
    let mut client = TcpStream::connect(way.addr()).await.map_err(Error::during(DOING))?;
    client.set_nodelay(true).map_err(Error::during(DOING))?;
    let (mut times, mut byte) = (Times::new(), [1]);
    for _ in 0..ROUND_TRIPS {
        let before = now();
        client.write_all(&byte).await.map_err(Error::during(DOING))?;
        client.read_exact(&mut byte).await.map_err(Error::during(DOING))?;
        times.record(now() - before);
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
        for distance in [Duration::from_micros(300), Duration::from_millis(6)] {
            let away = measured(distance).await.expect("there is a network");
            assert!(away.p50 >= Some(distance.as_secs_f64() * 1e6), "{away:?}");
        }
    }
}
