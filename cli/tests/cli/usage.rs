//! What is wrong before a store is asked: exit code 64, and a sentence that helps.

use tokio::process::Command;

use crate::fixture::{Done, Fixture, LEASEHOLD, done};

testbed::trials![
    impossible_option_exits_with_64,
    #[cfg(all(feature = "file", feature = "migrate"))]
    invalid_move_exits_with_64,
    errors_are_json_where_that_was_asked_for,
    help_tells_the_exit_codes_and_no_secret,
    completions_are_written_for_every_shell,
    #[cfg(all(feature = "redis", feature = "metrics", feature = "migrate"))]
    the_manual_is_listed,
    man_pages_are_written,
];

async fn leasehold(words: &[&str]) -> Done {
    let mut command = Command::new(LEASEHOLD);
    command.env_remove("LEASEHOLD_URL").env_remove("LEASEHOLD_REQUIRE").env("COLUMNS", "80");
    command.args(words).kill_on_drop(true);
    done(command).await
}

async fn impossible_option_exits_with_64() {
    let long = "n".repeat(513);
    let fixture = Fixture::new();
    let file = fixture.url();
    let wrong: [(&[&str], &str); 25] = [
        (&[], "Usage"),
        (&["hodl", "a"], "hodl"),
        (&["run", "a"], "CMD"),
        (&["run", "a", "true"], "leasehold run NAME -- CMD"),
        (&["--url", "memory://", "run", "a", "--", "true"], "use file:///DIR"),
        (&["--url", "hidden:", "ls"], "--hide-url"),
        (&["--url-file", "/no/such/file", "ls"], "/no/such/file"),
        (&["--url", "", "ls"], "`--url` is empty"),
        (&["--require", "fast", "ls"], "cross_host"),
        (&["run", "--try", "--wait", "1s", "a", "--", "true"], "--wait"),
        (&["run", "--detach", "a", "--", "true"], "--at-least"),
        (
            &["--url", file, "run", "--at-least", "1m", "--max-hold", "59s", "a", "--", "true"],
            "longer than `--max-hold`",
        ),
        (&["run", "--wait", "soon", "a", "--", "true"], "1m30s"),
        (&["--url", "nowhere", "ls"], "://"),
        (&["--url", "gopher://x", "ls"], "gopher"),
        (&["--url", "file:///tmp/x?tll=1s", "ls"], "tll"),
        (&["--url", file, "inspect", ""], "name"),
        (&["--url", file, "inspect", &long], "name"),
        (&["--url", file, "run", "--ttl", "1ns", "a", "--", "true"], "ttl"),
        (&["run", "--permits", "8", "a", "--", "true"], "such as 2/8"),
        (&["run", "--permits", "0/8", "a", "--", "true"], "must be at least 1"),
        (
            &["hold", "--permits", "9/8", "a"],
            "9 of 8 permits is invalid: the weight must not exceed the capacity",
        ),
        (&["run", "--shared", "--permits", "1/8", "a", "--", "true"], "--permits"),
        (&["--url", file, "run", "--shared", "a", "--", "true"], "leave out `--shared`"),
        (
            &["--url", file, "hold", "--ignore-stdin", "--permits", "2/8", "a"],
            "a store that promises PERMITS",
        ),
    ];
    for (words, hint) in wrong {
        let refused = leasehold(words).await;
        assert_eq!(refused.code, 64, "{words:?}: {refused:?}");
        assert!(refused.err.contains(hint), "{words:?}: {refused:?}");
        assert_eq!(refused.out, "", "{words:?}");
    }
}

#[cfg(all(feature = "file", feature = "migrate"))]
async fn invalid_move_exits_with_64() {
    let fixture = Fixture::new();
    let inside = |inner: &str| format!("{}?migrate_to={inner}", fixture.url());
    let (memory, file) = (inside("memory://"), inside("file:///tmp/elsewhere"));
    let (nested, common) = (inside("file:///a?migrate_to=file:///b"), inside("file:///a?ttl=3s"));
    let wrong: [(&[&str], &str); 7] = [
        (&["--url", fixture.url(), "migrate", "status"], "migrate_to=URL"),
        (&["--url", &memory, "migrate", "status"], "only tasks of one process"),
        (&["--url", &file, "migrate", "status"], "no move record"),
        (&["--url", &nested, "migrate", "status"], "migrate_to"),
        (&["--url", &common, "migrate", "status"], "`ttl`"),
        (&["--url", &file, "migrate", "advance", "--to", "late"], "old, shadow, both, drain, new"),
        (&["--url", &file, "migrate", "repair"], "--yes"),
    ];
    for (words, hint) in wrong {
        let refused = leasehold(words).await;
        assert!(refused.code == 64 && refused.err.contains(hint), "{words:?}: {refused:?}");
    }
}

