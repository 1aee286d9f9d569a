//! The serialization protocol of Redis: enough of a client to ask a server anything, and where a
//! message ends, for the proxy.

use std::{future::Future, io, net::SocketAddr, pin::Pin};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

/// What a server has answered. An error is an answer, too.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "version 2 of the protocol has these")]
pub enum Reply {
    /// A word, such as `OK`.
    Simple(String),
    /// The server refused; the first word is the error's code.
    Error(String),
    /// A number.
    Integer(i64),
    /// Bytes.
    Bulk(Vec<u8>),
    /// Nothing is there.
    Nil,
    /// Several of them.
    Array(Vec<Self>),
}

impl Reply {
    /// The number, if it is one.
    pub fn integer(&self) -> Option<i64> {
        match self {
            Self::Integer(number) => Some(*number),
            _ => None,
        }
    }

    /// The text of a word, an error or of bytes, if it is one of them.
    pub fn text(&self) -> Option<String> {
        match self {
            Self::Simple(text) | Self::Error(text) => Some(text.clone()),
            Self::Bulk(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
            _ => None,
        }
    }

    /// The elements, none if it is no array.
    pub fn elements(self) -> Vec<Self> {
        match self {
            Self::Array(elements) => elements,
            _ => Vec::new(),
        }
    }
}

/// A connection that sends commands as they are given, one after the other.
#[derive(Debug)]
pub struct Client {
    stream: TcpStream,
    /// What was read and belongs to later answers.
    rest: Vec<u8>,
}

impl Client {
    /// Connects.
    pub async fn connect(addr: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(addr).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, rest: Vec::new() })
    }

    /// Sends a command and reads its answer.
    ///
    /// # Cancel safety
    ///
    /// A cancelled call may have sent the command, so the client is of no use any more.
    pub async fn command(&mut self, words: &[&str]) -> io::Result<Reply> {
        self.send(words).await?;
        self.reply().await
    }

    /// Sends a command without reading its answer.
    pub async fn send(&mut self, words: &[&str]) -> io::Result<()> {
        let mut request = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            request.extend_from_slice(format!("${}\r\n{word}\r\n", word.len()).as_bytes());
        }
        self.stream.write_all(&request).await
    }

    /// Reads the next answer, or a message to a subscriber.
    pub async fn reply(&mut self) -> io::Result<Reply> {
        self.value().await
    }

    fn value(&mut self) -> Pin<Box<dyn Future<Output = io::Result<Reply>> + Send + '_>> {
        Box::pin(async move {
            let line = self.line().await?;
            let (kind, rest) = line.split_at_checked(1).ok_or_else(|| garbled(&line))?;
            let number = || rest.parse::<i64>().map_err(|_| garbled(&line));
            Ok(match kind {
                "+" => Reply::Simple(rest.to_owned()),
                "-" => Reply::Error(rest.to_owned()),
                ":" => Reply::Integer(number()?),
                "$" => match usize::try_from(number()?) {
                    Ok(length) => Reply::Bulk(self.bytes(length).await?),
                    Err(_) => Reply::Nil,
                },
                "*" => match usize::try_from(number()?) {
                    Ok(length) => {
                        let mut elements = Vec::new();
                        for _ in 0..length {
                            elements.push(self.value().await?);
                        }
                        Reply::Array(elements)
                    }
                    Err(_) => Reply::Nil,
                },
                _ => return Err(garbled(&line)),
            })
        })
    }

    async fn line(&mut self) -> io::Result<String> {
        let end = loop {
            if let Some(end) = line_end(&self.rest) {
                break end;
            }
            self.more().await?;
        };
        let line = self.rest.drain(..end).collect::<Vec<_>>();
        Ok(String::from_utf8_lossy(&line[..end - 2]).into_owned())
    }

    async fn bytes(&mut self, length: usize) -> io::Result<Vec<u8>> {
        while self.rest.len() < length + 2 {
            self.more().await?;
        }
        let mut bytes = self.rest.drain(..length + 2).collect::<Vec<_>>();
        bytes.truncate(length);
        Ok(bytes)
    }

    async fn more(&mut self) -> io::Result<()> {
        match self.stream.read_buf(&mut self.rest).await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }
}

/// The length of the message that `bytes` begin with, in version 2 or 3 of the protocol; `None` while
/// it is not complete. For [`Proxy::start_framed`](crate::Proxy::start_framed).
pub fn frame(bytes: &[u8]) -> Option<usize> {
    let end = line_end(bytes)?;
    let number = || std::str::from_utf8(&bytes[1..end - 2]).ok()?.parse::<usize>().ok();
    let children = match bytes[0] {
        b'$' | b'=' | b'!' => {
            // A negative length stands for nothing.
            let whole = number().map_or(end, |length| end + length + 2);
            return (whole <= bytes.len()).then_some(whole);
        }
        b'*' | b'~' | b'>' => number().unwrap_or(0),
        b'%' => number().unwrap_or(0) * 2,
        // An attribute precedes what it belongs to.
        b'|' => number().unwrap_or(0) * 2 + 1,
        _ => 0,
    };
    (0..children).try_fold(end, |whole, _| Some(whole + frame(&bytes[whole..])?))
}

/// Whether a frame is a push message, such as one to a subscriber.
pub fn is_push(frame: &[u8]) -> bool {
    frame.first() == Some(&b'>')
}

fn line_end(bytes: &[u8]) -> Option<usize> {
    bytes.windows(2).position(|pair| pair == b"\r\n").map(|end| end + 2)
}

fn garbled(line: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("not the protocol of Redis: {line:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every kind ends where it ends, whatever follows, and is incomplete one byte earlier.
    #[test]
    fn a_frame_is_one_whole_message() {
        for message in [
            "+OK\r\n",
            "$3\r\nab\n\r\n",
            "$0\r\n\r\n",
            "$-1\r\n",
            "*2\r\n$3\r\nGET\r\n$1\r\nk\r\n",
            "*0\r\n",
            ">3\r\n+message\r\n$1\r\nc\r\n*1\r\n:1\r\n",
            "%1\r\n+a\r\n_\r\n",
            "|1\r\n+a\r\n+b\r\n,1.5\r\n",
        ] {
            let bytes = message.as_bytes();
            assert_eq!(frame(&[bytes, b"+next\r\n"].concat()), Some(bytes.len()), "{message:?}");
            assert_eq!(frame(&bytes[..bytes.len() - 1]), None, "{message:?}");
        }
    }
}
