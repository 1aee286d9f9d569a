//! Calls of scripts, which the server may not have.
//!
//! # Invariants
//! - **redis.wire-6** A script's text goes over a connection once for all calls that the server has refused because it lacks
//!   the script. A request that was refused and was packed before the text is packed again behind it, by its hash; one that is
//!   refused twice brings the text itself. So each is sent three times at most.
//!
//! Checked by `tests` of the wire.

use redis::{RedisError, Value};

use crate::error;
use crate::scripts::{Call, ReignTimes, Script};

/// Where in the order of the requests of a wire the text of each script was packed last.
#[derive(Debug, Default)]
pub(crate) struct Texts(Vec<(&'static Script, u64)>);

/// How often a call was refused because the server lacks its script, and the number of its latest request.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Refusals {
    count: u8,
    number: u64,
}

impl Refusals {
    /// Packs `call` as the request with that number; `last` is one more argument.
    pub(crate) fn pack(
        &mut self,
        (call, last): (&Call, Option<ReignTimes>),
        out: &mut Vec<u8>,
        (texts, number): (&mut Texts, u64),
    ) {
        let sent = texts.0.iter_mut().find(|(script, _)| std::ptr::eq(*script, call.script));
        let follows_text = self.count == 1 && sent.as_ref().is_some_and(|(_, at)| self.number < *at);
        let with_text = self.count > 0 && !follows_text;
        match sent {
            Some((_, at)) if with_text => *at = number,
            None if with_text => texts.0.push((call.script, number)),
            _ => {}
        }
        self.number = number;
        call.pack(out, with_text, last);
    }

    /// Whether `answer` is one more of them, after which the call is sent again.
    pub(crate) fn one_more(&mut self, answer: &Result<Value, RedisError>) -> bool {
        let is_one = self.count < 2 && answer.as_ref().is_err_and(error::wants_the_text);
        self.count += u8::from(is_one);
        is_one
    }
}
