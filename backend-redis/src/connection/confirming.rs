//! Waiting for replicas and for the disk, once for everything that came meanwhile.
//!
//! A server counts the replicas that have what came through the asking connection, and does nothing else
//! for that connection until they do. So what is to be confirmed is run on a connection of its own, and what
//! comes while replicas are waited for goes out together, with one `WAIT` or `WAITAOF` behind it.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::clock::Moment;
use leasehold_core::{Effect, Env, Error, Result};
use redis::{Cmd, Value};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::Link;
use super::wire::{MOST_PLACES, Refusals};
use crate::error;
use crate::scripts::{Call, millis, number, parts};

/// Where a grant or a renewal has to be before it counts, besides the memory of the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Copies {
    /// At so many replicas: in their memory, or with `disk` on their disks.
    pub(crate) replicas: u32,
    /// On the disk of the server.
    pub(crate) disk: bool,
}

impl Copies {
    pub(crate) const NONE: Self = Self { replicas: 0, disk: false };

    /// The command that waits for them, for `bound`.
    pub(crate) fn wait(self, bound: Duration) -> Cmd {
        let mut wait = redis::cmd(if self.disk { "WAITAOF" } else { "WAIT" });
        wait.arg(self.disk.then_some(1)).arg(self.replicas).arg(millis(bound).max(1));
        wait
    }

    /// Those that there are, by the answer of `WAIT` or `WAITAOF`.
    fn read(answer: &Value) -> Option<Self> {
        let replicas = |value| u32::try_from(number(value)?).ok();
        match (answer, parts(answer)) {
            (Value::Int(_), _) => Some(Self { replicas: replicas(answer)?, disk: false }),
            (_, [disk, others]) => Some(Self { replicas: replicas(others)?, disk: number(disk)? > 0 }),
            _ => None,
        }
    }

    /// Whether what was carried out is where it is `wanted`.
    fn are_enough(self, wanted: Self) -> Result<()> {
        let message = if wanted.disk && !self.disk {
            "the disk of the server did not confirm in time".to_owned()
        } else if self.replicas < wanted.replicas {
            format!("{} replicas confirmed in time, {} are wanted", self.replicas, wanted.replicas)
        } else {
            return Ok(());
        };
        Err(error::unanswered(message).with_source(TOO_FEW))
    }
}

/// The way to the replicas; its task ends with the session.
#[derive(Debug)]
pub(crate) struct Confirming {
    env: Env,
    pub(crate) copies: Copies,
    questions: mpsc::UnboundedSender<Question>,
}

/// The call of a script, and the caller that waits for its reply and the time of sending.
#[derive(Debug)]
struct Question {
    call: Call,
    refusals: Refusals,
    give_up_at: Moment,
    answer: oneshot::Sender<Result<(Moment, Value)>>,
}

impl Confirming {
    /// Confirms over `link` until `closed`.
    pub(crate) fn start(env: &Env, link: Arc<Link>, copies: Copies, closed: CancellationToken) -> Self {
        let (questions, asked) = mpsc::unbounded_channel();
        let bursts = Bursts { env: env.clone(), link, copies, asked };
        env.spawn(async move {
            closed.run_until_cancelled_owned(bursts.run()).await;
        });
        Self { env: env.clone(), copies, questions }
    }

    /// Runs a script and waits until its writes are where they have to be; when it was sent, and its answer.
    ///
    /// # Errors
    ///
    /// As the server's table; unknown, and by [`too_few_copies`], if that is not confirmed in time.
    pub(crate) async fn run(&self, call: Call, give_up_at: Moment) -> Result<(Moment, Value)> {
        let (answer, answered) = oneshot::channel();
        // The task ends with the connection, and drops the question: it may have been sent.
        let _ = self.questions.send(Question { call, refusals: Refusals::default(), give_up_at, answer });
        tokio::select! {
            biased;
            answer = answered => answer.unwrap_or_else(|_| {
                Err(error::unanswered("the connection ended before the request was confirmed"))
            }),
            () = self.env.sleep_until(give_up_at) => {
                Err(error::unanswered("the request was not confirmed in time"))
            }
        }
    }
}

struct Bursts {
    env: Env,
    link: Arc<Link>,
    copies: Copies,
    asked: mpsc::UnboundedReceiver<Question>,
}

impl Bursts {
    async fn run(mut self) {
        let mut burst = Vec::new();
        while !burst.is_empty() || self.asked.recv_many(&mut burst, BURST).await > 0 {
            burst.retain(|question| !question.answer.is_closed());
            burst = self.confirm(burst).await;
        }
    }

