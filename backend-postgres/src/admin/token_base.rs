//! The number that the namespace adds to every counter, and raising it.

use std::sync::Arc;

use leasehold_core::Result;
use leasehold_core::backend::TokenBase;
use tokio_postgres::types::Type;

use crate::session::Sessions;

impl Sessions {
    /// The base, and the sessions that live, as of one moment.
    pub(crate) async fn read_base(self: &Arc<Self>) -> Result<TokenBase> {
        let (prefix, own) = (self.prefix(), self.own_number());
        let reply = self.ask("token_base($1,$2)", &[(&prefix, Type::TEXT), (&own, Type::INT8)]).await?;
        let row = reply.one()?;
        let number = |at| row.get::<i64>(at).map(i64::unsigned_abs);
        let others = usize::try_from(number(2)?).ok();
        Ok(TokenBase::new(number(0)?, number(1)?, others))
    }

    /// Makes the base `at_least` that large.
    pub(crate) async fn raise_base(self: &Arc<Self>, at_least: u64) -> Result<()> {
        let (prefix, at_least) = (self.prefix(), i64::try_from(at_least).unwrap_or(i64::MAX));
        let raise = "raise_token_base($1,$2)";
        self.ask(raise, &[(&prefix, Type::TEXT), (&at_least, Type::INT8)]).await.map(drop)
    }
}
