//! Findings for an administrator: settings of the server that break promises, standbys, and what slows locks down.

use std::sync::Arc;

use leasehold_core::backend::Finding;
use leasehold_core::backend::Severity::{self, Broken, Ok as Fine, Warning};
use leasehold_core::{ErrorKind, Result};

use crate::connection::Columns;
use crate::session::Sessions;
use crate::{error, schema};

/// One look at a server, each a statement with one row.
struct Inspection {
    subject: &'static str,
    statement: &'static str,
    judge: fn(&Columns<'_>) -> Result<(Severity, String)>,
}

const LOOKS: [Inspection; 7] = [
    Inspection {
        subject: "version",
        statement: "SELECT current_setting('server_version'), current_setting('server_version_num')::int",
        judge: |row| {
            let (version, number) = (row.get::<String>(0)?, row.get::<i32>(1)?);
            let severity = if number < 130_000 { Warning } else { Fine };
            Ok((severity, format!("the server runs PostgreSQL {version}; leasehold needs 13 or later")))
        },
    },
    Inspection {
        subject: "disk",
        statement: "SELECT current_setting('fsync'), current_setting('full_page_writes')",
        judge: |row| match (row.get::<&str>(0)?, row.get::<&str>(1)?) {
            ("on", "on") => Ok((Fine, "fsync and full_page_writes are on".to_owned())),
            (fsync, pages) => Ok((
                Broken,
                format!(
                    "fsync is {fsync} and full_page_writes is {pages}: a crash may lose granted locks; set both on"
                ),
            )),
        },
    },
    Inspection {
        subject: "era",
        statement: "SELECT pg_walfile_name(pg_current_wal_insert_lsn())",
        judge: |row| {
            let file: String = row.get(0)?;
            let timeline = file.get(..8).unwrap_or("?");
            Ok((Fine, format!("tokens follow the server's timeline, {timeline}")))
        },
    },
    Inspection {
        subject: "standbys",
        statement: "SELECT current_setting('synchronous_standby_names')",
        judge: |row| {
            match row.get::<&str>(0)? {
            "" => Ok((
                Warning,
                "no standby is synchronous: a promoted standby may have lost granted locks; tokens grow all the same".to_owned(),
            )),
            names => Ok((Fine, format!("synchronous standbys: {names}"))),
        }
        },
    },
    Inspection {
        subject: "messages",
        statement: "SELECT pg_notification_queue_usage()",
        judge: |row| {
            let used: f64 = row.get(0)?;
            let severity = if used > 0.5 { Warning } else { Fine };
            Ok((severity, format!("the notification queue is {:.0} % full", used * 100.0)))
        },
    },
    Inspection {
        subject: "connections",
        statement: "SELECT count(*), current_setting('max_connections')::bigint FROM pg_stat_activity",
        judge: |row| {
            let (used, all) = (row.get::<i64>(0)?, row.get::<i64>(1)?);
            let severity = if used * 10 > all * 9 { Warning } else { Fine };
            Ok((severity, format!("{used} of {all} connections are in use; each manager needs two")))
        },
    },
    Inspection {
        subject: "snapshots",
        statement: "SELECT coalesce(max(age(backend_xmin)), 0)::bigint, (SELECT count(*) FROM pg_prepared_xacts) \
                    FROM pg_stat_activity WHERE datname = current_database()",
        judge: |row| match (row.get::<i64>(0)?, row.get::<i64>(1)?) {
            (age, 0) if age < 100_000 => Ok((Fine, "no transaction of this database is old".to_owned())),
            (age, prepared) => Ok((
                Warning,
                format!(
                    "the oldest transaction of this database is {age} transactions old, and {prepared} are prepared: they keep \
                     dead rows, which slows locks down"
                ),
            )),
        },
    },
];

/// Everything worth knowing about the server.
pub(crate) async fn diagnose(sessions: &Arc<Sessions>) -> Result<Vec<Finding>> {
    let line = sessions.server.line().await?;
    let mut findings = Vec::new();
    for look in LOOKS {
        let reply = line.requests.ask(look.statement, &[]).await;
        let found = reply.and_then(|reply| (look.judge)(&reply.one()?));
        let (severity, detail) = match found {
            Ok(found) => found,
            Err(error) if *error.kind() == ErrorKind::Unavailable => return Err(error),
            Err(error) => (Warning, format!("cannot look at this: {error:#}")),
        };
        findings.push(Finding::new(severity, look.subject, detail));
    }
    let (severity, detail) = match schema::is_private(&sessions.server.config.schema, &line.requests).await? {
        true => (Fine, "only the owner of the schema may create anything in it".to_owned()),
        false => (Broken, error::shared_schema(&sessions.server.config.schema).to_string()),
    };
    findings.push(Finding::new(severity, "rights", detail));
    Ok(findings)
}
