//! The tables and functions in the server: their text, and their installation.

use std::sync::Arc;

use leasehold_core::Result;
use tokio_postgres::types::Type;

use crate::config::PostgresConfig;
use crate::connection::Wire;
use crate::error;

/// The version of the text.
pub(crate) const VERSION: i32 = 1;

/// The text, for a schema of that name.
pub(crate) fn text(schema: &str) -> String {
    TEXT.replace("@schema@", &quoted(schema))
}

pub(crate) fn quoted(schema: &str) -> String {
    format!("\"{}\"", schema.replace('"', "\"\""))
}

/// Checks that the schema is there in this version; creates it if the configuration says so.
pub(crate) async fn ensure(config: &PostgresConfig, wire: &Arc<Wire>) -> Result<()> {
    let mut found = version(config, wire).await?;
    if found.is_none() && config.create {
        let install = format!(
            "SET LOCAL statement_timeout = 0; DO $install$ BEGIN PERFORM pg_advisory_xact_lock({INSTALLING}); \
             IF to_regprocedure('{}') IS NULL THEN EXECUTE $text${}$text$; END IF; END $install$",
            function(config).replace('\'', "''"),
            text(&config.schema)
        );
        let installed = wire.install(&install).await;
        found = version(config, wire).await?;
        if let (None, Err(error)) = (found, installed) {
            return Err(error);
        }
    }
    match found {
        None => Err(error::no_schema(&config.schema)),
        Some(VERSION) => Ok(()),
        Some(found) => Err(error::other_version(&config.schema, found, VERSION)),
    }
}

fn function(config: &PostgresConfig) -> String {
    format!("{}.schema_version()", quoted(&config.schema))
}

async fn version(config: &PostgresConfig, wire: &Arc<Wire>) -> Result<Option<i32>> {
    let function = function(config);
    let is_there = "SELECT to_regprocedure($1) IS NOT NULL";
    let is_there = wire.ask(is_there, &[(&function, Type::TEXT)]).await?.one()?.get::<bool>(0)?;
    if !is_there {
        return Ok(None);
    }
    let version = wire.ask(&format!("SELECT {function}"), &[]).await?;
    version.one()?.get(0).map(Some)
}

const TEXT: &str = include_str!("schema/1.sql");

/// The lock under which it is installed.
const INSTALLING: i64 = 1_818_585_187;
