//! Takes whole answers from the bytes of a connection.
//!
//! The meter finds where a reply ends, and refuses one that is too long. Answers of scripts are read here; everything
//! else, errors of the server among it, by the client crate.

use redis::{RedisError, Value};

use crate::connection::meter::Meter;

/// The bytes that have come and are not read.
#[derive(Debug)]
pub(super) struct Answers {
    bytes: Vec<u8>,
    /// Where the next reply begins, up to where the meter has looked, and where the bytes end.
    begin: usize,
    metered: usize,
    end: usize,
    meter: Meter,
}

impl Answers {
    pub(super) const fn new() -> Self {
        Self { bytes: Vec::new(), begin: 0, metered: 0, end: 0, meter: Meter::new() }
    }

    /// Room to read into.
    pub(super) fn room(&mut self) -> &mut [u8] {
        if self.begin == self.end {
            (self.begin, self.metered, self.end) = (0, 0, 0);
        } else if self.end == self.bytes.len() && self.begin > 0 {
            self.bytes.copy_within(self.begin..self.end, 0);
            self.metered -= self.begin;
            self.end -= self.begin;
            self.begin = 0;
        }
        if self.end == self.bytes.len() {
            self.bytes.resize((2 * self.end).max(LEAST), 0);
        }
        &mut self.bytes[self.end..]
    }

    /// So many bytes were read into the room.
    pub(super) fn filled(&mut self, count: usize) {
        self.end += count;
    }

    /// The next answer that is whole; pushes are passed over.
    ///
    /// # Errors
    ///
    /// The reply is too long, or no reply.
    pub(super) fn next(&mut self) -> Result<Option<Value>, RedisError> {
        while self.metered < self.end {
            if self.begin == self.metered
                && let Some((value, length)) = short(&self.bytes[self.begin..self.end])
            {
                self.begin += length;
                self.metered = self.begin;
                return Ok(Some(value));
            }
            let (taken, is_whole) = self.meter.take(&self.bytes[self.metered..self.end])?;
            self.metered += taken;
            if !is_whole {
                return Ok(None);
            }
            let reply = &self.bytes[self.begin..self.metered];
            self.begin = self.metered;
            let value = match read(&mut &*reply, NESTED) {
                Some(value) => value,
                None => redis::parse_redis_value(reply)?,
            };
            if !matches!(value, Value::Push { .. }) {
                return Ok(Some(value));
            }
        }
        Ok(None)
    }

    /// Gives memory back that many or large answers took.
    pub(super) fn rest(&mut self) {
        if self.begin == self.end && self.bytes.len() > KEPT {
            *self = Self::new();
        }
    }
}

/// Reads a short number or text, as nearly all answers are, without the meter; `None` for anything else. And its length.
fn short(replies: &[u8]) -> Option<(Value, usize)> {
    let [b':' | b'$', b'0'..=b'9', ..] = replies else { return None };
    let replies = &replies[..SHORT.min(replies.len())];
    let mut rest = replies;
    Some((read(&mut rest, 0)?, replies.len() - rest.len()))
}

/// Reads what scripts answer; `None` for anything else.
fn read(reply: &mut &[u8], nested: usize) -> Option<Value> {
    let end = reply.windows(2).position(|end| end == b"\r\n")?;
    let (kind, line) = reply[..end].split_first()?;
    *reply = &reply[end + 2..];
    let number = || std::str::from_utf8(line).ok()?.parse::<i64>().ok();
    Some(match kind {
        b':' => Value::Int(number()?),
        b'_' => Value::Nil,
        b'+' if line == b"OK" => Value::Okay,
        b'+' => Value::SimpleString(std::str::from_utf8(line).ok()?.to_owned()),
        b'$' | b'*' if line.starts_with(b"-") => Value::Nil,
        b'$' => {
            let (bytes, rest) = reply.split_at_checked(usize::try_from(number()?).ok()?)?;
            *reply = rest.strip_prefix(b"\r\n")?;
            Value::BulkString(bytes.to_vec())
        }
        b'*' if nested > 0 => {
            let values = (0..number()?).map(|_| read(reply, nested - 1));
            Value::Array(values.collect::<Option<_>>()?)
        }
        _ => return None,
    })
}

/// A longer answer is metered.
const SHORT: usize = 48;
/// How deep the answers of scripts are nested.
const NESTED: usize = 4;
/// The least room to read into.
const LEAST: usize = 4096;
/// A longer buffer is given back when it is empty.
const KEPT: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::meter::any_reply;
    use proptest::prelude::*;

    /// All answers in `bytes`, which come in such pieces.
    fn answers(bytes: &[u8], piece: usize) -> Result<Vec<Value>, RedisError> {
        let (mut answers, mut found) = (Answers::new(), Vec::new());
        for piece in bytes.chunks(piece) {
            let mut piece = piece;
            while !piece.is_empty() {
                let room = answers.room();
                let count = room.len().min(piece.len());
                room[..count].copy_from_slice(&piece[..count]);
                piece = &piece[count..];
                answers.filled(count);
            }
            while let Some(answer) = answers.next()? {
                found.push(answer);
            }
        }
        Ok(found)
    }

    proptest! {
        /// An answer is read as the client crate reads it, in whatever pieces it comes; a push takes no answer's place.
        #[test]
        fn answers_are_those_of_the_client_crate(
            replies in prop::collection::vec(any_reply(), 1..5),
            piece in 1_usize..40,
        ) {
            let read = replies.iter().map(|reply| redis::parse_redis_value(reply.as_bytes()).unwrap());
            let expected: Vec<_> = read.filter(|value| !matches!(value, Value::Push { .. })).collect();
            prop_assert_eq!(answers(replies.concat().as_bytes(), piece).unwrap(), expected);
        }
    }

    /// Answers that are longer than the buffer are read whole, and what is no answer is refused.
    #[test]
    fn long_answers_are_read_and_foreign_bytes_refused() {
        let long = "x".repeat(100_000);
        let bytes = format!("$100000\r\n{long}\r\n:1\r\n").repeat(2);
        let one = [Value::BulkString(long.into_bytes()), Value::Int(1)];
        assert_eq!(answers(bytes.as_bytes(), 7_001).unwrap(), [one.clone(), one].concat());
        for foreign in ["$600000000\r\n", ":x\r\n", "HTTP/1.1 400 Bad Request\r\n", &"*1\r\n".repeat(200)] {
            let bytes = format!("{foreign}:1\r\n");
            assert!(answers(bytes.as_bytes(), 9).is_err(), "{foreign:?}");
        }
    }
}