async fn errors_are_json_where_that_was_asked_for() {
    for words in [&["--json", "hodl"] as &[&str], &["--url", "gopher://x", "ls", "--json"]] {
        let refused = leasehold(words).await;
        assert_eq!(refused.error()["exit_code"], 64, "{refused:?}");
        assert!(refused.error()["message"].is_string());
    }
}

async fn help_tells_the_exit_codes_and_no_secret() {
    let fixture = Fixture::on("redis://me:sesame@localhost");
    for words in [&["--help"] as &[&str], &["run", "--help"], &["hold", "--help"], &["revoke", "--help"]] {
        let help = fixture.done(words.iter().copied()).await;
        assert_eq!(help.code, 0);
        for code in ["75", "69", "64", "77"] {
            assert!(help.out.contains(code), "{words:?} does not tell {code}");
        }
        assert!(!help.out.contains("sesame"), "{}", help.out);
    }
    let version = leasehold(&["--version"]).await;
    assert!(
        version.out.starts_with("leasehold 0.1.0\nstores: ") && version.out.contains("file"),
        "{version:?}"
    );
}

async fn completions_are_written_for_every_shell() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let completions = leasehold(&["completions", shell]).await;
        assert_eq!(completions.code, 0);
        for command in ["run", "hold", "inspect", "ls", "revoke", "doctor"] {
            assert!(completions.out.contains(command), "{shell} does not know {command}");
        }
    }
    let mut sourced = Command::new("bash");
    let script = format!(
        "source <({LEASEHOLD} completions bash) && COMP_WORDS=(leasehold rev) COMP_CWORD=1 && \
         _leasehold leasehold rev leasehold && echo ${{COMPREPLY[@]}}"
    );
    sourced.args(["-c", &script]).kill_on_drop(true);
    assert_eq!(done(sourced).await.out.trim(), "revoke");
}

/// What the command can be told is what `docs/api` lists, at 80 columns and with one line for each option; `UPDATE_API=1`
/// writes it anew.
#[cfg(all(feature = "redis", feature = "metrics", feature = "migrate"))]
async fn the_manual_is_listed() {
    let mut current = String::new();
    let mut left = vec![String::new()];
    while let Some(words) = left.pop() {
        let shown = leasehold(&words.split_whitespace().chain(["--help"]).collect::<Vec<_>>()).await;
        assert_eq!(shown.code, 0, "{words:?}: {shown:?}");
        // A second line of an option would begin further in.
        let is_long = |line: &&str| line.chars().count() > 80 || line.starts_with("            ");
        assert_eq!(shown.out.lines().find(is_long), None, "{words:?}");
        current.push_str(&format!("$ leasehold {words}--help\n{}\n", shown.out.trim_end()));
        let commands = shown.out.split("Commands:\n").nth(1).unwrap_or_default().lines();
        let commands = commands.take_while(|line| !line.is_empty());
        let commands =
            commands.filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help");
        let mut nested: Vec<_> = commands.map(|command| format!("{words}{command} ")).collect();
        nested.reverse();
        left.append(&mut nested);
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/api/leasehold-cli.txt");
    if std::env::var_os("UPDATE_API").is_some() {
        std::fs::write(path, current).expect("it can be written");
    } else {
        let found = std::fs::read_to_string(path).unwrap_or_default();
        let first = found.lines().zip(current.lines()).find(|(found, current)| found != current);
        assert!(found == current, "{path} is stale, first at {first:?}; `make fix` writes it anew");
    }
}

/// Each command has a page with what the help leaves out, in which `mandoc` finds no fault.
async fn man_pages_are_written() {
    let scratch = testbed::Scratch::new("man").unwrap();
    let pages = scratch.path().join("pages");
    let written = leasehold(&["man", &pages.display().to_string()]).await;
    assert_eq!((written.code, &*written.out, &*written.err), (0, "", ""), "{written:?}");
    let page = |name: &str| std::fs::read_to_string(pages.join(name)).unwrap().replace('\n', " ");
    assert!(page("leasehold.1").contains("Exit codes"));
    for (name, told) in
        [("leasehold-run.1", "connect_wait"), ("leasehold-token-base-set.1", "smaller tokens")]
    {
        assert!(page(name).contains(told), "{name}");
    }
    let mut files: Vec<_> = std::fs::read_dir(&pages).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    let mut lint = Command::new("mandoc");
    lint.args(["-T", "lint"]).args(files);
    match lint.output().await {
        Ok(found) => assert_eq!(String::from_utf8_lossy(&found.stdout), "", "mandoc -T lint"),
        Err(error) => {
            assert!(std::env::var_os("CI").is_none(), "mandoc: {error}");
            eprintln!("left out: mandoc is not installed");
        }
    }
}
