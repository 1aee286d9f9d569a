//! The voting members of the ensemble, by its own configuration, and how many of them can be reached.

use std::collections::HashSet;
use std::net::SocketAddr;

use futures_util::future::join;
use leasehold_core::backend::{Endpoint, Finding, Severity};

use crate::connection::status;
use crate::protocol::Failure;
use crate::session::Session;

/// The voting members, and the configured ways to them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Members {
    /// `None` if they are unknown: a server is standalone, the node cannot be read, or votes have weights.
    voters: Option<usize>,
    ways: Ways,
}

/// To how many servers the way is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ways {
    Named(usize),
    /// One host is named, which has so many addresses.
    Resolved(usize),
}

impl Session {
    /// Reads the configuration of the server in use, and resolves the only host.
    pub(crate) async fn members(&self) -> Members {
        let (voters, ways) = join(self.voters(), self.ways()).await;
        Members { voters, ways }
    }

    /// `None` if the server does not show them. A request without an answer is repeated once.
    async fn voters(&self) -> Option<usize> {
        let mut read = self.connection.read(CONFIGURATION).await;
        if read.as_ref().is_err_and(|lost| lost.failure() == Failure::Unknown) {
            read = self.connection.read(CONFIGURATION).await;
        }
        read.ok().and_then(|(data, _)| voters(&String::from_utf8_lossy(&data)))
    }

    async fn ways(&self) -> Ways {
        let servers: HashSet<Endpoint> =
            self.site.config.endpoints().unwrap_or_default().into_iter().collect();
        let [server] = Vec::from_iter(&servers)[..] else {
            return Ways::Named(servers.len());
        };
        let env = &self.site.env;
        let found = env.within(env.timing().op_timeout, status::addresses(server)).await;
        Ways::of_one_name(&found.and_then(Result::ok).unwrap_or_default())
    }
}

impl Ways {
    /// A server may have an address of either family.
    fn of_one_name(addresses: &[SocketAddr]) -> Self {
        let of_one_family = addresses.iter().filter(|address| address.is_ipv4()).count();
        match of_one_family.max(addresses.len() - of_one_family) {
            0 | 1 => Self::Named(1),
            several => Self::Resolved(several),
        }
    }
}

impl Members {
    /// Whether a lock outlives the loss of any server: there is a quorum, and a way to it.
    pub(crate) fn survive_a_loss(self) -> bool {
        matches!((self.voters, self.ways), (Some(3..), Ways::Named(2..) | Ways::Resolved(2..)))
    }

    /// The finding for an administrator.
    pub(super) fn finding(self) -> Finding {
        let warning = |detail| (Severity::Warning, detail);
        let (severity, detail) = match (self.voters, self.ways) {
            (None, _) => warning(
                "cannot determine the voting members, so SURVIVES_FAILOVER is not promised: the server is \
                 standalone, /zookeeper/config cannot be read, or votes have weights"
                    .to_owned(),
            ),
            (Some(voters @ 0..3), _) => warning(format!(
                "{voters} voting member(s): the loss of one stops every lock; run three or five"
            )),
            (Some(voters), Ways::Named(1)) => warning(format!(
                "{voters} voting members, but only 1 is named, with one address: SURVIVES_FAILOVER is not \
                 promised; name all of them"
            )),
            (Some(voters), Ways::Named(named)) if named < voters => warning(format!(
                "{voters} voting members, but only {named} are named as hosts: name all of them"
            )),
            (Some(voters), Ways::Named(_)) => (Severity::Ok, format!("{voters} voting members")),
            (Some(voters), Ways::Resolved(addresses)) => (
                if addresses < voters { Severity::Warning } else { Severity::Ok },
                format!("{voters} voting members, behind one name that has {addresses} addresses"),
            ),
        };
        Finding::new(severity, "members", detail)
    }
}

/// The voting members in a configuration, which has one line for each server, and others.
fn voters(configuration: &str) -> Option<usize> {
    let keys = |key| configuration.lines().filter(move |line: &&str| line.starts_with(key));
    let votes = |line: &&str| !line.split(';').next().is_some_and(|line| line.ends_with(":observer"));
    let have_weights = keys("group.").chain(keys("weight.")).next().is_some();
    let voters = keys("server.").filter(votes).count();
    (voters > 0 && !have_weights).then_some(voters)
}

/// The node in which an ensemble keeps it.
const CONFIGURATION: &str = "/zookeeper/config";

#[cfg(test)]
mod tests {
    use super::*;

    /// Only members that are known to vote, one vote each, count.
    #[test]
    fn voters_are_counted() {
        const MEMBER: &str = "server.1=h1:2888:3888:participant;0.0.0.0:2181\n";
        let observer = "server.4=h4:2888:3888|h5:2888:3888:observer;0.0.0.0:2181\n";
        let plain = "server.2=h2:2888:3888\n";
        for (lines, known) in [
            (vec![], None),
            (vec!["version=0"], None),
            (vec![observer, "version=0"], None),
            (vec![MEMBER, plain, observer, "version=0"], Some(2)),
            (vec![MEMBER, plain, MEMBER, observer, "version=100000000"], Some(3)),
            (vec![MEMBER, MEMBER, MEMBER, "group.1=1:2:3\n", "weight.1=1\n"], None),
        ] {
            assert_eq!(voters(&lines.concat()), known, "{lines:?}");
        }
    }

    /// An address of either family is one way, two of one family are two.
    #[test]
    fn a_name_is_as_many_ways_as_it_has_addresses() {
        for (addresses, ways) in [
            (vec![], Ways::Named(1)),
            (vec!["10.0.0.1:1"], Ways::Named(1)),
            (vec!["127.0.0.1:1", "[::1]:1"], Ways::Named(1)),
            (vec!["10.0.0.1:1", "10.0.0.2:1", "[fd00::1]:1"], Ways::Resolved(2)),
            (vec!["[fd00::1]:1", "[fd00::2]:1", "[fd00::3]:1"], Ways::Resolved(3)),
        ] {
            let found: Vec<SocketAddr> = addresses.iter().map(|address| address.parse().unwrap()).collect();
            assert_eq!(Ways::of_one_name(&found), ways, "{addresses:?}");
        }
    }

    /// The finding agrees with the promise, and with how many hosts are named.
    #[test]
    fn findings_agree_with_the_promise() {
        use Severity::{Ok, Warning};
        for (voters, ways, promised, severity, part) in [
            (None, Ways::Named(3), false, Warning, "not promised"),
            (Some(2), Ways::Named(2), false, Warning, "stops every lock"),
            (Some(3), Ways::Named(1), false, Warning, "not promised"),
            (Some(3), Ways::Named(2), true, Warning, "2 are named"),
            (Some(3), Ways::Named(3), true, Ok, "3 voting members"),
            (Some(3), Ways::Resolved(2), true, Warning, "has 2 addresses"),
            (Some(3), Ways::Resolved(3), true, Ok, "has 3 addresses"),
        ] {
            let members = Members { voters, ways };
            assert_eq!(members.survive_a_loss(), promised, "{members:?}");
            let finding = members.finding();
            assert_eq!(finding.severity, severity, "{finding:?}");
            assert!(finding.detail.contains(part), "{finding:?}");
        }
    }
}
