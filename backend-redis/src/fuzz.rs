//! Keys, messages and replies of a server, changed at random.

use leasehold_core::ErrorKind;
use proptest::prelude::*;
use redis::Value;
use testbed::fuzz::{changed, changed_text, corpus, tries};

use crate::keys::Keys;
use crate::scripts::{self, Message, Naming};

/// An answer as scripts give it, with something wrong in it.
fn answer() -> impl Strategy<Value = Value> {
    let text = || changed(corpus("redis")).prop_map(Value::BulkString);
    let number = || prop_oneof![(-1_i64..8).prop_map(Value::Int), any::<i64>().prop_map(Value::Int)];
    let digits = any::<u64>().prop_map(|number| Value::BulkString(number.to_string().into_bytes()));
    let leaf = prop_oneof![4 => number(), 2 => digits, 2 => text(), 1 => Just(Value::Nil)];
    // The code of an answer, then what belongs to it.
    let shaped = (0_i64..5, prop::collection::vec(leaf.clone(), 0..6))
        .prop_map(|(code, rest)| Value::Array([Value::Int(code)].into_iter().chain(rest).collect()));
    let one = prop_oneof![1 => leaf, 4 => shaped];
    prop_oneof![3 => one.clone(), 1 => prop::collection::vec(one, 0..4).prop_map(Value::Array)]
}

proptest! {
    #![proptest_config(tries())]

    /// A key that is taken for one of ours is exactly a key that is made for the name.
    #[test]
    fn keys_lead_to_names_that_lead_back(key in changed_text(corpus("redis"))) {
        let keys = Keys::new("leasehold", None).unwrap();
        if let Some(name) = keys.name_of(&key) {
            let made = keys.of(&name).unwrap();
            prop_assert!(made.all().contains(&&*key), "{key:?} {name:?}");
        }
    }

    /// A message that is understood says what it says, and to whom.
    #[test]
    fn messages_are_understood_or_passed_over(payload in changed(corpus("redis"))) {
        if let Some(message) = Message::parse(&payload, None) {
            let text = String::from_utf8(payload).unwrap();
            prop_assert!(text.contains(&message.owner.to_hex()) && text.ends_with(&*message.lock));
        }
    }

    /// Whatever scripts answer is an answer, or a breach of the protocol.
    #[test]
    fn answers_are_read_or_refused(value in answer(), count in 0_usize..4, base: u64) {
        let naming = Naming { base, foreign: "" };
        let refused = [
            scripts::reply(&value, naming).err(),
            scripts::replies(&value, count, naming).err(),
            scripts::released(&value).err(),
            scripts::revoked(&value, naming).err(),
            scripts::inspected(&value, count, naming).err(),
            scripts::admission(&value).err(),
            scripts::micros(&value).err(),
        ];
        for refused in refused.into_iter().flatten() {
            prop_assert_eq!(refused.kind(), &ErrorKind::Protocol);
        }
    }
}
