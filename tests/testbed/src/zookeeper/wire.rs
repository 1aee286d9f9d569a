//! As much of ZooKeeper's wire protocol as tests want: where frames end, what a request is, and how
//! to end the session of another client.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Where the frame that `bytes` begin with ends, for [`Proxy::start_framed`](crate::Proxy::start_framed).
pub fn frame(bytes: &[u8]) -> Option<usize> {
    let (length, rest) = bytes.split_first_chunk()?;
    let length = u32::from_be_bytes(*length) as usize;
    (rest.len() >= length).then_some(length + 4)
}

/// The beginning of a request's frame. The first frame of a connection has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Head {
    /// Its number; negative for what the client's library sends by itself.
    pub number: i32,
    /// What is asked.
    pub op: Op,
}

impl Head {
    /// Reads the head of a request.
    pub fn of(frame: &[u8]) -> Option<Self> {
        let (number, rest) = frame.get(4..)?.split_first_chunk()?;
        let (op, _) = rest.split_first_chunk()?;
        Some(Self { number: i32::from_be_bytes(*number), op: Op::of(i32::from_be_bytes(*op)) })
    }
}

/// What a request asks for, as far as tests tell them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Op {
    /// A node is made, whatever its kind.
    Create,
    /// A node is removed.
    Delete,
    /// A node's children are listed.
    List,
    /// A node's data are written.
    SetData,
    /// A node is looked at: exists, or its data.
    Get,
    /// The library keeps the session.
    Ping,
    /// Anything else.
    Other(i32),
}

impl Op {
    fn of(code: i32) -> Self {
        match code {
            1 | 15 | 19 | 21 => Self::Create,
            2 | 20 => Self::Delete,
            3 | 4 => Self::Get,
            5 => Self::SetData,
            8 | 12 => Self::List,
            11 => Self::Ping,
            other => Self::Other(other),
        }
    }
}

/// Takes the session over and closes it. A session's password follows from its id: it only
/// refuses clients that did not connect.
pub(super) async fn end_session(server: SocketAddr, session: i64) -> io::Result<()> {
    let ended = async {
        // Its client, which loses its connection to us, may be back before we are done.
        let mut taken_over = false;
        loop {
            match take_over_and_close(server, session).await {
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => taken_over = true,
                Err(error) if error.kind() == io::ErrorKind::NotFound && taken_over => return Ok(()),
                ended => return ended,
            }
        }
    };
    timeout(ANSWER, ended).await.map_err(|_elapsed| io::Error::from(io::ErrorKind::TimedOut))?
}

async fn take_over_and_close(server: SocketAddr, session: i64) -> io::Result<()> {
    let mut stream = TcpStream::connect(server).await?;
    let mut connect = Vec::new();
    connect.extend(0_i32.to_be_bytes()); // protocol version
    connect.extend(0_i64.to_be_bytes()); // the last change seen
    connect.extend(10_000_i32.to_be_bytes()); // timeout, in milliseconds
    connect.extend(session.to_be_bytes());
    connect.extend(16_i32.to_be_bytes());
    connect.extend(password(session));
    connect.push(0); // not read-only
    send(&mut stream, &connect).await?;
    send(&mut stream, &[1_i32.to_be_bytes(), CLOSE_SESSION.to_be_bytes()].concat()).await?;
    let answer = receive(&mut stream).await?;
    if answer.get(8..16) != Some(session.to_be_bytes().as_slice()) {
        let unknown = format!("the server has no session {session:#x}");
        return Err(io::Error::new(io::ErrorKind::NotFound, unknown));
    }
    receive(&mut stream).await.map(drop)
}

async fn send(stream: &mut TcpStream, body: &[u8]) -> io::Result<()> {
    let length = u32::try_from(body.len()).map_err(io::Error::other)?;
    stream.write_all(&[&length.to_be_bytes(), body].concat()).await
}

async fn receive(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let length = stream.read_u32().await?;
    let mut body = vec![0; length as usize];
    stream.read_exact(&mut body).await?;
    Ok(body)
}

/// The first 16 bytes of Java's random numbers, started with the id and a constant of the server.
fn password(session: i64) -> [u8; 16] {
    const FACTOR: u64 = 0x5_DEEC_E66D;
    const MASK: u64 = (1 << 48) - 1;
    let mut state = (session.cast_unsigned() ^ 0xB341_5C00 ^ FACTOR) & MASK;
    let mut password = [0; 16];
    for word in password.chunks_exact_mut(4) {
        state = state.wrapping_mul(FACTOR).wrapping_add(0xB) & MASK;
        let bits = u32::try_from(state >> 16).expect("48 bits less 16");
        word.copy_from_slice(&bits.to_le_bytes());
    }
    password
}

const CLOSE_SESSION: i32 = -11;

/// How long an answer may take.
const ANSWER: Duration = Duration::from_secs(10);
