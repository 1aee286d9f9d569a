//! `leasehold inspect`: the holders of a lock, and the number of waiters.

use std::time::Duration;

use leasehold::backend::LockState;

use crate::arguments::Store;
use crate::failure::{Exit, Failure};
use crate::output::{self, Form};
use crate::store::{self, Place};
use crate::table::{Column, Table};

pub(crate) async fn inspect(
    store: &Store,
    name: &str,
    by_exit_code: bool,
    form: Form,
) -> Result<Exit, Failure> {
    let locks = Place::of(store)?.open().await?;
    let state = locks.inspect(name).await;
    store::close(&locks).await;
    let state = state?;
    let exit = if by_exit_code && state.holder().is_none() { Exit::NO } else { Exit::SUCCESS };
    match form {
        Form::Json => output::json(&output::State::from(&state))?,
        Form::Words(width) => table(&state).show(width)?,
    }
    Ok(exit)
}

/// The state in words: a few lines for each holder.
fn table(state: &LockState) -> Table<2> {
    let mut table = Table::new([Column::Whole, Column::Wrapped]);
    let mut row = |subject: &str, value: &str| table.row([subject, value]);
    row("name", state.name.as_str());
    if state.holders.is_empty() {
        row("holder", "none");
    }
    for holder in &state.holders {
        row("holder", if holder.label.is_empty() { "(no label)" } else { &holder.label });
        row("mode", &output::mode(holder.mode));
        row("token", &holder.token.map_or_else(|| "unknown".to_owned(), |token| token.to_string()));
        row("since", &holder.since.map_or_else(|| "unknown".to_owned(), output::ago));
        if holder.ttl == Some(Duration::MAX) {
            row("ends", "never");
        }
        if let Some(metadata) = &holder.metadata {
            row("metadata", metadata);
        }
    }
    row("waiting", &state.contenders.to_string());
    table
}

#[cfg(test)]
mod tests {
    use leasehold::backend::Holder;
    use leasehold::{LockName, Mode};

    use super::*;
    use crate::table::Width;

    /// Every holder is shown with its mode, in order of arrival.
    #[test]
    fn every_holder_is_shown() {
        let holder = |label: &str, mode| {
            let mut holder = Holder::new(label);
            holder.mode = mode;
            holder
        };
        let holders = [
            holder("first", Mode::SHARED),
            holder("second", Mode::permits(2, 8).unwrap()),
            holder("third", Mode::EXCLUSIVE),
        ];
        let state = LockState::new(LockName::new("a").unwrap(), holders, 4);
        let shown = table(&state).lines(Width::Wide);
        let shown: Vec<_> = shown.iter().map(|line| line.split_whitespace().collect::<Vec<_>>()).collect();
        let mode = |at: usize| (shown[at][1], shown[at + 1].join(" "));
        assert_eq!(mode(1), ("first", "mode shared".to_owned()), "{shown:?}");
        assert_eq!(mode(5), ("second", "mode 2/8".to_owned()), "{shown:?}");
        assert_eq!(mode(9), ("third", "mode exclusive".to_owned()), "{shown:?}");
        assert_eq!(shown.last().unwrap().join(" "), "waiting 4");
    }
}
