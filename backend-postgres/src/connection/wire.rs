//! One connection, whose requests are sent one behind the other without waiting for answers.

use std::future::poll_fn;
use std::time::Duration;

use futures_util::future::try_join_all;
use leasehold_core::{Effect, Env, Result};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Semaphore;
use tokio_postgres::{Client, Config, Connection, NoTls, Statement};
use tokio_util::sync::CancellationToken;

use super::OnMessage;
use super::reply::{Rows, Values};
use crate::certificates::Encryption;
use crate::error;

pub(crate) struct Wire {
    env: Env,
    client: Client,
    /// Permits for requests: one that waits behind many others would seem to have no answer.
    room: Semaphore,
    /// Statements by their text, which the server has parsed.
    prepared: Mutex<Vec<(String, Statement)>>,
    broken: CancellationToken,
}

impl Wire {
    /// Connects. The connection ends with `broken`, and cancels it when it ends.
    pub(super) async fn connect(
        env: &Env,
        config: &Config,
        encryption: Option<&Encryption>,
        broken: &CancellationToken,
        on_message: &OnMessage,
    ) -> Result<Self> {
        let (on_message, ends) = (OnMessage::clone(on_message), broken.clone());
        let client = match encryption {
            None => {
                let (client, connection) =
                    config.connect(NoTls).await.map_err(|error| error::of_connecting(&error))?;
                env.spawn(drive(connection, ends, on_message));
                client
            }
            #[cfg(feature = "tls")]
            Some(encryption) => {
                let made = config.connect(encryption.clone()).await;
                let (client, connection) = made.map_err(|error| error::of_connecting(&error))?;
                env.spawn(drive(connection, ends, on_message));
                client
            }
            #[cfg(not(feature = "tls"))]
            Some(encryption) => match *encryption {},
        };
        Ok(Self {
            env: env.clone(),
            client,
            room: Semaphore::new(AT_ONCE),
            prepared: Mutex::default(),
            broken: broken.clone(),
        })
    }

    /// Lets the server parse statements once for all requests of this connection. If it refuses, each request brings its text.
    pub(super) async fn prepare(&self, texts: Vec<String>) -> Result<()> {
        let request = async {
            match try_join_all(texts.iter().map(|text| self.client.prepare(text))).await {
                Err(error) if error.as_db_error().is_some() => Ok(None),
                prepared => prepared.map(Some),
            }
        };
        let prepared = self.bounded(self.env.timing().op_timeout, request).await?;
        if let Some(prepared) = prepared {
            *self.prepared.lock() = texts.into_iter().zip(prepared).collect();
        }
        Ok(())
    }

    fn prepared(&self, text: &str) -> Option<Statement> {
        let all = self.prepared.lock();
        all.iter().find(|(prepared, _)| prepared == text).map(|(_, statement)| statement.clone())
    }

    /// Sends one statement, and waits for its answer for as long as a request may take.
    ///
    /// # Cancel safety
    ///
    /// A statement that was sent may be carried out.
    pub(crate) async fn ask(&self, statement: &str, values: Values<'_>) -> Result<Rows> {
        let request = async {
            if let Some(prepared) = self.prepared(statement) {
                let plain: Vec<_> = values.iter().map(|(value, _)| *value).collect();
                match self.client.query(&prepared, &plain).await {
                    // Nothing was applied. A pooler that came in between may have another connection for each request.
                    Err(error) if error::is_unprepared(&error) => self.prepared.lock().clear(),
                    answer => return answer,
                }
            }
            self.client.query_typed(statement, values).await
        };
        self.bounded(self.env.timing().op_timeout, request).await.map(Rows)
    }

    /// Sends statements without values.
    pub(crate) async fn run(&self, statements: &str) -> Result<()> {
        self.bounded(self.env.timing().op_timeout, self.client.batch_execute(statements)).await
    }

    /// The same for statements that take longer than a request.
    pub(crate) async fn install(&self, statements: &str) -> Result<()> {
        self.bounded(self.env.timing().connect_timeout, self.client.batch_execute(statements)).await
    }

    async fn bounded<T: Send>(
        &self,
        bound: Duration,
        request: impl Future<Output = Result<T, tokio_postgres::Error>> + Send,
    ) -> Result<T> {
        let permit = self.env.within(bound, self.room.acquire()).await;
        // The semaphore is never closed.
        let _permit = permit.ok_or_else(|| error::silent(bound).with_effect(Effect::NotApplied))?;
        // Boxed: the client's futures are large.
        let Some(answer) = self.env.within(bound, Box::pin(request)).await else {
            self.broken.cancel();
            return Err(error::silent(bound));
        };
        answer.map_err(|error| {
            if error::needs_another_connection(&error) {
                self.broken.cancel();
            }
            error::of_client(&error)
        })
    }
}

/// Moves the bytes of a connection until it ends, `broken` does, or a message says that no answer after it counts.
async fn drive<S, T>(mut connection: Connection<S, T>, broken: CancellationToken, on_message: OnMessage)
where
    S: AsyncRead + AsyncWrite + Unpin + Send,
    T: AsyncRead + AsyncWrite + Unpin + Send,
{
    let _ends = broken.clone().drop_guard();
    while let Some(Some(Ok(message))) =
        broken.run_until_cancelled(poll_fn(|cx| connection.poll_message(cx))).await
    {
        if on_message(message).is_break() {
            return;
        }
    }
}

/// So many requests are on their way at once.
const AT_ONCE: usize = 64;
