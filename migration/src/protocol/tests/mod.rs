//! The real parts against a model of two stores, of processes that die and are cut off, of sessions that take no part,
//! and of two administrators that may stop anywhere: every interleaving of a few of each.
//!
//! After every step: one guard at most (migration-1), tokens that grow (migration-2), no two that rest on
//! different stores (migration-3), no lock without a holder (migration-4). And from every state, without new faults
//! and administrators, everything can come to rest (migration-5). Planted mutants must be caught, or the
//! properties prove nothing.

mod bounds;
mod ends;
mod mutants;
mod rules;
mod world;
