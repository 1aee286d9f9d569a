//! Who votes in the ensemble, as its own configuration says.

use lockcore::backend::{Finding, Severity};

use crate::session::Session;

/// The voting members of an ensemble.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Voters {
    Known(usize),
    /// A server that stands alone tells none; else the node may not be read, or votes have weights.
    Untold,
}

impl Session {
    /// Asks the server in use. What it does not tell is not known.
    pub(crate) async fn voters(&self) -> Voters {
        match self.connection.read(CONFIGURATION).await {
            Ok((data, _)) => Voters::told(&String::from_utf8_lossy(&data)),
            Err(_) => Voters::Untold,
        }
    }
}

impl Voters {
    /// What the configuration says: one line for every server, and others.
    fn told(configuration: &str) -> Self {
        let keys = |key| configuration.lines().filter(move |line: &&str| line.starts_with(key));
        if keys("group.").chain(keys("weight.")).next().is_some() {
            return Self::Untold;
        }
        let votes = |line: &&str| !line.split(';').next().is_some_and(|line| line.ends_with(":observer"));
        match keys("server.").filter(votes).count() {
            0 => Self::Untold,
            voters => Self::Known(voters),
        }
    }

    pub(crate) fn survive_a_loss(self) -> bool {
        matches!(self, Self::Known(3..))
    }

    /// What an administrator should know of it, where `named` servers are in the configuration of ours.
    pub(super) fn finding(self, named: usize) -> Finding {
        let (severity, detail) = match self {
            Self::Untold => (
                Severity::Warning,
                "the voting members are not told: the server stands alone, /zookeeper/config may not be read, or \
                 votes have weights; so SURVIVES_FAILOVER is not promised"
                    .to_owned(),
            ),
            Self::Known(voters) if voters < 3 => (
                Severity::Warning,
                format!("{voters} voting member(s): the loss of one stops every lock; run three or five"),
            ),
            Self::Known(voters) if named < voters => (
                Severity::Warning,
                format!("{voters} voting members, of which {named} are named as hosts; name them all"),
            ),
            Self::Known(voters) => (Severity::Ok, format!("{voters} voting members")),
        };
        Finding::new(severity, "members", detail)
    }
}

/// The node in which an ensemble keeps it.
const CONFIGURATION: &str = "/zookeeper/config";

#[cfg(test)]
mod tests {
    use super::*;

    /// Only members that are known to vote, one vote each, count; and three of them are enough.
    #[test]
    fn voters_are_counted() {
        const MEMBER: &str = "server.1=h1:2888:3888:participant;0.0.0.0:2181\n";
        let told = |lines: &[&str]| Voters::told(&lines.concat());
        let observer = "server.4=h4:2888:3888|h5:2888:3888:observer;0.0.0.0:2181\n";
        let plain = "server.2=h2:2888:3888\n";
        for (lines, voters, survive) in [
            (vec![], Voters::Untold, false),
            (vec!["version=0"], Voters::Untold, false),
            (vec![observer, "version=0"], Voters::Untold, false),
            (vec![MEMBER, plain, observer, "version=0"], Voters::Known(2), false),
            (vec![MEMBER, plain, MEMBER, observer, "version=100000000"], Voters::Known(3), true),
            (vec![MEMBER, MEMBER, MEMBER, "group.1=1:2:3\n", "weight.1=1\n"], Voters::Untold, false),
        ] {
            assert_eq!((told(&lines), told(&lines).survive_a_loss()), (voters, survive), "{lines:?}");
        }
    }

    /// What is said agrees with the promise, and with how many hosts are named.
    #[test]
    fn findings_agree_with_the_promise() {
        for (voters, named, severity, part) in [
            (Voters::Untold, 3, Severity::Warning, "not promised"),
            (Voters::Known(2), 2, Severity::Warning, "stops every lock"),
            (Voters::Known(3), 2, Severity::Warning, "2 are named"),
            (Voters::Known(3), 3, Severity::Ok, "3 voting members"),
        ] {
            let finding = voters.finding(named);
            assert_eq!(finding.severity, severity, "{finding:?}");
            assert!(finding.detail.contains(part), "{finding:?}");
        }
    }
}
