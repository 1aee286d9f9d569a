//! Carries the frames of one direction of one connection.
//!
//! Bytes are read into `partial` until they are a frame. Frames queue up until the mode lets the
//! front one go: it is judged at the moment it can be written, and not before, so that nothing
//! leaves under a mode that is over. One loop waits for an order, for room to write, for the front
//! frame's delay and for more to read, in this order of precedence.
//!
//! # Invariants
//! - **testbed.pump-1** No mode judges a frame twice. A frame whose first byte has gone is judged no more and
//!   goes whole; only a blackhole stops it midway.
//! - **testbed.pump-2** An order's `Done` is dropped when the order is carried out, or with the pump.
//! - **testbed.pump-3** `Traffic::held` counts frames of living pumps only.

use std::{collections::VecDeque, future, io};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, Interest},
    net::tcp::{ReadHalf, WriteHalf},
    sync::watch,
};

use super::{
    mode::{Mode, SplitMix},
    registry::{Framer, Order, Orders, Shared},
    timer::{Instant, Timer},
    traffic::{Direction, Traffic},
};

/// How a connection ends before both of its directions have.
#[derive(Debug)]
pub(super) enum Cut {
    Close,
    Reset,
}

impl From<io::Error> for Cut {
    /// One side is broken, so the other one is reset.
    fn from(_broken: io::Error) -> Self {
        Self::Reset
    }
}

pub(super) struct Pump<'a> {
    reader: ReadHalf<'a>,
    writer: WriteHalf<'a>,
    orders: Orders,
    traffic: &'a watch::Sender<Traffic>,
    framer: &'a Framer,
    mode: Mode,
    random: SplitMix,
    /// Once something was delayed.
    timer: Option<Timer>,
    source: Source,
    partial: Vec<u8>,
    frames: VecDeque<Frame>,
    /// How many bytes `frames` has.
    queued: usize,
    /// The part of `Traffic::held` that this pump holds.
    held: usize,
}

impl<'a> Pump<'a> {
    pub(super) fn new(
        direction: Direction,
        reader: ReadHalf<'a>,
        writer: WriteHalf<'a>,
        (mode, orders): (Mode, Orders),
        shared: &'a Shared,
    ) -> Self {
        Self {
            reader,
            writer,
            orders,
            traffic: &shared.traffic[direction as usize],
            framer: &*shared.framer,
            random: mode.random(),
            mode,
            timer: None,
            source: Source::Open,
            partial: Vec::new(),
            frames: VecDeque::new(),
            queued: 0,
            held: 0,
        }
    }

    /// Runs until the stream has ended and everything was delivered, or until cut.
    pub(super) async fn run(mut self) -> Result<(), Cut> {
        loop {
            if self.is_drained() {
                return Ok(self.writer.shutdown().await?);
            }
            let (writes, reads) = (self.front_goes(), self.reads());
            self.partial.reserve(CHUNK);
            tokio::select! {
                biased;
                order = self.orders.recv() => {
                    let Some((order, done)) = order else { return Err(Cut::Close) };
                    match order {
                        Order::Close => return Err(Cut::Close),
                        Order::Release => self.release(),
                        Order::Reset => return Err(Cut::Reset),
                        Order::Set(mode) => self.set(mode),
                    }
                    drop(done);
                }
                ready = self.writer.writable(), if writes => {
                    ready?;
                    self.write()?;
                }
                front = due(self.frames.front_mut(), &mut self.timer) => front?.pass = Pass::Free,
                read = more(&mut self.reader, &mut self.partial, &self.source), if reads => {
                    if read? == 0 {
                        self.source = Source::Ended;
                    }
                    self.cut_frames();
                }
            }
        }
    }

    fn is_drained(&self) -> bool {
        matches!(self.source, Source::Ended) && self.frames.is_empty() && !self.mode.keeps_end()
    }

    fn front_goes(&self) -> bool {
        !matches!(self.mode, Mode::Blackhole)
            && self
                .frames
                .front()
                .is_some_and(|front| front.sent > 0 || matches!(front.pass, Pass::Free) || !self.mode.keeps())
    }

    fn reads(&self) -> bool {
        !matches!(self.mode, Mode::Blackhole)
            && (matches!(self.source, Source::Ended) || self.partial.len() + self.queued < BUFFER)
    }

