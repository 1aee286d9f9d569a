//! Nothing is counted.

use crate::backend::env::Env;
use crate::core::acquire::Tried;
use crate::core::held::Held;
use crate::core::lease::Answer;
use crate::words::error::Result;
use crate::words::loss::LostReason;

pub(crate) struct Acquisition;

impl Acquisition {
    pub(crate) fn begin(_env: &Env) -> Self {
        Self
    }

    pub(crate) fn waited(self, _outcome: &Result<Held>) {}

    pub(crate) fn tried(self, _outcome: &Result<Tried>) {}
}

pub(crate) struct Hold;

impl Hold {
    pub(crate) fn begin(_env: &Env) -> Self {
        Self
    }

    pub(crate) fn end(&self, _env: &Env) {}
}

pub(crate) fn taken() {}

pub(crate) fn let_go() {}

pub(crate) fn handed_on(_locally: bool) {}

pub(crate) fn lost(_reason: LostReason) {}

pub(crate) fn renewed(_answer: Answer) {}

pub(crate) fn dropped() {}
