//! Encodings that merge names.

use async_trait::async_trait;
use leasehold_core::backend::{AcquireRequest, Attempt, Grant, Holder, LockState, Revoke};
use leasehold_core::{LockName, Result};

use super::{store, table};
use crate::layer::{Below, For, Layer};

table! {
    names_case_folded, g10::names_that_encodings_merge_stay_distinct, store(Renaming(str::to_lowercase)),
        "a store with case-insensitive keys, as a table with such a collation";
    names_as_paths, g10::a_path_blocks_neither_parent_nor_neighbour, store(Renaming(first_segment)),
        "the holder of a/b also holds a: a lock by key prefix, etcd#6278";
    names_cut_short, g10::names_of_any_length_are_held, store(Renaming(|name| name.chars().take(255).collect())),
        "names with the same beginning are one, as with a key column of limited length";
    prefix_as_pattern, g10::a_prefix_is_no_pattern, store(Pattern),
        "the prefix of a list is passed to the store's search unescaped; KEYS and LIKE";
}

/// Names as the store writes them.
#[derive(Debug)]
struct Renaming(fn(&str) -> String);

fn first_segment(name: &str) -> String {
    match name.split_once('/') {
        Some((first, _)) if !first.is_empty() => first.to_owned(),
        _ => name.to_owned(),
    }
}

impl Renaming {
    fn rename(&self, name: &LockName) -> Result<LockName> {
        LockName::new((self.0)(name.as_str()))
    }

    fn request(&self, request: &AcquireRequest) -> Result<AcquireRequest> {
        let mut renamed = request.clone();
        renamed.name = self.rename(&request.name)?;
        Ok(renamed)
    }
}

#[async_trait]
impl Layer for Renaming {
    async fn try_acquire(&self, below: &Below, request: &AcquireRequest) -> Result<Attempt> {
        Ok(match below.backend.try_acquire(&self.request(request)?).await? {
            Attempt::Granted(mut grant) => {
                grant.name = request.name.clone();
                Attempt::Granted(grant)
            }
            held @ Attempt::Held { .. } => held,
        })
    }

    async fn acquire(&self, below: &Below, request: &AcquireRequest) -> Result<Grant> {
        let mut grant = below.backend.acquire(&self.request(request)?).await?;
        grant.name = request.name.clone();
        Ok(grant)
    }

    async fn release(&self, below: &Below, grant: &Grant) -> Result<()> {
        let mut renamed = grant.clone();
        renamed.name = self.rename(&grant.name)?;
        below.backend.release(&renamed).await
    }

    async fn inspect(&self, below: &Below, name: &LockName, whom: For) -> Result<LockState> {
        let mut state = whom.inspect(&*below.backend, &self.rename(name)?).await?;
        state.name = name.clone();
        Ok(state)
    }

    async fn revoke(&self, below: &Below, name: &LockName, how: Revoke) -> Result<Vec<Holder>> {
        below.backend.revoke(&self.rename(name)?, how).await
    }
}

/// A prefix in which `*`, `?` and `%` stand for anything.
#[derive(Debug)]
struct Pattern;

#[async_trait]
impl Layer for Pattern {
    async fn list(&self, below: &Below, prefix: &str) -> Result<Vec<LockState>> {
        let literal = prefix.find(['*', '?', '%']).map_or(prefix, |wild| &prefix[..wild]);
        below.backend.list(literal).await
    }
}
