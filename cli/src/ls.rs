//! `leasehold ls`: the locks that are held or waited for.

use leasehold::backend::LockState;

use crate::arguments::Store;
use crate::failure::{Exit, Failure};
use crate::output::{self, Form};
use crate::store::{self, Place};
use crate::table::{Column, Table, Width};

pub(crate) async fn ls(store: &Store, prefix: &str, form: Form) -> Result<Exit, Failure> {
    let locks = Place::of(store)?.open().await?;
    let states = locks.list(prefix).await;
    store::close(&locks).await;
    let states = states?;
    match form {
        Form::Json => output::json(&states.iter().map(output::State::from).collect::<Vec<_>>())?,
        Form::Words(width) => table(&states, width).show(width)?,
    }
    Ok(Exit::SUCCESS)
}

const COLUMNS: [Column; 7] =
    [Column::Cut, Column::Cut, Column::Whole, Column::Whole, Column::Whole, Column::Whole, Column::Cut];

/// A line for each holder, and one for a lock without a holder. A terminal shows ages, which are short.
fn table(states: &[LockState], width: Width) -> Table<7> {
    let since = if width == Width::Wide { output::moment } else { output::age };
    let header = ["NAME", "HOLDER", "TOKEN", "SINCE", "WAITING", "MODE", "METADATA"];
    let mut table = Table::with_header(COLUMNS, header);
    for state in states {
        let nobody = state.holders.is_empty().then_some(None);
        for holder in state.holders.iter().map(Some).chain(nobody) {
            let label = holder.map_or("-", |holder| &holder.label);
            let token = holder.and_then(|holder| holder.token).map(|token| token.to_string());
            let since = holder.and_then(|holder| holder.since).map(since);
            let mode = holder.map(|holder| output::mode(holder.mode));
            table.row([
                state.name.as_str(),
                label,
                token.as_deref().unwrap_or("-"),
                since.as_deref().unwrap_or("-"),
                &state.contenders.to_string(),
                mode.as_deref().unwrap_or("-"),
                holder.and_then(|holder| holder.metadata.as_deref()).unwrap_or("-"),
            ]);
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use leasehold::backend::Holder;
    use leasehold::{LockName, Mode};

    use super::*;

    /// Each holder has a line that says whose lock it is and how it is held.
    #[test]
    fn every_holder_is_listed() {
        let holder = |label: &str, mode| {
            let mut holder = Holder::new(label);
            holder.mode = mode;
            holder
        };
        let state = |name, holders: Vec<_>| LockState::new(LockName::new(name).unwrap(), holders, 1);
        let two = vec![holder("r1", Mode::SHARED), holder("r2", Mode::permits(1, 3).unwrap())];
        let table = table(&[state("a", two), state("b", Vec::new())], Width::Wide).lines(Width::Wide);
        let lines: Vec<_> =
            table.iter().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        assert_eq!(lines[1..], ["a r1 - - 1 shared -", "a r2 - - 1 1/3 -", "b - - - 1 - -"], "{lines:?}");
    }
}
