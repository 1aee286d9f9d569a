//! Rows of a reply, read without a panic.

use leasehold_core::Result;
use tokio_postgres::Row;
use tokio_postgres::types::{FromSql, ToSql, Type};

use crate::error;

/// The values of a statement, each with its type: a statement that is not prepared can be passed on by every pooler.
pub(crate) type Values<'a> = &'a [(&'a (dyn ToSql + Sync), Type)];

/// The rows that answer a statement.
#[derive(Debug)]
pub(crate) struct Rows(pub(super) Vec<Row>);

/// One row.
#[derive(Debug)]
pub(crate) struct Columns<'a>(&'a Row);

impl Rows {
    /// The one row.
    pub(crate) fn one(&self) -> Result<Columns<'_>> {
        match &*self.0 {
            [row] => Ok(Columns(row)),
            rows => Err(error::malformed(&format!("{} rows instead of one", rows.len()))),
        }
    }

    pub(crate) fn rows(&self) -> impl Iterator<Item = Columns<'_>> {
        self.0.iter().map(Columns)
    }
}

impl Columns<'_> {
    pub(crate) fn get<'a, T: FromSql<'a>>(&'a self, at: usize) -> Result<T> {
        self.0.try_get(at).map_err(|error| error::malformed(&error.to_string()))
    }
}