    fn release(&mut self) {
        for frame in &mut self.frames {
            frame.pass = Pass::Free;
        }
        self.report_held(0);
    }

    fn set(&mut self, mode: Mode) {
        self.random = mode.random();
        self.mode = mode;
        for frame in &mut self.frames {
            frame.pass = Pass::under(&self.mode, &mut self.random);
        }
        self.count_held();
    }

    fn cut_frames(&mut self) {
        let mut cut = 0;
        while cut < self.partial.len() {
            let rest = &self.partial[cut..];
            let length = match (self.framer)(rest) {
                Some(length) => length,
                None if rest.len() >= BUFFER || matches!(self.source, Source::Ended) => rest.len(),
                None => break,
            };
            assert!(length > 0, "a frame without bytes");
            self.frames.push_back(Frame {
                bytes: rest[..length].to_vec(),
                sent: 0,
                pass: Pass::under(&self.mode, &mut self.random),
            });
            cut += length;
        }
        self.partial.drain(..cut);
        self.queued += cut;
        self.count_held();
    }

    /// Writes, or drops, what may go until the receiver has no room.
    fn write(&mut self) -> io::Result<()> {
        while self.front_goes()
            && let Some(front) = self.frames.front_mut()
        {
            let judged = front.sent > 0 || matches!(front.pass, Pass::Free);
            if !judged && self.mode.drops(&mut front.bytes) {
                self.traffic.send_modify(|traffic| traffic.dropped += 1);
                front.sent = front.bytes.len();
            } else {
                front.pass = Pass::Free;
                let sent = match self.writer.try_write(&front.bytes[front.sent..]) {
                    Err(full) if full.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                    sent => sent?,
                };
                front.sent += sent;
                self.traffic.send_modify(|traffic| traffic.forwarded += sent as u64);
            }
            if front.sent == front.bytes.len() {
                self.queued -= front.bytes.len();
                self.frames.pop_front();
            }
        }
        Ok(())
    }

    fn count_held(&mut self) {
        let stays = |frame: &&Frame| frame.sent == 0 && matches!(frame.pass, Pass::Verdict);
        let held = match self.mode {
            Mode::Hold => self.frames.iter().filter(stays).count(),
            _ => 0,
        };
        self.report_held(held);
    }

    fn report_held(&mut self, held: usize) {
        if held != self.held {
            self.traffic.send_modify(|traffic| traffic.held = traffic.held - self.held + held);
            self.held = held;
        }
    }
}

impl Drop for Pump<'_> {
    fn drop(&mut self) {
        // INVARIANT(testbed.pump-3)
        self.report_held(0);
    }
}

struct Frame {
    bytes: Vec<u8>,
    /// How many of them have gone.
    sent: usize,
    pass: Pass,
}

/// What a frame waits for.
enum Pass {
    /// Its delay, which runs since the frame came: delays overlap as on a long line, and do not add
    /// up.
    Delayed(Instant),
    /// Nothing.
    Free,
    /// A mode that does not keep it.
    Verdict,
}

impl Pass {
    fn under(mode: &Mode, random: &mut SplitMix) -> Self {
        match mode.delay_of_next(random) {
            Some(delay) => Self::Delayed(Instant::after(delay)),
            None => Self::Verdict,
        }
    }
}

enum Source {
    Ended,
    Open,
}

/// Returns the front frame when its delay has passed; never, if it has none.
async fn due<'f>(front: Option<&'f mut Frame>, timer: &mut Option<Timer>) -> io::Result<&'f mut Frame> {
    if let Some(frame) = front
        && let Pass::Delayed(at) = frame.pass
    {
        let timer = match timer {
            Some(timer) => timer,
            None => timer.insert(Timer::new()?),
        };
        timer.until(at).await?;
        return Ok(frame);
    }
    future::pending().await
}

/// From how many bytes on a pump stops reading.
const BUFFER: usize = 64 * 1024;

/// How much it reads at once, about.
const CHUNK: usize = 16 * 1024;

/// Reads on. Behind the end of a stream there may still come a reset: what is kept back is void then.
async fn more(reader: &mut ReadHalf<'_>, partial: &mut Vec<u8>, source: &Source) -> io::Result<usize> {
    match source {
        Source::Open => reader.read_buf(partial).await,
        Source::Ended => {
            reader.ready(Interest::ERROR).await?;
            Err(io::ErrorKind::ConnectionReset.into())
        }
    }
}
