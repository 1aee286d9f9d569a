//! On Redis: every command, a server that falls silent, and what `doctor` finds.

use testbed::redis::{Reply, Server, Settings};

use crate::fixture::{Fixture, finish};
use crate::leased::{self, asking, breaks};
use crate::schema;

testbed::trials![
    a_risk_that_passes,
    scripts_are_loaded_for_those_who_may_not,
    doctor_names_the_key_of_a_shared_lock,
    a_base_is_raised_on_ones_word,
    doctor_names_the_pause_after_a_restart,
];

async fn start(settings: Settings) -> Server {
    settings.start().await.unwrap_or_else(|error| panic!("{error}"))
}

async fn a_risk_that_passes() {
    leased::a_risk_that_passes(start(Settings::new()).await).await;
}

/// Who may not bring scripts locks once somebody has loaded them, and `doctor` says what is missing before.
async fn scripts_are_loaded_for_those_who_may_not() {
    let server = start(Settings::new()).await;
    let rights = ["on", ">secret", "~cli:*", "&cli:*", "+@all", "-eval", "-script"];
    let command = [&["ACL", "SETUSER", "app"], &rights[..]].concat();
    assert_eq!(server.command(&command).await.unwrap(), Reply::Simple("OK".to_owned()));
    let url = format!("redis://app:secret@{}/0?prefix=cli&op_timeout=10s&ttl=30s", server.addr());
    let app = Fixture::on(url);
    assert_eq!(app.done(["run", "a", "--", "true"]).await.code, 77);
    breaks(&app, "scripts", &["leasehold redis-scripts"]).await;
    assert_eq!(app.done(["redis-scripts"]).await.code, 77);

    let loaded = asking(&server).done(["redis-scripts", "--json"]).await;
    assert_eq!((loaded.code, &loaded.json()["loaded"]), (0, &6.into()), "{loaded:?}");
    schema::check("redis-scripts", &loaded.json());
    assert_eq!(app.done(["run", "a", "--", "true"]).await.code, 0);
    assert_eq!(Fixture::on("memory://".to_owned()).done(["redis-scripts"]).await.code, 64);
}

/// The key of one lock, and who holds it, if others share it; as JSON, too.
async fn doctor_names_the_key_of_a_shared_lock() {
    let server = start(Settings::new().append_only()).await;
    let url =
        format!("redis://{}/0?format=string&key=redlock:{{name}}&op_timeout=10s&ttl=30s", server.addr());
    let fixture = Fixture::on(url);
    server.command(&["SET", "redlock:report", "secret", "PX", "60000"]).await.unwrap();
    let said = fixture.done(["doctor", "--name", "report"]).await;
    assert!(said.code == 0 && said.out.contains("\"redlock:report\", format=string"), "{said:?}");
    assert!(said.out.contains("(not leasehold)") && !said.out.contains("secret"), "{said:?}");
    let said = fixture.done(["doctor", "--name", "report", "--json"]).await.json();
    let details: Vec<_> = said["findings"].as_array().unwrap().iter().map(|found| &found["detail"]).collect();
    assert!(details.iter().any(|detail| detail.as_str().unwrap().contains("redlock:report")), "{details:?}");
    let shown = fixture.done(["inspect", "report"]).await;
    assert!(shown.out.contains("(not leasehold)") && !shown.out.contains("never"), "{shown:?}");
    assert_eq!(fixture.inspect("report").await["holder"]["foreign"], true);
    // Within its minute, so it was not waited for.
    let asked = fixture.done(["revoke", "--json", "--grace", "1h", "report"]).await;
    assert_eq!((asked.code, &asked.json()["outcome"]), (75, &"foreign".into()), "{asked:?}");
    server.command(&["PERSIST", "redlock:report"]).await.unwrap();
    let shown = fixture.done(["inspect", "report"]).await;
    assert!(shown.out.contains("never"), "{shown:?}");

    server.command(&["DEL", "redlock:report"]).await.unwrap();
    server.command(&["LPUSH", "redlock:report", "x"]).await.unwrap();
    let said = fixture.done(["doctor", "--name", "report"]).await;
    assert!(said.code == 1 && said.out.contains("is a list"), "{said:?}");
}

/// Whoever is seen to have a session stands in the way; that nobody has is no proof, so the base is raised on
/// one's word for it.
async fn a_base_is_raised_on_ones_word() {
    let server = start(Settings::new()).await;
    let fixture = asking(&server);
    let seen = (1_u64 << 61).to_string();
    let mut idle = fixture.hold(["a"]).await;
    for yes in [[].as_slice(), &["--yes"]] {
        let words = ["token-base", "set", "--json", "--at-least", &seen];
        let refused = fixture.done(words.into_iter().chain(yes.iter().copied())).await;
        assert_eq!((refused.code, &refused.error()["kind"]), (75, &"in_use".into()), "{refused:?}");
    }
    assert_eq!(fixture.done(["token-base", "get", "--json"]).await.json()["sessions"], 1);
    finish(&mut idle).await;
    let refused = fixture.done(["token-base", "set", "--at-least", &seen]).await;
    assert_eq!(refused.code, 64, "{refused:?}");
    assert!(refused.err.contains("--yes"), "{refused:?}");
    let raised = fixture.done(["token-base", "set", "--json", "--at-least", &seen, "--yes"]).await;
    assert_eq!(raised.code, 0, "{raised:?}");
    let (base, floor) = (raised.json()["base"].as_u64().unwrap(), raised.json()["floor"].as_u64().unwrap());
    assert!(base + floor > 1 << 51 && raised.json()["sessions"].is_null(), "{raised:?}");
    assert_eq!(fixture.done(["token-base", "get", "--json"]).await.json()["base"], base);
}

/// What a pause after a restart needs is named, and how long it lasts.
async fn doctor_names_the_pause_after_a_restart() {
    let server = start(Settings::new().append_only()).await;
    let rights = ["ACL", "SETUSER", "app", "on", ">secret", "~cli:*", "&cli:*", "+@all", "-info"];
    assert_eq!(server.command(&rights).await.unwrap(), Reply::Simple("OK".to_owned()));
    let of = |user: &str| {
        let options = "prefix=cli&op_timeout=10s&ttl=30s&pause_after_restart=30s";
        Fixture::on(format!("redis://{user}{}/0?{options}", server.addr()))
    };
    breaks(&of("app:secret@"), "access", &["pause_after_restart", "+info"]).await;
    let diagnosis = of("").done(["doctor"]).await;
    assert!(diagnosis.code == 0 && diagnosis.out.contains("for 30s after a server restart"), "{diagnosis:?}");
}
