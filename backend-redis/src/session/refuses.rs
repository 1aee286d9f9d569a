//! The word of a server that it has given a slot away.

use std::sync::{Arc, Weak};

use async_trait::async_trait;
use leasehold_core::Result;
use leasehold_core::backend::Backoff;
use leasehold_core::clock::Moment;
use redis::{RedisError, Value};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::shards::{FIRST_PAUSE, Shards};
use crate::config::Address;
use crate::connection::{Link, Refuses};
use crate::scripts::text;

/// A link to a server that was left, which no change of the map closes. Those who ask about slots share it.
#[derive(Debug)]
pub(super) struct FormerLink {
    link: Arc<Link>,
    _open: DropGuard,
}

#[async_trait]
impl Refuses for Shards {
    async fn refuses(self: Arc<Self>, server: &Address, run: &str, key: &str, give_up_at: Moment) -> bool {
        let former = self.former(server);
        // Each slot asks for itself, so that all of a server are many.
        let longest = FIRST_PAUSE.max(give_up_at.since(self.env.now()) / 16);
        let asked = async {
            let mut pauses = Backoff::new(FIRST_PAUSE, longest);
            loop {
                match self.word(&former.link, run, key, give_up_at).await {
                    Ok(Word::Refuses) => return true,
                    // The process has ended, so it says nothing any more.
                    Ok(Word::OfAnother) => return false,
                    Ok(Word::Serves) | Err(_) => pauses.pause(&self.env).await,
                }
            }
        };
        tokio::select! {
            biased;
            () = self.closed.cancelled() => false,
            refuses = asked => refuses,
            () = self.env.sleep_until(give_up_at) => false,
        }
    }
}

/// What a server says about a slot.
enum Word {
    /// Another one has it. A replica says so, too.
    Refuses,
    /// It has the slot, or is not ready.
    Serves,
    /// It is another process.
    OfAnother,
}

impl Shards {
    fn former(&self, server: &Address) -> Arc<FormerLink> {
        let mut formers = self.formers.lock();
        if let Some(former) = formers.get(server).and_then(Weak::upgrade) {
            return former;
        }
        let closed = CancellationToken::new();
        let link = self.reach.link_to(&self.env, server, None);
        link.start_later(closed.clone());
        let former = Arc::new(FormerLink { link, _open: closed.drop_guard() });
        formers.insert(server.clone(), Arc::downgrade(&former));
        former
    }

    async fn word(&self, link: &Link, run: &str, key: &str, give_up_at: Moment) -> Result<Word> {
        let mut process = redis::cmd("INFO");
        process.arg("server");
        let mut about = redis::cmd("GET");
        about.arg(key);
        let connected = link.connected(give_up_at).await?;
        let give_up_at = give_up_at.min(self.env.now() + self.env.timing().op_timeout);
        let answers = connected.ask_all(&[process, about], give_up_at).await?;
        let [process, about] = &answers[..] else { return Ok(Word::Serves) };
        let found = text(process).and_then(|info| info.lines().find_map(|line| line.strip_prefix("run_id:")));
        Ok(match found.map(str::trim) {
            Some(found) if found != run => Word::OfAnother,
            Some(_) if is_elsewhere(about) => Word::Refuses,
            _ => Word::Serves,
        })
    }
}

/// Whether an answer says that the slot is at another server.
fn is_elsewhere(answer: &Value) -> bool {
    let Value::ServerError(error) = answer else { return false };
    RedisError::from(error.clone()).code() == Some("MOVED")
}
