//! An echo server behind a proxy, and the words in which the tests are written.

use std::{
    io::{self, ErrorKind},
    time::Duration,
};

use testbed::Proxy;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
    time::timeout,
};

/// What the server has seen, over all connections.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) bytes: Vec<u8>,
    pub(crate) ends: usize,
    pub(crate) resets: usize,
}

/// A server that echoes what comes and answers the end of a stream with [`FAREWELL`]; a proxy to it.
pub(crate) struct Setup {
    pub(crate) proxy: Proxy,
    seen: watch::Receiver<Seen>,
    _server: JoinSet<()>,
}

impl Setup {
    /// The proxy takes each read for a frame.
    pub(crate) async fn start() -> Self {
        Self::start_framed(|bytes| Some(bytes.len())).await
    }

    /// The proxy takes each line for a frame.
    pub(crate) async fn start_lines() -> Self {
        Self::start_framed(|bytes| Some(bytes.iter().position(|byte| *byte == b'\n')? + 1)).await
    }

    async fn start_framed(framer: impl Fn(&[u8]) -> Option<usize> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let upstream = listener.local_addr().expect("an address");
        let (saw, seen) = watch::channel(Seen::default());
        let mut server = JoinSet::new();
        server.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((socket, _)) = listener.accept().await {
                connections.spawn(echo(socket, saw.clone()));
            }
        });
        Self { proxy: Proxy::start_framed(upstream, framer).expect("a proxy"), seen, _server: server }
    }

    /// A client whose connection is live, if none ends meanwhile.
    pub(crate) async fn client(&self) -> TcpStream {
        let before = self.proxy.connections();
        let client = TcpStream::connect(self.proxy.addr()).await.expect("a client");
        soon(self.proxy.connected(before + 1)).await;
        client
    }

    /// Waits until the server has seen it.
    pub(crate) async fn server_saw(&self, what: impl FnMut(&Seen) -> bool) -> Seen {
        let mut seen = self.seen.clone();
        soon(seen.wait_for(what)).await.expect("a server").clone()
    }

    /// What the server has seen by now.
    pub(crate) fn seen(&self) -> Seen {
        self.seen.borrow().clone()
    }
}

async fn echo(mut socket: TcpStream, saw: watch::Sender<Seen>) {
    let mut buffer = [0; 4096];
    loop {
        match socket.read(&mut buffer).await {
            Ok(0) => {
                saw.send_modify(|seen| seen.ends += 1);
                // The client may be gone.
                let _sent = socket.write_all(FAREWELL.as_bytes()).await;
                return;
            }
            Ok(read) => {
                saw.send_modify(|seen| seen.bytes.extend(&buffer[..read]));
                // A reset shows in the next read.
                let _sent = socket.write_all(&buffer[..read]).await;
            }
            Err(_reset) => return saw.send_modify(|seen| seen.resets += 1),
        }
    }
}

/// For what must happen; reached only by a failing test.
pub(crate) async fn soon<F: Future>(step: F) -> F::Output {
    timeout(Duration::from_secs(10), step).await.expect("soon")
}

/// For what must not happen. A pause too short misses a fault and never invents one.
pub(crate) async fn never<F: Future>(step: F) {
    assert!(timeout(PAUSE, step).await.is_err(), "this must not happen");
}

pub(crate) async fn say(client: &mut TcpStream, words: &str) {
    soon(client.write_all(words.as_bytes())).await.expect("open");
}

/// The next bytes are these.
pub(crate) async fn hear(client: &mut TcpStream, words: &str) {
    let mut heard = vec![0; words.len()];
    soon(client.read_exact(&mut heard)).await.expect("open");
    assert_eq!(String::from_utf8_lossy(&heard), words);
}

/// The stream ends here: in order, or by a reset.
pub(crate) async fn hear_end(client: &mut TcpStream) -> io::Result<()> {
    let end = soon(client.read(&mut [0])).await;
    match &end {
        Ok(read) => assert_eq!(*read, 0, "the stream goes on"),
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
    }
    end.map(drop)
}

/// The server's last words.
pub(crate) const FAREWELL: &str = "farewell\n";

const PAUSE: Duration = Duration::from_millis(50);
