//! A network between clients and a server: everything takes longer, both ways.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use contender_protocol::now;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::timer::Timer;
use crate::error::{Error, Result};
use crate::figures::{Spread, Times};

const DOING: &str = "keeping clients away";

/// A long way to a server, for as many as come. It ends with its connections when it is dropped.
#[derive(Debug)]
pub(super) struct Way {
    addr: SocketAddr,
    _connections: JoinSet<()>,
}

impl Way {
    /// On which a round trip takes `latency` longer.
    pub(super) async fn to(server: SocketAddr, latency: Duration) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.map_err(Error::during(DOING))?;
        let addr = listener.local_addr().map_err(Error::during(DOING))?;
        let half = u64::try_from(latency.as_nanos() / 2).unwrap_or(u64::MAX);
        let mut connections = JoinSet::new();
        connections.spawn(accept(listener, server, half));
        Ok(Self { addr, _connections: connections })
    }

    /// Where clients connect.
    pub(super) fn addr(&self) -> SocketAddr {
        self.addr
    }
}

async fn accept(listener: TcpListener, server: SocketAddr, half: u64) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((client, _)) = accepted else { return };
                connections.spawn(carry(client, server, half));
            }
            Some(_ended) = connections.join_next() => {}
        }
    }
}

/// One side that breaks ends the other.
async fn carry(client: TcpStream, server: SocketAddr, half: u64) -> io::Result<()> {
    let server = TcpStream::connect(server).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
    tokio::try_join!(late(from_client, to_server, half), late(from_server, to_client, half))?;
    Ok(())
}

/// What comes goes on so much later, in nanoseconds. Delays overlap as on a long line, and do not add up.
async fn late(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, half: u64) -> io::Result<()> {
    let (comes, mut goes) = mpsc::channel(ON_THE_WAY);
    let mut timer = Timer::new()?;
    let coming = async move {
        loop {
            let mut bytes = Vec::with_capacity(CHUNK);
            if from.read_buf(&mut bytes).await? == 0 {
                return io::Result::Ok(());
            }
            // Whoever takes them off the line ends after us.
            let _taken = comes.send((now() + half, bytes)).await;
        }
    };
    let going = async move {
        while let Some((at, bytes)) = goes.recv().await {
            timer.until(at).await?;
            to.write_all(&bytes).await?;
        }
        to.shutdown().await
    };
    tokio::try_join!(coming, going).map(drop)
}

/// How long a round trip takes there, of a server that answers at once: what is on the way wakes up at both ends.
pub(crate) async fn measured(latency: Duration) -> Result<Spread> {
    let listener = TcpListener::bind("127.0.0.1:0").await.map_err(Error::during(DOING))?;
    let way = Way::to(listener.local_addr().map_err(Error::during(DOING))?, latency).await?;
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

/// How many pieces are on their way at most, and how large one is.
const ON_THE_WAY: usize = 64;
const CHUNK: usize = 16 * 1024;

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

    /// What was sent arrives whole, in order, and with its end, however much of it is on the way.
    #[tokio::test]
    async fn nothing_is_lost_on_the_way() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("there is a port");
        let server = listener.local_addr().expect("it has one");
        let way = Way::to(server, Duration::from_millis(1)).await.expect("there is a way");
        let mut client = TcpStream::connect(way.addr()).await.expect("it accepts");
        let sent: Vec<u8> = (0..=u8::MAX).flat_map(|piece| [piece; CHUNK]).collect();
        let (mut server, _) = listener.accept().await.expect("it leads there");
        let (mut heard, mut answer) = (Vec::new(), Vec::new());
        let talk = async {
            client.write_all(&sent).await?;
            client.shutdown().await?;
            client.read_to_end(&mut answer).await
        };
        let listen = async {
            server.read_to_end(&mut heard).await?;
            server.write_all(b"all of it").await?;
            server.shutdown().await
        };
        tokio::try_join!(talk, listen).expect("nothing breaks");
        assert!(heard == sent, "{} of {} bytes, or others", heard.len(), sent.len());
        assert_eq!(answer, b"all of it");
    }
}
