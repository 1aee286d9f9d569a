//! What a cycle costs, beside what one of somebody else costs: the evidence where a goal is missed.

use crate::options::Scenario;
use crate::report::Row;
use crate::report::table::number;

/// Of one cycle, as far as it is told.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Spent {
    requests: Option<f64>,
    /// User and system, in microseconds; of the server as well.
    client: Option<f64>,
    server: Option<f64>,
    /// Neither of both: the way between them, the disk, and whatever else is waited for. Of contenders it is shared, and so
    /// it is told of a free lock alone.
    rest: Option<f64>,
}

impl Spent {
    pub(super) fn of(row: &Row) -> Self {
        let Row {
            requests_per_cycle: requests,
            client_us_per_cycle: client,
            server_us_per_cycle: server,
            ..
        } = *row;
        let is_free = row.scenario == Scenario::Uncontended.to_string() && client.is_some();
        let rest = row.rest_us().filter(|_| is_free);
        Self { requests, client, server, rest }
    }

    /// In words: what a cycle of ours takes and one of theirs.
    pub(super) fn against(&self, theirs: &Self) -> Vec<String> {
        let told = [
            ("requests", self.requests.zip(theirs.requests), ""),
            ("server", self.server.zip(theirs.server), " µs"),
            ("client", self.client.zip(theirs.client), " µs"),
            ("neither", self.rest.zip(theirs.rest).filter(|(ours, theirs)| ours + theirs > 0.0), " µs"),
        ];
        let told = told.into_iter().filter_map(|(what, both, unit)| Some((what, both?, unit)));
        told.map(|(what, (ours, theirs), unit)| format!("{what} {} : {}{unit}", number(ours), number(theirs)))
            .collect()
    }
}
