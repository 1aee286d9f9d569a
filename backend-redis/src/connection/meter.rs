//! Bounds the memory of one reply: a peer in the place of a server makes the client keep at most [`LONGEST`] bytes.
//!
//! The client crate keeps a reply until it is complete, whatever its length. So the stream counts the bytes of each reply, by
//! the lengths in front of its parts, and fails before a reply becomes too long.
//!
//! Checked by the tests below, and by `tests/redis/hostile.rs` with peers that announce too much.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use redis::Value;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// About as many bytes as a reply may take in the client's memory. All replies to our requests are shorter: a step of a
/// listing shows 50 locks, each with at most 1 500 sharers.
pub(super) const LONGEST: u64 = 16 << 20;

/// A stream that fails before a reply becomes too long.
#[derive(Debug)]
pub(super) struct Metered<S> {
    stream: S,
    meter: Meter,
}

impl<S> Metered<S> {
    pub(super) fn new(stream: S) -> Self {
        Self { stream, meter: Meter::new() }
    }
}

/// Where a reply is, as its bytes come.
#[derive(Debug)]
pub(super) struct Meter {
    part: Part,
    /// How many values of the reply have not begun.
    to_come: u64,
    /// The size of the reply so far.
    taken: u64,
}

#[derive(Clone, Copy, Debug)]
enum Part {
    /// A value begins.
    Kind,
    /// Its first line, which has a length if it is of a kind that has one.
    Line { kind: u8, length: u64, is_nothing: bool, last: u8 },
    /// So many bytes of it are to come, with the end of the line behind them.
    Bytes(u64),
}

impl Meter {
    pub(super) const fn new() -> Self {
        Self { part: Part::Kind, to_come: 1, taken: 0 }
    }

    /// Takes in what has arrived, up to the end of one reply: how many bytes that are, and whether the reply is whole.
    pub(super) fn take(&mut self, all: &[u8]) -> io::Result<(usize, bool)> {
        let mut bytes = all;
        while let Some((&byte, rest)) = bytes.split_first() {
            match &mut self.part {
                Part::Kind => {
                    self.to_come -= 1;
                    self.part = Part::Line { kind: byte, length: 0, is_nothing: false, last: byte };
                    self.takes(size_of::<Value>() as u64)?;
                    bytes = rest;
                }
                Part::Line { last: b'\r', kind, length, is_nothing, .. } if byte == b'\n' => {
                    let (kind, length, is_nothing) =
                        (*kind, *length, *is_nothing && HAS_LENGTH.contains(kind));
                    // The client takes the length of other kinds for a huge one, and -0 for none.
                    if is_nothing && (length == 0 || !b"$*~>".contains(&kind)) {
                        return Err(refused("the reply has a negative length"));
                    }
                    let length = if is_nothing { 0 } else { length };
                    let of_bytes = matches!(kind, b'$' | b'!' | b'=') && !is_nothing;
                    let values = match kind {
                        b'*' | b'~' | b'>' => length,
                        b'%' => length.saturating_mul(2),
                        b'|' => length.saturating_mul(2).saturating_add(1),
                        _ => 0,
                    };
                    self.to_come = self.to_come.saturating_add(values);
                    bytes = rest;
                    if of_bytes {
                        self.takes(length)?;
                        self.part = Part::Bytes(length + 2);
                    } else if self.value_ends() {
                        return Ok((all.len() - bytes.len(), true));
                    }
                }
                Part::Line { length, is_nothing, last, .. } => {
                    *is_nothing |= byte == b'-';
                    if byte.is_ascii_digit() {
                        *length = length.saturating_mul(10).saturating_add(u64::from(byte - b'0'));
                    }
                    *last = byte;
                    self.takes(1)?;
                    bytes = rest;
                }
                Part::Bytes(left) => {
                    let here = usize::try_from(*left).map_or(bytes.len(), |left| left.min(bytes.len()));
                    *left -= here as u64;
                    bytes = &bytes[here..];
                    if *left == 0 && self.value_ends() {
                        return Ok((all.len() - bytes.len(), true));
                    }
                }
            }
        }
        Ok((all.len(), false))
    }

