//! `leasehold ls`: the locks that are held or waited for.

use crate::arguments::Store;
use crate::failure::{Exit, Failure};
use crate::output;
use crate::store::{self, Place};

pub(crate) async fn ls(store: &Store, prefix: &str, json: bool) -> Result<Exit, Failure> {
    let locks = Place::of(store)?.open().await?;
    let states = locks.list(prefix).await;
    store::close(&locks).await;
    let states = states?;
    if json {
        output::json(&states.iter().map(output::State::from).collect::<Vec<_>>())?;
        return Ok(Exit::SUCCESS);
    }
    let mut table = output::table(Some(["NAME", "HOLDER", "TOKEN", "SINCE", "CONTENDERS", "METADATA"]));
    for state in &states {
        let holder = state.holder();
        let who = match &*state.holders {
            [] => "-".to_owned(),
            [holder] => holder.label.clone(),
            [first, others @ ..] => format!("{} and {} others", first.label, others.len()),
        };
        let token = holder.and_then(|holder| holder.token).map(|token| token.to_string());
        let since = holder.and_then(|holder| holder.since).map(output::moment);
        let metadata = holder.and_then(|holder| holder.metadata.as_deref());
        table.add_row([
            &output::safe(state.name.as_str()),
            &output::safe(&who),
            token.as_deref().unwrap_or("-"),
            since.as_deref().unwrap_or("-"),
            &*state.contenders.to_string(),
            &output::safe(metadata.unwrap_or("-")),
        ]);
    }
    output::show(&mut table)?;
    Ok(Exit::SUCCESS)
}
