//! The word of a server that it has given slots away.

use std::sync::Arc;

use async_trait::async_trait;
use leasehold_core::Result;
use leasehold_core::backend::Backoff;
use redis::{RedisError, Value};

use super::shards::{FIRST_PAUSE, LONGEST_PAUSE, Shards};
use crate::cluster::HashSlot;
use crate::config::Address;
use crate::connection::{Left, Link, Refuses, SlotPause};
use crate::scripts::text;

#[async_trait]
impl Refuses for Shards {
    /// Over a link of its own, which no change of the map closes.
    async fn ask_former(self: Arc<Self>, server: Address, reign: Arc<str>) {
        let Some(pause) = &self.pause else { return };
        let (run, _) = reign.split_once(' ').unwrap_or_default();
        let closed = self.closed.child_token();
        let link = self.reach.link_to(&self.env, &server, None);
        link.start_later(closed.clone());
        let _open = closed.clone().drop_guard();
        let asked = async {
            let (mut pauses, mut first) = (Backoff::new(FIRST_PAUSE, LONGEST_PAUSE), 0);
            loop {
                let mut waiting = pause.waiting_for(&reign);
                if waiting.is_empty() {
                    return;
                }
                first %= waiting.len();
                waiting.rotate_left(first);
                for slots in waiting.chunks(MOST_TOGETHER) {
                    match self.refused(&link, run, pause, slots).await {
                        Ok(Word::OfAnother) => return pause.is_silent(&reign),
                        Ok(Word::Refuses(refused)) if !refused.is_empty() => {
                            pause.refused(&refused);
                            pauses.reset();
                        }
                        // It may not know of any yet. Later it is asked about others, too: it may keep these.
                        Ok(Word::Refuses(_)) => {
                            first += slots.len();
                            break;
                        }
                        Err(_) => break,
                    }
                }
                pauses.pause(&self.env).await;
            }
        };
        closed.run_until_cancelled(asked).await;
    }
}

/// What a server says about slots.
#[derive(Debug, PartialEq, Eq)]
enum Word<S> {
    /// Others have these. A replica says so, too.
    Refuses(Vec<S>),
    /// It is another process.
    OfAnother,
}

impl<S: Clone> Word<S> {
    /// Reads the answers of the process `run`: to `INFO`, and to a question about each of `slots`.
    fn read(run: &str, slots: &[S], answers: &[Value]) -> Self {
        // Without an `INFO` it is not ready.
        let Some((info, answers)) = answers.split_first() else { return Self::Refuses(Vec::new()) };
        let found = text(info).and_then(|info| info.lines().find_map(|line| line.strip_prefix("run_id:")));
        match found.map(str::trim) {
            None => Self::Refuses(Vec::new()),
            Some(found) if found != run => Self::OfAnother,
            Some(_) => {
                let refused = slots.iter().zip(answers).filter(|(_, answer)| is_elsewhere(answer));
                Self::Refuses(refused.map(|(slot, _)| slot.clone()).collect())
            }
        }
    }
}

impl Shards {
    async fn refused(
        &self,
        link: &Link,
        run: &str,
        pause: &SlotPause,
        slots: &[(HashSlot, Left)],
    ) -> Result<Word<(HashSlot, Left)>> {
        let give_up_at = self.env.now() + self.env.timing().op_timeout;
        let mut questions = vec![redis::cmd("INFO")];
        questions[0].arg("server");
        for (slot, _) in slots {
            let mut about = redis::cmd("GET");
            about.arg(pause.origin_of(*slot));
            questions.push(about);
        }
        let answers = link.connected(give_up_at).await?.ask_all(&questions, give_up_at).await?;
        Ok(Word::read(run, slots, &answers))
    }
}

/// Whether an answer says that the slot is at another server.
fn is_elsewhere(answer: &Value) -> bool {
    let Value::ServerError(error) = answer else { return false };
    RedisError::from(error.clone()).code() == Some("MOVED")
}

/// About how many slots a server is asked in one piece, and between two pauses while it refuses none.
const MOST_TOGETHER: usize = 100;

#[cfg(test)]
mod tests {
    use redis::parse_redis_value;

    use super::*;

    /// The word about one slot does not count for another, nor that of another process.
    #[test]
    fn word_is_of_the_slots_that_were_asked_about() {
        let refuses = |slots: &[&'static str]| Word::Refuses(slots.to_vec());
        let (info, other) = ("$14\r\nrun_id:a\r\nos:b\r\n", "$10\r\nrun_id:b\r\n\r\n");
        let (moved, nil, failed) = ("-MOVED 1 a:1\r\n", "$-1\r\n", "-LOADING wait\r\n");
        for (answers, word) in [
            (&[info, nil, moved, nil][..], refuses(&["2"])),
            (&[info, moved, failed, moved], refuses(&["1", "3"])),
            (&[info, moved], refuses(&["1"])),
            (&[other, moved, moved, moved], Word::OfAnother),
            (&[failed, moved, moved, moved], refuses(&[])),
            (&[nil, moved, moved, moved], refuses(&[])),
            (&[], refuses(&[])),
        ] {
            let read: Vec<_> =
                answers.iter().map(|answer| parse_redis_value(answer.as_bytes()).unwrap()).collect();
            assert_eq!(Word::read("a", &["1", "2", "3"], &read), word, "{answers:?}");
        }
    }
}
