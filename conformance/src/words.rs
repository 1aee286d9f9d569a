//! The rule for the words of errors, the same for every store.
//!
//! An error is one sentence that says which server and which lock it is about, once, and what was behind it.
//! Nothing of it is written for the debugging of a library below, and nothing is said twice.

use leasehold_core::Error;

/// What is said of `error` with all of its causes, if that is in keeping with the rule.
///
/// # Panics
///
/// When it is not, with the text and what is wrong with it: unless `server` is named once, and `lock` too
/// where it is about one.
#[track_caller]
pub fn said(error: &Error, server: &str, lock: Option<&str>) -> String {
    let (short, whole) = (error.to_string(), format!("{error:#}"));
    assert_eq!(whole.matches(server).count(), 1, "{server} is named once: {whole}");
    if let Some(lock) = lock {
        let told = format!("lock: {lock}");
        assert_eq!(whole.matches(&told).count(), 1, "the lock is named once: {whole}");
        assert_eq!(whole.matches(lock).count(), 1, "{lock} is named once: {whole}");
        assert!(short.contains(&told), "the lock is named without the causes: {short}");
    } else {
        assert!(!whole.contains("lock: "), "no lock is concerned: {whole}");
    }
    for debug in DEBUG {
        assert!(!whole.contains(debug), "{debug:?} is of a library's debugging: {whole}");
    }
    let call = whole.as_bytes().windows(2).any(|pair| pair[0].is_ascii_alphanumeric() && pair[1] == b'(');
    assert!(!call, "a name with a parenthesis is of a library's debugging: {whole}");
    let clauses: Vec<_> =
        whole.split([':', ';', '(', ')']).map(str::trim).filter(|clause| clause.len() > 8).collect();
    for (index, clause) in clauses.iter().enumerate() {
        assert!(!clauses[..index].contains(clause), "{clause:?} is repeated: {whole}");
    }
    assert!(!whole.contains(char::is_control), "it is one line: {whole:?}");
    whole
}

/// What only `Debug`, or names in some program, look like.
const DEBUG: [&str; 8] = ["{ ", "::", "code:", "kind:", "source:", "message:", "Error", "None"];

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use leasehold_core::{Effect, ErrorKind};

    use super::*;

    fn error(message: &str, cause: &str) -> Error {
        Error::new(ErrorKind::Unavailable, Effect::Unknown, message).with_source(cause)
    }

    #[test]
    fn breach_of_the_rule_is_found() {
        let good =
            error("no answer", "reset by peer").with_context("server", "h:1").with_context("lock", "n/1");
        assert_eq!(
            said(&good, "h:1", Some("n/1")),
            "no answer (server: h:1, lock: n/1): reset by peer; the store may have carried it out"
        );
        let on = |message: &str, cause: &str| error(message, cause).with_context("server", "h:1");
        for (bad, lock) in [
            (error("no answer", "reset"), None),
            (on("h:1 gives no answer", "reset"), None),
            (on("no answer", "reset"), Some("n/1")),
            (on("no answer to n/1", "reset").with_context("lock", "n/1"), Some("n/1")),
            (on("no answer", "reset").with_context("lock", "n/1"), None),
            (on("no answer", "transport::Fault"), None),
            (on("no answer", "code: 14"), None),
            (on("no answer", "Status { code 14 }"), None),
            (on("no answer", "Os(Some(111))"), None),
            (on("no answer", "TimeoutError"), None),
            (on("there is no answer", "after a second: there is no answer: gone"), None),
            (on("no\nanswer", "reset"), None),
        ] {
            let text = format!("{bad:#}");
            let found = catch_unwind(AssertUnwindSafe(|| said(&bad, "h:1", lock)));
            assert!(found.is_err(), "{text}");
        }
    }
}
