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
            let mut pauses = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
            loop {
                let waiting = pause.waiting_for(&reign);
                if waiting.is_empty() {
                    return;
                }
                match self.refused(&link, run, pause, waiting).await {
                    Ok(Word::OfAnother) => return pause.is_silent(&reign),
                    Ok(Word::Refuses(slots)) if !slots.is_empty() => {
                        pause.refused(&slots);
                        pauses.reset();
                    }
                    Ok(Word::Refuses(_)) | Err(_) => {}
                }
                pauses.pause(&self.env).await;
            }
        };
        closed.run_until_cancelled(asked).await;
    }
}

/// What a server says about slots.
enum Word {
    /// Others have these. A replica says so, too.
    Refuses(Vec<(HashSlot, Left)>),
    /// It is another process.
    OfAnother,
}

impl Shards {
    async fn refused(
        &self,
        link: &Link,
        run: &str,
        pause: &SlotPause,
        waiting: Vec<(HashSlot, Left)>,
    ) -> Result<Word> {
        let give_up_at = self.env.now() + self.env.timing().op_timeout;
        let connected = link.connected(give_up_at).await?;
        let mut refused = Vec::new();
        for slots in waiting.chunks(MOST_TOGETHER) {
            let mut questions = vec![redis::cmd("INFO")];
            questions[0].arg("server");
            for (slot, _) in slots {
                let mut about = redis::cmd("GET");
                about.arg(pause.origin_of(*slot));
                questions.push(about);
            }
            let answers = connected.ask_all(&questions, give_up_at).await?;
            let process = answers.first().and_then(text);
            let found = process.and_then(|info| info.lines().find_map(|line| line.strip_prefix("run_id:")));
            match found.map(str::trim) {
                Some(found) if found != run => return Ok(Word::OfAnother),
                Some(_) => {
                    let said = slots.iter().zip(&answers[1..]);
                    refused
                        .extend(said.filter(|(_, about)| is_elsewhere(about)).map(|(slot, _)| slot.clone()));
                }
                // It is not ready.
                None => {}
            }
        }
        Ok(Word::Refuses(refused))
    }
}

/// Whether an answer says that the slot is at another server.
fn is_elsewhere(answer: &Value) -> bool {
    let Value::ServerError(error) = answer else { return false };
    RedisError::from(error.clone()).code() == Some("MOVED")
}

/// About how many slots a server is asked in one piece.
const MOST_TOGETHER: usize = 1000;
