//! `leasehold migrate`: how far a move to another store is, and a step forth or back.

use std::io::{self, IsTerminal};
use std::time::Duration;

use leasehold::clock::{BootClock, Clock, Moment};
use leasehold::migrate::{Admin, MemberStatus, Phase, Progress, RecordStatus, Status, Steps, StoreStatus};
use leasehold::{Error, ErrorKind};

use crate::arguments::{Migrate, Steps as Words, Store};
use crate::failure::{Exit, Failure};
use crate::output::{self, Form};
use crate::store::Place;
use crate::table::{Column, Table, Width};

pub(crate) async fn migrate(store: &Store, action: &Migrate, form: Form) -> Result<Exit, Failure> {
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
    if let Some(status) = done.map_err(failure)? {
        match form {
            Form::Json => output::json(&status)?,
            Form::Words(width) => show(&status, width)?,
        }
    }
    Ok(Exit::SUCCESS)
}

async fn carry_out(admin: &Admin, action: &Migrate) -> Result<Option<Status>, Error> {
    let mut teller = Teller::new();
    let mut tell = |progress: &Progress| teller.tell(progress);
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

/// Reports what a step waits for: a line when that changes, and at a terminal for how long already.
struct Teller {
    clock: BootClock,
    began: Moment,
    said: String,
    /// The waiting time is shown, and not followed by a line break.
    is_counting: bool,
}

impl Teller {
    fn new() -> Self {
        let clock = BootClock::new();
        Self { began: clock.now(), clock, said: String::new(), is_counting: false }
    }

    fn tell(&mut self, progress: &Progress) {
        let now = progress.to_string();
        if now != self.said {
            self.clear();
            output::note(&now);
            self.said = now;
        }
        if io::stderr().is_terminal() {
            let waited = Duration::from_secs(self.clock.now().since(self.began).as_secs());
            output::note_in_place(&format!("waiting for {}", humantime::format_duration(waited)));
            self.is_counting = true;
        }
    }

    fn clear(&mut self) {
        if std::mem::take(&mut self.is_counting) {
            output::note_in_place("");
        }
    }
}

impl Drop for Teller {
    fn drop(&mut self) {
        self.clear();
    }
}

/// The stores of another move are a wrong URL, and a step that has timed out may be done later.
fn failure(error: Error) -> Failure {
    match error.kind() {
        ErrorKind::Timeout { .. } => Failure::blocked(error.to_string()),
        _ => Failure::from(error),
    }
}

/// How many members are shown to people.
const LISTED: usize = 20;

fn show(status: &Status, width: Width) -> Result<(), Failure> {
    let word = |phase: Option<Phase>| phase.map_or("-", Phase::word);
    output::say(&format!("phase: {}\n", word(status.phase)))?;
    stores(status).show(width)?;
    if !status.members.is_empty() {
        output::say("")?;
        members(status).show(width)?;
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

fn stores(status: &Status) -> Table<7> {
    let header = ["STORE", "SERVER", "RECORD", "VERSION", "EPOCH", "TOKENS FROM", "FOREIGN SESSIONS"];
    let mut columns = [Column::Whole; 7];
    columns[1] = Column::Cut;
    let mut table = Table::with_header(columns, header);
    for (name, StoreStatus { server, record, error, foreign_sessions, .. }) in
        [("old", &status.old), ("new", &status.new)]
    {
        let of =
            |show: &dyn Fn(&RecordStatus) -> String| record.as_ref().map_or_else(|| "-".to_owned(), show);
        let said = match error {
            Some(_) => "?".to_owned(),
            None if record.as_ref().is_some_and(|record| record.over) => "over".to_owned(),
            None => of(&|record| record.phase.map_or("-", Phase::word).to_owned()),
        };
        table.row([
            name,
            server,
            &said,
            &of(&|record| record.version.to_string()),
            &of(&|record| record.epoch.to_string()),
            &of(&|record| record.low.to_string()),
            &foreign_sessions.map_or_else(|| "unknown".to_owned(), |sessions| sessions.to_string()),
        ]);
    }
    table
}

fn members(status: &Status) -> Table<6> {
    let header = ["MEMBER", "PID", "VIEW", "ACTS BY", "HOLDS OLD/NEW/BOTH", "FOREIGN CLIENTS MET"];
    let mut columns = [Column::Whole; 6];
    (columns[0], columns[5]) = (Column::Cut, Column::Wrapped);
    let mut table = Table::with_header(columns, header);
    for member in status.members.iter().take(LISTED) {
        let MemberStatus { label, pid, view, holds: [old, new, both], foreign_clients, .. } = member;
        let acts = match (member.acts_by_old, member.acts_by_new) {
            (true, true) => "old, new",
            (true, false) => "old",
            (false, true) => "new",
            (false, false) => "-",
        };
        let met =
            foreign_clients.as_ref().map_or_else(String::new, |(met, name)| format!("{met}, last at {name}"));
        let view = view.map_or("-", Phase::word);
        table.row([label, &pid.to_string(), view, acts, &format!("{old}/{new}/{both}"), &met]);
    }
    table
}
