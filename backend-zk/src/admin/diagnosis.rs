//! The state of the ensemble: versions, modes, the limits of sessions, rights.

use std::time::Duration;

use futures_util::future::{join, join_all, join4};
use leasehold_core::Result;
use leasehold_core::backend::{Finding, Severity};

use crate::connection::status;
use crate::error::Explain;
use crate::keys;
use crate::session::{Session, Site};

impl Session {
    /// Checks the servers, the session and the rights.
    pub(crate) async fn diagnose(&self) -> Vec<Finding> {
        let (mut findings, session, rights, members) =
            join4(servers(&self.site), self.of_the_session(), self.of_the_rights(), self.members()).await;
        findings.push(members.finding());
        findings.extend(session);
        findings.push(rights);
        findings
    }

    async fn of_the_session(&self) -> Vec<Finding> {
        // ZooKeeper counts milliseconds.
        let millis = self.site.env.timing().ttl.as_millis();
        let asked = Duration::from_millis(u64::try_from(millis).unwrap_or(u64::MAX));
        let granted = self.timeout();
        let mut findings = vec![if asked == granted {
            Finding::new(Severity::Ok, "session", format!("sessions last {granted:?}, as requested"))
        } else {
            let detail = format!(
                "requested sessions of {asked:?}, granted {granted:?}: the servers' minSessionTimeout and \
                 maxSessionTimeout, by default 2 and 20 ticks, limit them"
            );
            Finding::new(Severity::Warning, "session", detail)
        }];
        let (shortest, longest) = join(granted_for(&self.site, SHORT), granted_for(&self.site, LONG)).await;
        findings.push(match (shortest, longest) {
            (Some(shortest), Some(longest)) if granted != asked.max(shortest).min(longest) => {
                let detail = format!(
                    "sessions now last from {shortest:?} to {longest:?}, but this one was granted \
                     {granted:?}: the servers' limits differ or have changed; make them equal and restart \
                     the managers"
                );
                Finding::new(Severity::Broken, "bounds", detail)
            }
            (Some(shortest), Some(longest)) => {
                let tick = shortest / 2;
                let detail = format!(
                    "sessions last from {shortest:?} to {longest:?}, so a tick is {tick:?} unless the limits \
                     were set: a dead holder's lock is free after at most {:?}",
                    granted + tick
                );
                Finding::new(Severity::Ok, "bounds", detail)
            }
            _ => Finding::new(
                Severity::Warning,
                "bounds",
                "cannot determine the servers' limits of sessions: no further session could be opened",
            ),
        });
        findings
    }

    async fn of_the_rights(&self) -> Finding {
        if let Err(error) = self.try_rights().await {
            return Finding::new(Severity::Broken, "rights", error.to_string());
        }
        for path in [&*self.site.namespace.root, keys::parent(&self.node).unwrap_or_default()] {
            if !path.is_empty() && self.connection.is_closable(path).await {
                let detail = format!(
                    "every client may change the rights of {path} and so deny access to all others: revoke \
                     that right, or delete the prefix when nothing runs"
                );
                return Finding::new(Severity::Warning, "rights", detail);
            }
        }
        Finding::new(Severity::Ok, "rights", "nodes can be created, listed, written and deleted")
    }

    async fn try_rights(&self) -> Result<()> {
        let listed = self.connection.list(self.site.namespace.node()).await;
        listed.or_not("list the locks")?;
        self.connection.try_rights(&format!("{}-rights", self.node)).await
    }
}

/// A finding about each server, by its own status.
async fn servers(Site { config, env, .. }: &Site) -> Vec<Finding> {
    let servers = match config.servers() {
        Ok(servers) => servers,
        Err(error) => return vec![Finding::new(Severity::Broken, "server", error.to_string())],
    };
    let servers = &servers;
    let asked = servers.all.iter().map(|server| async move {
        let said = env.within(env.timing().op_timeout, status::of_server(servers, server)).await;
        of_a_server(&server.to_string(), &said.and_then(Result::ok).unwrap_or_default())
    });
    join_all(asked).await
}

/// The finding of a server's answer to `srvr`.
fn of_a_server(server: &str, said: &str) -> Finding {
    let line = |key| said.lines().find_map(|line: &str| line.strip_prefix(key)).map(str::trim);
    let finding = |severity, what: &str| Finding::new(severity, "server", format!("{server} {what}"));
    let (Some(version), mode) = (line("Zookeeper version:"), line("Mode:")) else {
        return match said {
            "" => finding(Severity::Warning, "does not answer: it is not running or not reachable"),
            said if said.contains("not currently serving") => finding(Severity::Warning, "has no quorum"),
            _ => finding(Severity::Warning, "does not report version and mode: allow the command srvr"),
        };
    };
    let version = version.split(['-', ',']).next().unwrap_or(version);
    let is_old = version.split('.').take(2).filter_map(|part| part.parse::<u32>().ok()).lt([3, 5]);
    match mode {
        _ if is_old => finding(Severity::Broken, &format!("runs {version}; 3.5 or later is needed")),
        Some("standalone") => {
            let warning =
                format!("runs {version} alone: while it is not running, no lock can be acquired or held");
            finding(Severity::Warning, &warning)
        }
        Some("read-only") => {
            finding(Severity::Warning, &format!("runs {version}, has lost its quorum and serves only reads"))
        }
        mode => finding(
            Severity::Ok,
            &format!("runs {version} as {}", mode.unwrap_or("a server of unknown mode")),
        ),
    }
}

/// The timeout of a session that was requested with `wish`.
async fn granted_for(Site { config, env, .. }: &Site, wish: Duration) -> Option<Duration> {
    let servers = config.servers().ok()?;
    let connecting = Box::pin(servers.connect(wish, env.timing().connect_timeout));
    let client = env.within(env.timing().op_timeout, connecting).await?.ok()?;
    Some(client.session_timeout())
}

/// Less than any server grants, and enough to connect.
const SHORT: Duration = Duration::from_millis(150);
/// More than any server grants.
const LONG: Duration = Duration::from_secs(24 * 60 * 60);

#[cfg(test)]
mod tests {
    use super::*;

    /// Every answer of a server has its meaning.
    #[test]
    fn answers_of_servers_are_understood() {
        let status = |version: &str, mode: &str| {
            format!(
                "Zookeeper version: {version}-5a02a05eddb59aee6ac762f7ea82e92a68eb9c0f, built on 2022\nLatency min/avg/max: 0/0.0/0\nMode: {mode}\nNode count: 5\n"
            )
        };
        for (said, severity, shown) in [
            (status("3.8.0", "leader"), Severity::Ok, "3.8.0 as leader"),
            (status("3.10.1", "observer"), Severity::Ok, "3.10.1 as observer"),
            (status("3.8.0", "standalone"), Severity::Warning, "alone"),
            (status("3.8.0", "read-only"), Severity::Warning, "only reads"),
            (status("3.4.14", "follower"), Severity::Broken, "3.5 or later"),
            (String::new(), Severity::Warning, "does not answer"),
            ("srvr is not executed because it is not in the whitelist.".into(), Severity::Warning, "srvr"),
            (
                "This ZooKeeper instance is not currently serving requests\n".into(),
                Severity::Warning,
                "quorum",
            ),
        ] {
            let finding = of_a_server("h:2181", &said);
            assert_eq!(finding.severity, severity, "{said}");
            assert!(finding.detail.starts_with("h:2181 ") && finding.detail.contains(shown), "{finding:?}");
        }
    }
}
