//! The socket of a wire, with what is being written to it and read from it.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use redis::{RedisError, Value};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::answers::Answers;
use crate::connection::client::Stream;

/// The state that the lock of the socket guards.
pub(super) struct Io {
    /// `None` once the wire has ended, and after a call that failed or panicked: the rest of what came may belong to another
    /// place then.
    stream: Option<Box<dyn Stream>>,
    /// Bytes that were taken to be sent, and how many of them are.
    writing: Vec<u8>,
    written: usize,
    is_flushed: bool,
    answers: Answers,
}

impl Io {
    pub(super) fn new(stream: Box<dyn Stream>) -> Self {
        Self {
            stream: Some(stream),
            writing: Vec::new(),
            written: 0,
            is_flushed: true,
            answers: Answers::new(),
        }
    }

    /// Closes the socket.
    pub(super) fn close(&mut self) {
        self.stream = None;
    }

    /// Writes what `take` moves into the buffer, until that is nothing, or the socket takes no more.
    pub(super) fn write(
        &mut self,
        cx: &mut Context<'_>,
        mut take: impl FnMut(&mut Vec<u8>),
    ) -> io::Result<()> {
        let mut stream = self.stream.take().ok_or(io::ErrorKind::NotConnected)?;
        loop {
            // redis.wire-2
            if self.written == self.writing.len() {
                self.writing.clear();
                self.written = 0;
                if self.writing.capacity() > KEPT {
                    self.writing = Vec::new();
                }
                take(&mut self.writing);
                if self.writing.is_empty() {
                    break;
                }
                self.is_flushed = false;
            }
            match Pin::new(&mut stream).poll_write(cx, &self.writing[self.written..])? {
                Poll::Ready(0) => return Err(io::ErrorKind::WriteZero.into()),
                Poll::Ready(count) => self.written += count,
                Poll::Pending => break,
            }
        }
        if !self.is_flushed {
            self.is_flushed =
                Pin::new(&mut stream).poll_flush(cx)?.is_ready() && self.written == self.writing.len();
        }
        self.stream = Some(stream);
        Ok(())
    }

    /// Reads once, and gives `found` each answer that is whole; how many bytes that were, if the socket had any.
    pub(super) fn read(
        &mut self,
        cx: &mut Context<'_>,
        mut found: impl FnMut(Value) -> Result<(), RedisError>,
    ) -> Result<Poll<usize>, RedisError> {
        let mut stream = self.stream.take().ok_or_else(|| io::Error::from(io::ErrorKind::NotConnected))?;
        let mut room = ReadBuf::new(self.answers.room());
        if Pin::new(&mut stream).poll_read(cx, &mut room)?.is_pending() {
            self.answers.rest();
            self.stream = Some(stream);
            return Ok(Poll::Pending);
        }
        let count = room.filled().len();
        if count == 0 {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        self.answers.filled(count);
        while let Some(answer) = self.answers.next()? {
            found(answer)?;
        }
        self.stream = Some(stream);
        Ok(Poll::Ready(count))
    }
}

/// It has requests in it.
impl fmt::Debug for Io {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Io").field("is_open", &self.stream.is_some()).finish_non_exhaustive()
    }
}

/// A longer buffer is given back when it is empty.
const KEPT: usize = 64 << 10;
