//! The public API as its users call it, mostly on the in-memory store.

mod all;
mod at_least;
mod bad_input;
#[cfg(feature = "blocking")]
mod blocking;
mod connecting;
mod events;
#[cfg(feature = "file")]
mod file_words;
mod fuzz;
mod kinds;
mod lead;
mod life;
mod loss;
mod migrate_to;
mod revoked;
mod run;
