//! A web service that works on one customer at a time, on any number of hosts.
//!
//! `cargo run --example axum_service [STORE]`, then `curl -X POST http://127.0.0.1:3000/customers/42/charge`

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::post;
use leasehold::{Error, ErrorKind, FencingToken, LockManager};
use rusqlite::Connection;

#[derive(Clone)]
struct Service {
    locks: LockManager,
    accounts: Arc<Mutex<Connection>>,
}

async fn charge(State(service): State<Service>, Path(customer): Path<String>) -> Result<String, StatusCode> {
    let lock = service.locks.lock(format!("customer/{customer}")).map_err(answer)?;
    let Some(guard) = lock.try_acquire_for(Duration::from_secs(3)).await.map_err(answer)? else {
        return Err(StatusCode::CONFLICT); // another request works on this customer
    };
    let token = guard.token();
    // The driver blocks, so it runs beside the runtime, which renews the lock.
    let charged = tokio::task::spawn_blocking(move || service.charge(&customer, token));
    let charged = charged.await.map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?;
    // The account decides the answer. A lock that was lost, or is not released yet, does not undo the charge.
    if let Err(error) = guard.release().await {
        eprintln!("{error:#}");
    }
    if charged { Ok(format!("charged, token {token}\n")) } else { Err(StatusCode::CONFLICT) }
}

impl Service {
    /// Refuses a writer that comes after a later one has written.
    fn charge(&self, customer: &str, token: FencingToken) -> bool {
        let accounts = self.accounts.lock().expect("no request panics here");
        let update = "INSERT INTO accounts VALUES (?1, -1, ?2) ON CONFLICT (customer)
            DO UPDATE SET balance = balance - 1, token = ?2 WHERE token < ?2";
        accounts.execute(update, (customer, token.get_i64())).is_ok_and(|rows| rows == 1)
    }
}

/// The kind decides what the client gets. The text names servers and holders, and is for the log.
fn answer(error: Error) -> StatusCode {
    eprintln!("{error:#}");
    match error.kind() {
        ErrorKind::Unavailable | ErrorKind::Timeout { .. } | ErrorKind::Closed => {
            StatusCode::SERVICE_UNAVAILABLE
        }
        ErrorKind::Lost { .. } => StatusCode::CONFLICT,
        ErrorKind::InvalidName => StatusCode::BAD_REQUEST,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let store = std::env::args().nth(1).unwrap_or_else(|| "memory://".to_owned());
    let locks = leasehold::connect(&store).await?;
    let accounts = Connection::open_in_memory()?;
    accounts.execute("CREATE TABLE accounts (customer TEXT PRIMARY KEY, balance INT, token INT)", ())?;
    let service = Service { locks: locks.clone(), accounts: Arc::new(Mutex::new(accounts)) };
    let app = Router::new().route("/customers/{customer}/charge", post(charge)).with_state(service);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:3000").await?;
    let stopped = async { drop(tokio::signal::ctrl_c().await) };
    // Requests end before their locks do.
    axum::serve(listener, app).with_graceful_shutdown(stopped).await?;
    Ok(locks.shutdown().await?)
}