    /// Answers a burst; what is left is to be asked again, as the server lacked the script.
    async fn confirm(&self, mut burst: Vec<Question>) -> Vec<Question> {
        let Some(give_up_at) = burst.iter().map(|question| question.give_up_at).max() else {
            return burst;
        };
        let sent = self.send(&mut burst, give_up_at).await;
        let (sent_at, answers, reached) = match sent {
            Ok(sent) => sent,
            Err(error) => {
                burst.into_iter().for_each(|question| question.reply(Err(error.clone())));
                return Vec::new();
            }
        };
        let mut left = Vec::new();
        for (mut question, answer) in burst.into_iter().zip(answers) {
            let answer = match answer {
                Ok(answer) => answer.extract_error(),
                Err(unsent) => {
                    question.reply(Err(unsent));
                    continue;
                }
            };
            match answer {
                _ if question.refusals.one_more(&answer) => left.push(question),
                Err(error) => question.reply(Err(error::of(error))),
                Ok(answer) => question.reply(confirmed(&reached, self.copies).map(|()| (sent_at, answer))),
            }
        }
        left
    }

    /// When it was sent, what each was answered, and where it is or why that is not known.
    async fn send(
        &self,
        burst: &mut [Question],
        give_up_at: Moment,
    ) -> Result<(Moment, Vec<Result<Value>>, Result<Copies>)> {
        let connected = self.link.connected(give_up_at).await?;
        let sent_at = self.env.now();
        // The server gives up before we do, so that its reply arrives.
        let wait = |now| self.copies.wait(give_up_at.since(now) * 3 / 4);
        let mut calls: Vec<_> =
            burst.iter_mut().map(|Question { call, refusals, .. }| (&*call, refusals)).collect();
        let (answers, reached) = connected.run_all(&mut calls, wait, give_up_at).await?;
        match reached.extract_error() {
            Ok(reached) => {
                let read = Copies::read(&reached).ok_or_else(|| error::unexpected("to WAIT"));
                read.map(|reached| (sent_at, answers, Ok(reached)))
            }
            Err(refused) => Ok((sent_at, answers, Err(error::of(refused)))),
        }
    }
}

impl Question {
    fn reply(self, answer: Result<(Moment, Value)>) {
        // The caller may have given up; then the reply is dropped.
        let _ = self.answer.send(answer);
    }
}

/// Whether what was carried out is where it is wanted.
fn confirmed(reached: &Result<Copies>, wanted: Copies) -> Result<()> {
    match reached {
        Ok(reached) => reached.are_enough(wanted),
        // Only the waiting was refused.
        Err(refused) => Err(refused.clone().with_effect(Effect::Unknown)),
    }
}

/// Why a request that the server has carried out does not count.
const TOO_FEW: &str = "too few copies are confirmed";

pub(crate) fn too_few_copies(error: &Error) -> bool {
    std::error::Error::source(error).is_some_and(|source| source.to_string() == TOO_FEW)
}

/// How many requests go out together at most, with one more that waits: a connection has no more in flight. The next burst
/// waits for the disk again, for up to a second, so all renewals of a session should be in one. Where a call may touch one slot
/// only, each entry is a request.
const BURST: usize = MOST_PLACES - 1;

#[cfg(test)]
mod tests {
    use leasehold_core::ErrorKind;

    use super::*;

    /// A server that refuses to wait, as one that is busy by then, has carried out what went before.
    #[test]
    fn unconfirmed_request_may_be_applied() {
        let (none, disk) = (Copies::NONE, Copies { replicas: 1, disk: true });
        let two = Copies { replicas: 2, ..none };
        assert!(confirmed(&Ok(two), two).is_ok() && confirmed(&Ok(disk), disk).is_ok());
        for (reached, wanted) in [(disk, two), (two, disk), (Copies { replicas: 0, ..disk }, disk)] {
            assert!(too_few_copies(&confirmed(&Ok(reached), wanted).unwrap_err()), "{reached:?} {wanted:?}");
        }
        let busy = Error::not_applied(ErrorKind::Unavailable, "the server is busy");
        let unconfirmed = confirmed(&Err(busy), two).unwrap_err();
        assert_eq!((unconfirmed.kind(), unconfirmed.effect()), (&ErrorKind::Unavailable, Effect::Unknown));
    }

    /// The disk is the first of two numbers, and what is no answer is not taken for one.
    #[test]
    fn answers_say_where_a_request_is() {
        let read = |resp: &str| Copies::read(&redis::parse_redis_value(resp.as_bytes()).unwrap());
        assert_eq!(read(":2\r\n"), Some(Copies { replicas: 2, disk: false }));
        assert_eq!(read("*2\r\n:1\r\n:0\r\n"), Some(Copies { replicas: 0, disk: true }));
        assert_eq!(read("*2\r\n:0\r\n:3\r\n"), Some(Copies { replicas: 3, disk: false }));
        for foreign in ["+OK\r\n", ":-1\r\n", "*1\r\n:1\r\n", "*2\r\n:1\r\n+x\r\n"] {
            assert_eq!(read(foreign), None, "{foreign:?}");
        }
    }
}