    fn takes(&mut self, more: u64) -> io::Result<()> {
        self.taken = self.taken.saturating_add(more);
        if self.taken <= LONGEST {
            return Ok(());
        }
        Err(refused(&format!(
            "the reply is longer than {} MiB: no request of this store has such a reply",
            LONGEST >> 20
        )))
    }

    /// Whether the reply ends with it.
    fn value_ends(&mut self) -> bool {
        self.part = Part::Kind;
        let is_last = self.to_come == 0;
        if is_last {
            *self = Self::new();
        }
        is_last
    }
}

/// The kinds of values whose first line is a length.
const HAS_LENGTH: &[u8] = b"$!=*~>%|";

fn refused(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

impl<S: AsyncRead + Unpin> AsyncRead for Metered<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
        let mut bytes = &buf.filled()[before..];
        while !bytes.is_empty() {
            let (taken, _) = self.meter.take(bytes)?;
            bytes = &bytes[taken..];
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Metered<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// A reply of every kind, nested.
#[cfg(test)]
pub(super) fn any_reply() -> impl proptest::strategy::Strategy<Value = String> {
    use proptest::prelude::*;

    let bytes =
        ("[$!]", "[a-z\r\n$*]{0,9}").prop_map(|(kind, body)| format!("{kind}{}\r\n{body}", body.len()));
    let text = "[a-z\r\n$*]{0,9}".prop_map(|body| format!("={}\r\ntxt:{body}", body.len() + 4));
    let nothing = prop::sample::select(vec!["$-1", "*-1", "_", "#t"]).prop_map(str::to_owned);
    let leaf = prop_oneof!["[+(][a-z -]{0,9}", "[:,]-?[0-9]{1,9}", bytes, text, nothing];
    leaf.prop_map(|value| value + "\r\n").prop_recursive(4, 64, 4, |value| {
        ("[*~>%|]", prop::collection::vec(value, 0..4)).prop_map(|(kind, values)| {
            let (before, times, after) = match &*kind {
                "%" => ("", 2, ""),
                "|" => ("", 2, "_\r\n"),
                ">" => ("+message\r\n", 1, ""),
                _ => ("", 1, ""),
            };
            let count = values.len() + usize::from(kind == ">");
            format!("{kind}{count}\r\n{before}{}{after}", values.concat().repeat(times))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// An incomplete reply is counted or refused, however its length is written.
        #[test]
        fn a_value_that_the_client_waits_for_is_counted(
            reply in "[$!=*~>%|][-+ ]?[0-9]{1,3}\r\n[a:1\r\n]{0,9}",
        ) {
            let mut meter = Meter::new();
            let waits = redis::parse_redis_value(reply.as_bytes()).is_err_and(|error| error.kind() == redis::ErrorKind::Io);
            prop_assert!(!waits || meter.take(reply.as_bytes()).is_err() || meter.taken > 0, "{reply:?}");
        }

        /// Whatever comes, nothing panics.
        #[test]
        fn any_bytes_are_metered(bytes in prop::collection::vec(any::<u8>(), 0..500)) {
            let _ = Meter::new().take(&bytes);
        }
    }

    /// A reply that is too long is refused at its length, or without one at its bytes.
    #[test]
    fn a_reply_without_end_is_refused() {
        let refused = |head: &str, again: &str| {
            let mut meter = Meter::new();
            let mut fed = head.len();
            let mut fails = meter.take(head.as_bytes()).is_err();
            while !fails && fed < 64 << 20 {
                fails = meter.take(again.as_bytes()).is_err();
                fed += again.len();
            }
            (fails, fed)
        };
        for head in ["$900000000\r\n", "*2\r\n$9\r\n", "=99999999999999999999999\r\n", "!16777216\r\n"] {
            let again = if head.starts_with('*') { "123456789\r\n$16777216\r\n" } else { "" };
            let (fails, fed) = refused(head, again);
            assert!(fails && fed < 99, "{head:?}: {fed}");
        }
        for (head, again) in
            [("+", "a"), ("$", "0"), ("*4294967296\r\n", ":1\r\n"), ("", "*1\r\n"), ("", "|9\r\n")]
        {
            let (fails, fed) = refused(head, again);
            assert!(fails && fed <= 16 << 20, "{head:?}: {fed}");
        }
        assert!(!refused("", "$16777000\r\n").0 && !refused("", "+OK\r\n").0);
    }
}
