//! `leasehold migrate`: how far a move to another store is, and a step forth or back.

use std::time::Duration;

use leasehold::migrate::{Admin, MemberStatus, Phase, Progress, Status, Steps, StoreStatus};
use leasehold::{Error, ErrorKind};

use crate::arguments::{Migrate, Steps as Words, Store};
use crate::failure::{Exit, Failure};
use crate::output;
use crate::store::Place;

pub(crate) async fn migrate(store: &Store, action: &Migrate, json: bool) -> Result<Exit, Failure> {
    if matches!(action, Migrate::Repair { yes: false, .. }) {
        return Err(Failure::usage(
            "`repair` is only for a store that lost its data or is permanently unavailable: stop every \
             process that uses these locks, then use `--yes`",
        ));
    }
    let admin = Place::of(store)?.admin().await?;
    let done = carry_out(&admin, action).await;
    if let Err(error) = admin.close().await {
        tracing::debug!(error = ?format!("{error:#}"), "sessions not closed cleanly");
    }
    match done.map_err(failure)? {
        Some(status) if json => output::json(&status)?,
        Some(status) => show(&status)?,
        None => {}
    }
    Ok(Exit::SUCCESS)
}

async fn carry_out(admin: &Admin, action: &Migrate) -> Result<Option<Status>, Error> {
    let mut said = String::new();
    // Only changes: it is called often.
    let mut tell = |progress: &Progress| {
        let now = progress.to_string();
        if now != said {
            output::note(&now);
            said = now;
        }
    };
    let steps = |words: &Words, quiet_for: Duration| {
        let steps =
            Steps::one().wait(words.wait).foreign_sessions(words.foreign_sessions).quiet_for(quiet_for);
        words.to.map_or_else(|| steps.clone(), |phase| steps.clone().to(phase))
    };
    let status = match action {
        Migrate::Status => admin.status().await?,
        Migrate::Advance { steps: words, quiet_for } => {
            admin.advance(&steps(words, *quiet_for), &mut tell).await?
        }
        Migrate::Rollback { steps: words } => {
            admin.rollback(&steps(words, Duration::ZERO), &mut tell).await?
        }
        Migrate::Repair { wait, .. } => admin.repair(*wait).await?,
        Migrate::Clean { old } => {
            admin.clean(*old).await?;
            return Ok(None);
        }
    };
    Ok(Some(status))
}

/// The stores of another move are a wrong URL, and a step that has timed out may be done later.
fn failure(error: Error) -> Failure {
    match error.kind() {
        ErrorKind::Timeout { .. } => Failure::blocked(error.to_string()),
        ErrorKind::Misuse => Failure::usage(error.to_string()),
        _ => Failure::from(error),
    }
}

/// How many members are shown to people.
const LISTED: usize = 20;

fn show(status: &Status) -> Result<(), Failure> {
    let word = |phase: Option<Phase>| phase.map_or("-", Phase::word);
    output::say(&format!("phase: {}\n", word(status.phase)))?;
    let mut stores = output::table(Some([
        "STORE",
        "SERVER",
        "RECORD",
        "VERSION",
        "EPOCH",
        "TOKENS FROM",
        "FOREIGN SESSIONS",
    ]));
    for (name, StoreStatus { server, record, error, foreign_sessions, .. }) in
        [("old", &status.old), ("new", &status.new)]
    {
        let of = |show: &dyn Fn(&leasehold::migrate::RecordStatus) -> String| {
            record.as_ref().map_or_else(|| "-".to_owned(), show)
        };
        let said = match error {
            Some(_) => "?".to_owned(),
            None => of(&|record| if record.over { "over".to_owned() } else { word(record.phase).to_owned() }),
        };
        stores.add_row([
            name,
            &output::safe(server),
            &said,
            &of(&|record| record.version.to_string()),
            &of(&|record| record.epoch.to_string()),
            &of(&|record| record.low.to_string()),
            &foreign_sessions.map_or_else(|| "unknown".to_owned(), |sessions| sessions.to_string()),
        ]);
    }
    output::show(&mut stores)?;
    if !status.members.is_empty() {
        output::say("")?;
        let mut members = output::table(Some([
            "MEMBER",
            "PID",
            "VIEW",
            "ACTS BY",
            "HOLDS OLD/NEW/BOTH",
            "FOREIGN CLIENTS MET",
        ]));
        for member in status.members.iter().take(LISTED) {
            let MemberStatus { label, pid, view, holds: [old, new, both], foreign_clients, .. } = member;
            let acts = match (member.acts_by_old, member.acts_by_new) {
                (true, true) => "old, new",
                (true, false) => "old",
                (false, true) => "new",
                (false, false) => "-",
            };
            let met = foreign_clients
                .as_ref()
                .map_or_else(String::new, |(met, name)| format!("{met}, last at {name}"));
            members.add_row([
                &*output::safe(label),
                &pid.to_string(),
                word(*view),
                acts,
                &format!("{old}/{new}/{both}"),
                &output::safe(&met),
            ]);
        }
        output::show(&mut members)?;
        if let more @ 1.. = status.members.len().saturating_sub(LISTED) {
            output::say(&format!("and {more} more (all of them with `--json`)"))?;
        }
    }
    output::say(&format!("\nnext: {}", output::safe(&status.next)))?;
    for blocker in &status.blockers {
        output::say(&format!("blocked by: {}", output::safe(blocker)))?;
    }
    Ok(())
}
