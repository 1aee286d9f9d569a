//! `--metrics-addr`: what happens to the lock, as text that Prometheus reads.

use std::net::SocketAddr;

use metrics_exporter_prometheus::PrometheusBuilder;

use crate::failure::Failure;

/// Serves what is counted from now on, at `/metrics` and everywhere else.
pub(crate) fn serve(address: SocketAddr) -> Result<(), Failure> {
    let buckets = PrometheusBuilder::new().set_buckets(&BUCKETS).expect("there are buckets");
    let installed = buckets.with_http_listener(address).install();
    installed.map_err(|error| Failure::system(format_args!("cannot serve metrics at {address}"), error))?;
    leasehold::describe_metrics();
    Ok(())
}

/// From what a free lock costs to what a long job takes, in seconds.
const BUCKETS: [f64; 12] = [0.001, 0.005, 0.02, 0.1, 0.5, 1.0, 5.0, 30.0, 120.0, 600.0, 3_600.0, 86_400.0];
