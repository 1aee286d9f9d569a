//! `leasehold postgres-schema`: the SQL of the Postgres store, for databases whose users may not create a schema.

use clap::Args;
use leasehold::postgres::PostgresConfig;

use crate::failure::{Exit, Failure};
use crate::output;

#[derive(Debug, Args)]
pub(crate) struct PostgresSchema {
    /// The name of the database schema
    #[arg(long, value_name = "NAME", default_value = "leasehold")]
    schema: String,
}

pub(crate) fn print(arguments: &PostgresSchema) -> Result<Exit, Failure> {
    output::say(PostgresConfig::schema_text(&arguments.schema)?.trim_end())?;
    Ok(Exit::SUCCESS)
}
