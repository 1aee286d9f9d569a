//! The tree says what is true: its structure, its manifests, its test programs, and the public API that `docs/api` lists.

mod api;
mod architecture;
mod manifests;
mod tiers;
mod words;
