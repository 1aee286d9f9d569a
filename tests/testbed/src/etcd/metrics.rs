//! What a member counts about itself, as it shows it to Prometheus.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::{Add, Sub};

/// Every number a member shows, by series: a name and its labels.
#[derive(Clone, Debug, Default)]
pub struct Metrics(BTreeMap<String, f64>);

impl Metrics {
    /// Reads Prometheus's text form; what is no number is left out.
    pub(super) fn parse(text: &str) -> Self {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let series = lines.filter_map(|line| {
            let (series, value) = line.rsplit_once(' ')?;
            Some((series.to_owned(), value.parse().ok()?))
        });
        Self(series.collect())
    }

    /// The sum over all series of `name` whose labels contain `label`, such as
    /// `grpc_method="Txn"`; zero if there is none.
    pub fn sum(&self, name: &str, label: &str) -> f64 {
        self.of(name).filter(|(labels, _)| labels.contains(label)).map(|(_, value)| value).sum()
    }

    /// The messages that clients have sent, by method. A request that is no stream is one message;
    /// a stream counts each, and counts no less while it is open.
    pub fn requests(&self) -> Requests {
        let mut requests = BTreeMap::new();
        for (labels, count) in self.of("grpc_server_msg_received_total") {
            let method = labels.split("grpc_method=\"").nth(1).and_then(|rest| rest.split('"').next());
            if let Some(method) = method {
                *requests.entry(method.to_owned()).or_insert(0) += as_count(count);
            }
        }
        requests.retain(|_, count| *count > 0);
        Requests(requests)
    }

    /// How many calls of a stream's method were opened and have not ended.
    pub fn open_streams(&self, method: &str) -> u64 {
        let label = format!("grpc_method=\"{method}\"");
        let started = self.sum("grpc_server_started_total", &label);
        as_count(started - self.sum("grpc_server_handled_total", &label))
    }

    fn of<'a>(&'a self, name: &'a str) -> impl Iterator<Item = (&'a str, f64)> {
        self.0.iter().filter_map(move |(series, value)| {
            let labels = series.strip_prefix(name)?;
            (labels.is_empty() || labels.starts_with('{')).then_some((labels, *value))
        })
    }
}

/// Messages from clients by gRPC method.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Requests(BTreeMap<String, u64>);

impl Requests {
    /// All of them.
    pub fn total(&self) -> u64 {
        self.0.values().sum()
    }

    /// Those of one method, such as `Txn`.
    pub fn of(&self, method: &str) -> u64 {
        self.0.get(method).copied().unwrap_or(0)
    }
}

impl Add for Requests {
    type Output = Self;

    fn add(mut self, other: Self) -> Self {
        for (method, count) in other.0 {
            *self.0.entry(method).or_insert(0) += count;
        }
        self
    }
}

impl Sub<&Self> for Requests {
    type Output = Self;

    /// What came since `earlier`.
    fn sub(mut self, earlier: &Self) -> Self {
        for (method, count) in &mut self.0 {
            *count = count.saturating_sub(earlier.of(method));
        }
        self.0.retain(|_, count| *count > 0);
        self
    }
}

impl fmt::Display for Requests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(&self.0).finish()
    }
}

/// Counters are shown as floating-point numbers, exact far beyond any count here.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a whole number, not negative")]
fn as_count(value: f64) -> u64 {
    value.max(0.0) as u64
}
