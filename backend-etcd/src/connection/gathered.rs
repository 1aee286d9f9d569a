//! Writes that follow each other closely leave as one.
//!
//! The HTTP/2 client flushes each frame by itself: for one request the reply to the server's last ping, the headers and the
//! message. Each of them would be a system call and a packet, and would wake the server. So a flush first lets the tasks run
//! that may add to it.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A stream whose flush waits a few turns of its task.
#[derive(Debug)]
pub(super) struct Gathered<S> {
    stream: S,
    unsent: Vec<u8>,
    /// How often a flush of `unsent` has waited.
    turns: u8,
}

impl<S: AsyncWrite + Unpin> Gathered<S> {
    pub(super) fn new(stream: S) -> Self {
        Self { stream, unsent: Vec::new(), turns: 0 }
    }

    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.unsent.is_empty() {
            let sent = ready!(Pin::new(&mut self.stream).poll_write(cx, &self.unsent))?;
            if sent == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.unsent.drain(..sent);
        }
        self.turns = 0;
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Gathered<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Gathered<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.unsent.len() >= ENOUGH {
            ready!(self.poll_send(cx))?;
        }
        self.unsent.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if (1..ENOUGH).contains(&self.unsent.len()) && self.turns < TURNS {
            self.turns += 1;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        ready!(self.poll_send(cx))?;
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_send(cx))?;
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// From a reply to the next request's message four tasks run, one after the other.
const TURNS: u8 = 6;
/// So many bytes are sent at once, so that the server begins.
const ENOUGH: usize = 4096;

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
    use tokio::join;
    use tokio::task::yield_now;

    use super::*;

    /// What is added while a flush waits leaves with it, and much at once.
    #[tokio::test]
    async fn flush_waits_for_further_writes() {
        let (ours, mut theirs) = duplex(2 * ENOUGH);
        let mut gathered = Gathered::new(ours);
        let mut flush = async |bytes: &[u8]| {
            gathered.write_all(bytes).await.unwrap();
            poll_fn(|cx| Poll::Ready(Pin::new(&mut gathered).poll_flush(cx).is_ready())).await
        };
        assert!(!flush(b"headers").await);
        assert!(!flush(b", message").await);
        assert!(flush(&[0; ENOUGH]).await);
        let mut read = vec![0; 2 * ENOUGH];
        assert_eq!(theirs.read(&mut read).await.unwrap(), 16 + ENOUGH);
        assert_eq!(read[..16], *b"headers, message");
    }

    /// A flush ends without further writes, and a peer that reads slowly gets every byte once and in order.
    #[tokio::test]
    async fn slow_peer_receives_all_bytes_in_order() {
        let (ours, mut theirs) = duplex(7);
        let mut gathered = Gathered::new(ours);
        let all: Vec<u8> = (0..3 * ENOUGH).map(|byte| (byte % 251) as u8).collect();
        let write = async {
            for some in all.chunks(1000) {
                gathered.write_all(some).await.unwrap();
                gathered.flush().await.unwrap();
                yield_now().await;
            }
            gathered.write_all(b"last").await.unwrap();
            gathered.shutdown().await.unwrap();
        };
        let mut read = Vec::new();
        let (_, received) = join!(write, theirs.read_to_end(&mut read));
        received.unwrap();
        assert!(read == [&*all, b"last"].concat());
    }
}
