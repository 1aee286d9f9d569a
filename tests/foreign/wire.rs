//! What each library writes and says, compared with the file of its name in `wire`: a change of that fails here first.
//!
//! `UPDATE_WIRE=1` writes it anew.

use std::fmt::Write as _;
use std::path::Path;

use libtest_mimic::Trial;
use testbed::redis::{Client, Reply};

use crate::contender::Contender;
use crate::library::Library;
use crate::setup::{LONG, NAME, Setup};

pub(crate) fn trial(library: &'static Library) -> Trial {
    crate::setup::trial(library, "written_text_is_known", LONG, written_text_is_known)
}

/// The version that the documents name; the key, its type and the shape of its value, the unit of its lease, the messages, and what is left.
async fn written_text_is_known(setup: Setup, [mut ours, mut theirs]: [Contender; 2]) {
    let is_listed = |row: &str| row.starts_with('|') && row.contains(&theirs.version);
    assert!(PAGE.lines().any(is_listed), "docs/src/from-another-library.md does not know {}", theirs.version);
    let mut said = String::new();
    for (who, contender) in [(setup.library.name, &mut theirs), ("leasehold", &mut ours)] {
        let _infallible = writeln!(said, "{who}, format={}", setup.library.format);
        let mut ear = setup.server.client().await.unwrap();
        ear.command(&["PSUBSCRIBE", "*"]).await.unwrap();
        contender.acquires(NAME).await;
        for line in held(&setup).await {
            let _infallible = writeln!(said, "  held: {line}");
        }
        contender.releases().await;
        for line in held(&setup).await.iter().filter(|line| line.starts_with("list ")) {
            let _infallible = writeln!(said, "  released: {line}");
        }
        setup.is_clean().await;
        for message in heard(&setup, &mut ear).await {
            let _infallible = writeln!(said, "  released: says {message}");
        }
        assert_eq!(setup.command(&["EXISTS", &setup.key()]).await, Reply::Integer(0));
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/foreign/wire").join(setup.library.name);
    if std::env::var_os("UPDATE_WIRE").is_some() {
        std::fs::write(&path, &said).unwrap();
    }
    let known = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(said, known, "not as in {}", path.display());
}

/// What is in the server, our own keys apart.
async fn held(setup: &Setup) -> Vec<String> {
    let mut lines = Vec::new();
    for key in setup.keys().await {
        if key.starts_with("leasehold:") {
            continue;
        }
        let kind = setup.command(&["TYPE", &key]).await.text().unwrap();
        let value = match kind.as_str() {
            "string" => shape(&bytes(setup.command(&["GET", &key]).await)),
            "hash" => {
                let fields = setup.command(&["HGETALL", &key]).await.elements();
                fields.into_iter().map(|word| shape(&bytes(word))).collect::<Vec<_>>().join(" = ")
            }
            "list" => setup
                .command(&["LRANGE", &key, "0", "-1"])
                .await
                .elements()
                .iter()
                .filter_map(Reply::text)
                .collect(),
            _ => "?".to_owned(),
        };
        // A unit of seconds would be longer or none at all.
        let lease = setup.command(&["PTTL", &key]).await.integer().unwrap();
        let most = i64::try_from(setup.ttl.as_millis()).unwrap();
        let lease = match lease {
            lease if (most / 2..=most).contains(&lease) => "the ttl in ms",
            1..=1_000 => "a second",
            _ => "something else",
        };
        lines.push(format!("{kind} {key}: {value}; ends after {lease}"));
    }
    lines
}

/// What was published until now, our own messages apart.
async fn heard(setup: &Setup, ear: &mut Client) -> Vec<String> {
    setup.command(&["PUBLISH", LAST, ""]).await;
    let mut heard = Vec::new();
    loop {
        let words: Vec<_> = ear.reply().await.unwrap().elements().iter().filter_map(Reply::text).collect();
        let [kind, _pattern, channel, body] = &words[..] else { panic!("{words:?}") };
        assert_eq!(kind, "pmessage");
        if channel == LAST {
            return heard;
        }
        if !channel.starts_with("leasehold:") {
            heard.push(format!("{body:?} on {channel}"));
        }
    }
}

const PAGE: &str = include_str!("../../docs/src/from-another-library.md");

const LAST: &str = "the last message";

fn bytes(reply: Reply) -> Vec<u8> {
    match reply {
        Reply::Bulk(bytes) => bytes,
        other => panic!("{other:?}"),
    }
}

/// The shape of a value, without its owner.
fn shape(value: &[u8]) -> String {
    let length = value.len();
    let all = |is: fn(&u8) -> bool| value.iter().all(is);
    let text = String::from_utf8_lossy(value);
    let (id, thread) = text.split_once(':').unwrap_or((&text, ""));
    let groups: Vec<_> = id.split('-').map(|group| group.len()).collect();
    let is_id = groups == [8, 4, 4, 4, 12] && id.bytes().all(|byte| byte == b'-' || is_hex(&byte));
    if is_id && !thread.is_empty() && thread.bytes().all(|byte| byte.is_ascii_digit()) {
        "8-4-4-4-12 hex:number".to_owned()
    } else if text.starts_with("ADDED:") {
        "ADDED:time@host:id".to_owned()
    } else if length < 10 && all(u8::is_ascii_digit) {
        text.into_owned()
    } else if all(is_hex) {
        format!("{length} hex")
    } else if all(u8::is_ascii_graphic) {
        format!("{length} characters")
    } else {
        format!("{length} bytes")
    }
}

fn is_hex(byte: &u8) -> bool {
    byte.is_ascii_digit() || (b'a'..=b'f').contains(byte)
}
