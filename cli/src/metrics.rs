//! `--metrics-addr`: the metrics of the lock, as text that Prometheus reads.
//!
//! # Invariants
//! - Connections here do not delay the lock: answers have their own thread and runtime, and few connections
//!   are open at a time, each for one request and a few seconds. Further ones wait in the operating system
//!   and use no file of this process.

use std::convert::Infallible;
use std::error::Error as StdError;
use std::io;
use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use http_body_util::Full;
use hyper::Response;
use hyper::body::Bytes;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::{interval, sleep, timeout};

use crate::failure::Failure;

/// Serves the metrics from now on, at `/metrics` and every other path.
pub(crate) async fn serve(address: SocketAddr) -> Result<(), Failure> {
    let buckets = PrometheusBuilder::new().set_buckets(&BUCKETS).expect("there are buckets");
    let metrics = buckets.install_recorder().map_err(|error| refused(address, error))?;
    leasehold::describe_metrics();
    let (told, listening) = oneshot::channel();
    let server = move || match listen(address) {
        Ok((runtime, listener)) => {
            let _asked = told.send(Ok(()));
            runtime.block_on(answer(&listener, &metrics));
        }
        Err(error) => _ = told.send(Err(error)),
    };
    let begun = thread::Builder::new().name("metrics".to_owned()).spawn(server);
    begun.map_err(|error| refused(address, error))?;
    let listening = listening.await.expect("the thread says how it begins");
    listening.map_err(|error| refused(address, error))
}

fn refused(address: SocketAddr, error: impl StdError) -> Failure {
    Failure::system(format_args!("cannot serve metrics at {address}"), error)
}

fn listen(address: SocketAddr) -> io::Result<(Runtime, TcpListener)> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let listener = runtime.block_on(TcpListener::bind(address))?;
    Ok((runtime, listener))
}

async fn answer(listener: &TcpListener, metrics: &PrometheusHandle) {
    let mut connections = JoinSet::new();
    let mut upkeep = interval(UPKEEP);
    loop {
        tokio::select! {
            _ = upkeep.tick() => metrics.run_upkeep(),
            Some(_ended) = connections.join_next() => {}
            accepted = listener.accept(), if connections.len() < CONNECTIONS => match accepted {
                Ok((stream, _)) => _ = connections.spawn(timeout(BOUND, one_request(stream, metrics.clone()))),
                Err(error) => {
                    tracing::debug!(error = ?error.to_string(), "cannot accept a connection for metrics");
                    // A missing resource, such as free files, is missing for a while.
                    sleep(PAUSE).await;
                }
            },
        }
    }
}

async fn one_request(stream: TcpStream, metrics: PrometheusHandle) {
    let service = service_fn(|_request| async {
        let mut response = Response::new(Full::<Bytes>::from(metrics.render()));
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
        Ok::<_, Infallible>(response)
    });
    let mut http = http1::Builder::new();
    if let Err(error) = http.keep_alive(false).serve_connection(TokioIo::new(stream), service).await {
        tracing::debug!(error = ?error.to_string(), "cannot serve metrics");
    }
}

/// Prometheus has one; people open others.
const CONNECTIONS: usize = 8;
/// For a request and its answer.
const BOUND: Duration = Duration::from_secs(5);
/// After a connection that could not be taken.
const PAUSE: Duration = Duration::from_millis(100);
/// How often counted durations are sorted into their buckets without a request.
const UPKEEP: Duration = Duration::from_secs(5);
/// From the cost of a free lock to that of a long job, in seconds.
const BUCKETS: [f64; 12] = [0.001, 0.005, 0.02, 0.1, 0.5, 1.0, 5.0, 30.0, 120.0, 600.0, 3_600.0, 86_400.0];
