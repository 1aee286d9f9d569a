//! The word of a server that it has given a slot away.

use async_trait::async_trait;
use leasehold_core::clock::Moment;
use redis::{RedisError, Value};

use super::shards::Shards;
use crate::config::Address;
use crate::connection::Refuses;
use crate::scripts::text;

#[async_trait]
impl Refuses for Shards {
    async fn refuses(&self, server: &Address, run: &str, key: &str, give_up_at: Moment) -> bool {
        let mut process = redis::cmd("INFO");
        process.arg("server");
        let mut about = redis::cmd("GET");
        about.arg(key);
        let asked = async {
            let connected = self.connected(server, give_up_at).await?;
            connected.ask_all(&[process, about], give_up_at).await
        };
        let answers = asked.await.unwrap_or_default();
        let [process, about] = &answers[..] else { return false };
        let is_run = text(process)
            .is_some_and(|info| info.lines().any(|line| line.trim().strip_prefix("run_id:") == Some(run)));
        is_run && is_elsewhere(about)
    }
}

/// Whether an answer says that the slot is at another server. A replica says so, too.
fn is_elsewhere(answer: &Value) -> bool {
    let Value::ServerError(error) = answer else { return false };
    RedisError::from(error.clone()).code() == Some("MOVED")
}
