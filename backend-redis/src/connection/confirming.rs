//! Waiting for replicas, once for everything that came meanwhile.
//!
//! A server counts the replicas that have what came through the asking connection, and does nothing else
//! for that connection until they do. So what is to be confirmed is run on a connection of its own, and what
//! comes while replicas are waited for goes out together, with one `WAIT` behind it.

use std::sync::Arc;

use leasehold_core::clock::Moment;
use leasehold_core::{Effect, Env, Error, Result};
use redis::Value;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::Link;
use super::wire::Refusals;
use crate::error;
use crate::scripts::{Call, millis};

/// The way to the replicas; its task ends with the session.
#[derive(Debug)]
pub(crate) struct Confirming {
    env: Env,
    pub(crate) replicas: u32,
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
    pub(crate) fn start(env: &Env, link: Arc<Link>, replicas: u32, closed: CancellationToken) -> Self {
        let (questions, asked) = mpsc::unbounded_channel();
        let bursts = Bursts { env: env.clone(), link, replicas, asked };
        env.spawn(async move {
            closed.run_until_cancelled_owned(bursts.run()).await;
        });
        Self { env: env.clone(), replicas, questions }
    }

    /// Runs a script and waits until replicas have it; when it was sent, and its answer.
    ///
    /// # Errors
    ///
    /// As the server's table; unknown, and by [`too_few_replicas`], if not enough of them confirm in time.
    pub(crate) async fn run(&self, call: Call, give_up_at: Moment) -> Result<(Moment, Value)> {
        let (answer, answered) = oneshot::channel();
        // The task ends with the connection, and drops the question: it may have been sent.
        let _ = self.questions.send(Question { call, refusals: Refusals::default(), give_up_at, answer });
        tokio::select! {
            biased;
            answer = answered => answer.unwrap_or_else(|_| {
                Err(error::unanswered("the connection ended before replicas confirmed"))
            }),
            () = self.env.sleep_until(give_up_at) => {
                Err(error::unanswered("replicas were not waited for in time"))
            }
        }
    }
}

struct Bursts {
    env: Env,
    link: Arc<Link>,
    replicas: u32,
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
            let answer = answer.extract_error();
            match answer {
                _ if question.refusals.one_more(&answer) => left.push(question),
                Err(error) => question.reply(Err(error::of(error))),
                Ok(answer) => question.reply(enough(&reached, self.replicas).map(|()| (sent_at, answer))),
            }
        }
        left
    }

    /// When it was sent, what each was answered, and how many replicas have it or why that is not known.
    async fn send(
        &self,
        burst: &mut [Question],
        give_up_at: Moment,
    ) -> Result<(Moment, Vec<Value>, Result<i64>)> {
        let connected = self.link.connected(give_up_at).await?;
        let sent_at = self.env.now();
        // The server gives up before we do, so that its reply arrives.
        let bound = give_up_at.since(sent_at) * 3 / 4;
        let mut wait = redis::cmd("WAIT");
        wait.arg(self.replicas).arg(millis(bound).max(1));
        let mut calls: Vec<_> =
            burst.iter_mut().map(|Question { call, refusals, .. }| (&*call, refusals)).collect();
        let mut answers = connected.run_all(&mut calls, &wait, give_up_at).await?;
        match answers.pop().map(Value::extract_error) {
            Some(Ok(Value::Int(reached))) if answers.len() == burst.len() => {
                Ok((sent_at, answers, Ok(reached)))
            }
            Some(Err(refused)) if answers.len() == burst.len() => {
                Ok((sent_at, answers, Err(error::of(refused))))
            }
            _ => Err(error::unexpected("the number of replicas")),
        }
    }
}

impl Question {
    fn reply(self, answer: Result<(Moment, Value)>) {
        // The caller may have given up; then the reply is dropped.
        let _ = self.answer.send(answer);
    }
}

/// Whether what was carried out has reached as many replicas as are wanted.
fn enough(reached: &Result<i64>, wanted: u32) -> Result<()> {
    match reached {
        Ok(reached) if *reached < i64::from(wanted) => {
            let message = format!("{reached} replicas confirmed in time, {wanted} are wanted");
            Err(error::unanswered(message).with_source(TOO_FEW))
        }
        Ok(_) => Ok(()),
        // Only the waiting was refused.
        Err(refused) => Err(refused.clone().with_effect(Effect::Unknown)),
    }
}

/// Why a request that the server has carried out does not count.
const TOO_FEW: &str = "too few replicas answer";

pub(crate) fn too_few_replicas(error: &Error) -> bool {
    std::error::Error::source(error).is_some_and(|source| source.to_string() == TOO_FEW)
}

/// How many requests go out together at most: one for each hundred entries that are renewed, one for each
/// that is granted.
const BURST: usize = 100;

#[cfg(test)]
mod tests {
    use leasehold_core::ErrorKind;

    use super::*;

    /// A server that refuses to wait, as one that is busy by then, has carried out what went before.
    #[test]
    fn unconfirmed_request_may_be_applied() {
        assert!(enough(&Ok(2), 2).is_ok());
        assert!(too_few_replicas(&enough(&Ok(1), 2).unwrap_err()));
        let busy = Error::not_applied(ErrorKind::Unavailable, "the server is busy");
        let unconfirmed = enough(&Err(busy), 2).unwrap_err();
        assert_eq!((unconfirmed.kind(), unconfirmed.effect()), (&ErrorKind::Unavailable, Effect::Unknown));
    }
}
