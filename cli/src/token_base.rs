//! `leasehold token-base`: the number that a namespace adds to the numbers of its store.

use leasehold::LockManager;
use leasehold::backend::TokenBase as Base;
use serde::Serialize;

use crate::arguments::{Store, TokenBase};
use crate::failure::{Exit, Failure};
use crate::output::{self, Form};
use crate::store::{self, Place};
use crate::table::{Column, Table};

/// The base as JSON shows it.
#[derive(Debug, Serialize)]
struct Shown {
    base: u64,
    floor: u64,
    /// Other sessions than this one; null if the store cannot count them.
    sessions: Option<usize>,
}

pub(crate) async fn token_base(store: &Store, action: &TokenBase, form: Form) -> Result<Exit, Failure> {
    let locks = Place::of(store)?.open().await?;
    let base = carry_out(&locks, action).await;
    store::close(&locks).await;
    let Base { base, floor, sessions, .. } = base?;
    let Form::Words(width) = form else {
        output::json(&Shown { base, floor, sessions })?;
        return Ok(Exit::SUCCESS);
    };
    let mut table = Table::new([Column::Whole; 2]);
    table.row(["base", &base.to_string()]);
    table.row(["floor", &floor.to_string()]);
    table.row(["other sessions", &sessions.map_or_else(|| "unknown".to_owned(), |n| n.to_string())]);
    table.show(width)?;
    Ok(Exit::SUCCESS)
}

async fn carry_out(locks: &LockManager, action: &TokenBase) -> Result<Base, Failure> {
    let TokenBase::Set { at_least, yes } = action else {
        return Ok(locks.token_base().await?);
    };
    match locks.token_base().await?.sessions {
        Some(0) => {}
        Some(others) => {
            return Err(Failure::in_use(format!(
                "{others} other sessions of this namespace are open and would grant smaller tokens: stop \
                 them first"
            )));
        }
        None if *yes => {}
        None => {
            return Err(Failure::usage(
                "this store cannot detect other sessions of the namespace, and an open session grants \
                 smaller tokens, which resources refuse: stop all of them, then use `--yes`",
            ));
        }
    }
    locks.raise_token_base(*at_least).await?;
    let raised = locks.token_base().await?;
    match raised.sessions {
        Some(1..) => Err(Failure::in_use(
            "the base was raised, but other sessions were opened meanwhile and may grant smaller tokens: \
             stop them"
                .to_owned(),
        )),
        _ => Ok(raised),
    }
}
