//! The state of a lock, as a manager shows it.

use crate::backend::LockState;
use crate::core::Core;
use crate::core::holds::NameState;
use crate::words::error::Result;
use crate::words::name::LockName;
use crate::words::token::FencingToken;

/// The store's answer to a request that its caller bounds by nothing else.
pub(super) async fn answered<T: Send>(
    core: &Core,
    request: impl Future<Output = Result<T>> + Send,
) -> Result<T> {
    core.context.refuse_closed()?;
    core.context.env.bounded(request).await.map_err(|error| core.context.placed(error))
}

/// The store's state, with the tokens that this manager knows.
pub(super) fn with_own(core: &Core, name: &LockName, state: Result<LockState>) -> Result<LockState> {
    let mut state = state.map_err(|error| error.with_context("lock", name))?;
    let own = |state: &mut NameState| state.queue.held().map(|(_, token)| token).collect::<Vec<_>>();
    for own in core.names.known(name).map(|known| known.with(own)).unwrap_or_default() {
        // It is missing if our hold has ended and this is not known yet.
        let is_ours = |shown: FencingToken| shown.counter() == own.counter();
        if let Some(holder) = state.holders.iter_mut().find(|holder| holder.token.is_none_or(is_ours)) {
            holder.token = Some(own);
        }
    }
    Ok(state)
}
