//! What a cycle costs, beside what one of somebody else costs: the evidence where a goal is missed.

use crate::options::Scenario;
use crate::report::table::number;
use crate::report::{Report, Row};

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
    /// Of a free lock's cycle, near by, as it was looked at by itself, of others in the timed turns.
    pub(super) fn of(report: &Report, row: &Row) -> Self {
        let requests = row.requests_per_cycle;
        let is_looked_at = row.scenario == Scenario::Uncontended.to_string();
        let profile = is_looked_at.then(|| report.profile(&row.store, &row.implementation)).flatten();
        match profile {
            Some(profile) => Self {
                requests,
                client: profile.client_us,
                server: profile.server_us,
                rest: profile.client_us.map(|_| profile.rest_us()),
            },
            None => Self {
                requests,
                client: row.client_us_per_cycle,
                server: row.server_us_per_cycle,
                rest: None,
            },
        }
    }

    /// In words: each of ours against each of theirs.
    pub(super) fn against(&self, theirs: &Self) -> Vec<String> {
        let each = |spent: &Self| Some(spent.server? / spent.requests.filter(|requests| *requests > 0.0)?);
        let told = [
            ("requests per cycle", self.requests.zip(theirs.requests)),
            ("µs of the server per request", each(self).zip(each(theirs))),
            ("µs of the server per cycle", self.server.zip(theirs.server)),
            ("µs of the client per cycle", self.client.zip(theirs.client)),
            ("µs of neither", self.rest.zip(theirs.rest).filter(|(ours, theirs)| ours + theirs > 0.0)),
        ];
        let told = told.into_iter().filter_map(|(what, both)| both.map(|both| (what, both)));
        told.map(|(what, (ours, theirs))| format!("{what} {} against {}", number(ours), number(theirs)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Profile;

    /// A free lock has what was looked at by itself, contenders, or who is far away, what their turns have cost.
    #[test]
    fn measurement_is_reported() {
        let profile = Profile {
            store: "redis".into(),
            implementation: "floor".into(),
            cycle_us: 30.0,
            client_us: Some(10.0),
            server_us: Some(12.0),
        };
        let report = Report { profiles: vec![profile], ..Report::default() };
        let row = |scenario: &str| Row {
            scenario: scenario.into(),
            store: "redis".into(),
            implementation: "floor".into(),
            requests_per_cycle: Some(2.0),
            client_us_per_cycle: Some(50.0),
            ..Row::default()
        };
        let [free, away, contended] =
            ["uncontended", "distance", "processes"].map(|scenario| Spent::of(&report, &row(scenario)));
        let known = Spent { requests: Some(2.0), client: Some(10.0), server: Some(12.0), rest: Some(8.0) };
        assert_eq!(free, known);
        for timed in [away, contended] {
            assert_eq!((timed.client, timed.server, timed.rest), (Some(50.0), None, None));
        }
    }
}
