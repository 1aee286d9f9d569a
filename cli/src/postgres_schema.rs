//! `leasehold postgres-schema`: the SQL of the Postgres store, for databases whose users may not create a schema.

use leasehold::postgres::PostgresConfig;

use crate::failure::{Exit, Failure};
use crate::output;

pub(crate) fn print(schema: &str) -> Result<Exit, Failure> {
    output::say(PostgresConfig::schema_text(schema)?.trim_end())?;
    Ok(Exit::SUCCESS)
}
