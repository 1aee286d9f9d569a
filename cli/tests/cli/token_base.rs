//! `token-base`: what a directory adds to its tokens, shown and raised.

use serde_json::{Value, json};

use crate::fixture::Fixture;
use crate::schema;

testbed::trials![a_base_is_shown_and_raised, invalid_token_is_refused,];

async fn get(fixture: &Fixture) -> Value {
    let shown = fixture.done(["token-base", "get", "--json"]).await;
    assert_eq!(shown.code, 0, "{shown:?}");
    schema::check("token-base", &shown.json());
    shown.json()
}

/// It only grows, and every token after it is larger than the one that was named.
async fn a_base_is_shown_and_raised() {
    let fixture = Fixture::new();
    assert_eq!(get(&fixture).await, json!({ "base": 0, "floor": 0, "sessions": 0 }));
    let seen = (7_000 << 10) + 1_023;
    for (at_least, base) in [(seen, 7_001), (5 << 10, 7_001), (seen + 1, 7_002)] {
        let raised = fixture.done(["token-base", "set", "--json", "--at-least", &at_least.to_string()]).await;
        assert_eq!(raised.json(), json!({ "base": base, "floor": 0, "sessions": 0 }), "{raised:?}");
        assert_eq!(get(&fixture).await, raised.json());
    }
    let words = fixture.done(["token-base", "get"]).await;
    assert!(words.out.contains("7002") && words.out.contains("other sessions"), "{words:?}");
    let (_holder, held) = fixture.held(["a"]).await;
    assert!(held["token"].as_u64().unwrap() > seen + 1);
    let doctor = fixture.done(["doctor"]).await;
    assert!(doctor.out.contains("token base") && doctor.out.contains("7002"), "{doctor:?}");
}

async fn invalid_token_is_refused() {
    let fixture = Fixture::new();
    for at_least in ["-1", "seven", "9223372036854775808", "9223372036854775807"] {
        let refused = fixture.done(["token-base", "set", &format!("--at-least={at_least}")]).await;
        assert_eq!(refused.code, 64, "{at_least}: {refused:?}");
    }
    assert_eq!(fixture.done(["token-base", "set"]).await.code, 64);
    assert_eq!(get(&fixture).await["base"], 0);
}
