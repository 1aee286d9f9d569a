//! `leasehold inspect`: who holds a lock, and how many wait.

use leasehold::Mode;

use crate::arguments::Store;
use crate::failure::{Exit, Failure};
use crate::output;
use crate::store::{self, Place};

pub(crate) async fn inspect(
    store: &Store,
    name: &str,
    by_exit_code: bool,
    json: bool,
) -> Result<Exit, Failure> {
    let locks = Place::of(store)?.open().await?;
    let state = locks.inspect(name).await;
    store::close(&locks).await;
    let state = state?;
    let exit = if by_exit_code && state.holder().is_none() { Exit::NO } else { Exit::SUCCESS };
    if json {
        output::json(&output::State::from(&state))?;
        return Ok(exit);
    }
    let mut table = output::table::<2>(None);
    let mut row = |subject: &str, value: &str| {
        table.add_row([subject, &output::safe(value)]);
    };
    row("name", state.name.as_str());
    if state.holders.is_empty() {
        row("holder", "nobody");
    }
    for holder in &state.holders {
        row("holder", if holder.label.is_empty() { "(without a label)" } else { &holder.label });
        if holder.mode != Mode::EXCLUSIVE {
            row("mode", &holder.mode.to_string());
        }
        row("token", &holder.token.map_or_else(|| "unknown".to_owned(), |token| token.to_string()));
        row("since", &holder.since.map_or_else(|| "unknown".to_owned(), output::ago));
        if let Some(metadata) = &holder.metadata {
            row("metadata", metadata);
        }
    }
    row("contenders", &state.contenders.to_string());
    output::show(&mut table)?;
    Ok(exit)
}
