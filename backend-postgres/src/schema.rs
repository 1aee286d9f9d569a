//! The tables and functions in the server: their text, and their installation.

use std::sync::Arc;

use leasehold_core::{Error, Result};
use tokio_postgres::types::Type;

use crate::config::PostgresConfig;
use crate::connection::Wire;
use crate::error;

/// The version of the text.
pub(crate) const VERSION: i32 = 1;

/// The text, for a schema of that valid name.
pub(crate) fn text(schema: &str) -> String {
    TEXT.replace("@schema@", &quoted(schema))
}

/// A name that ends no quoted text and no comment.
pub(crate) fn valid(schema: &str) -> Result<()> {
    let is_valid = |letter: char| letter.is_alphanumeric() || letter == '_';
    if schema.is_empty() || schema.len() > 63 || !schema.chars().all(is_valid) {
        let why = "expected 1 to 63 bytes of letters, digits and underscores";
        return Err(Error::invalid_option(format!("`schema` {schema:?} is invalid: {why}")));
    }
    Ok(())
}

/// A valid name, as statements have it.
pub(crate) fn quoted(schema: &str) -> String {
    format!("\"{schema}\"")
}

/// The functions of each acquisition and release, with their values.
pub(crate) const OFTEN: [&str; 3] = [ACQUIRE, FLUSHED, RELEASE];
pub(crate) const ACQUIRE: &str = "acquire($1,$2,$3,$4,$5,$6,$7,$8,$9,$10,$11)";
pub(crate) const FLUSHED: &str = "flushed()";
pub(crate) const RELEASE: &str = "release($1,$2,$3,$4,$5,$6)";

/// The statement that calls a function of the quoted schema.
pub(crate) fn call(schema: &str, function: &str) -> String {
    format!("SELECT * FROM {schema}.{function}")
}

/// Checks that the schema is there in this version; creates it if the configuration says so. One that is not `known` has to be
/// leasehold's own, too: a right that is granted later ends no manager.
pub(crate) async fn ensure(config: &PostgresConfig, wire: &Arc<Wire>, known: bool) -> Result<()> {
    let mut found = version(config, wire).await?;
    let is_known = known && found.is_some();
    if found.is_none() && config.create {
        let install = format!(
            "SET LOCAL statement_timeout = 0; DO $install$ BEGIN PERFORM pg_advisory_xact_lock({INSTALLING}); \
             IF to_regprocedure('{}') IS NULL THEN EXECUTE $text${}$text$; END IF; END $install$",
            function(config),
            text(&config.schema)
        );
        let installed = wire.install(&install).await;
        found = version(config, wire).await?;
        if let (None, Err(error)) = (found, installed) {
            return Err(error);
        }
    }
    if found.is_some() && !is_known && !is_private(&config.schema, wire).await? {
        return Err(error::shared_schema(&config.schema));
    }
    match found {
        None => Err(error::no_schema(&config.schema)),
        Some(VERSION) => Ok(()),
        Some(found) => Err(error::other_version(&config.schema, found, VERSION)),
    }
}

/// Whether only the owner of the functions, which run with its rights, may create anything beside them.
pub(crate) async fn is_private(schema: &str, wire: &Arc<Wire>) -> Result<bool> {
    let is_private = "SELECT n.nspowner = ALL (SELECT p.proowner FROM pg_catalog.pg_proc p WHERE p.pronamespace = n.oid) \
         AND NOT EXISTS (SELECT FROM pg_catalog.aclexplode(n.nspacl) a \
                         WHERE a.privilege_type = 'CREATE' AND a.grantee <> n.nspowner) \
         FROM pg_catalog.pg_namespace n WHERE n.nspname = $1";
    wire.ask(is_private, &[(&schema, Type::TEXT)]).await?.one()?.get(0)
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
