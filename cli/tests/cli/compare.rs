//! `leasehold compare`: the comparison of the checkout around, or where to get one.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, lchown, symlink};
use std::path::Path;

use rustix::process::geteuid;
use testbed::Scratch;
use tokio::process::Command;

use crate::fixture::{Done, LEASEHOLD, done};

testbed::trials![
    compare_becomes_the_comparison_of_its_checkout,
    without_a_checkout_compare_says_where_to_get_one,
    a_comparison_of_somebody_else_is_not_started,
];

/// A folder with a comparison that says where it is and what it is told, and ends with 3.
async fn checkout() -> Scratch {
    let checkout = Scratch::new("checkout").expect("a directory can be made");
    let text = checkout.path().join("text");
    fs::write(&text, "#!/bin/sh\necho \"$0\"\nprintf '%s\\n' \"$@\"\nexit 3\n").expect("it can be written");
    // Written by another process, so that nobody whom this one starts has it open for writing.
    let mut install = Command::new("install");
    install.args(["-D", "-m", "755"]).arg(text).arg(checkout.path().join("comparison/compare"));
    assert_eq!(done(install).await.code, 0);
    checkout
}

async fn compare(place: &Path, words: &[&str]) -> Done {
    let mut command = Command::new(LEASEHOLD);
    command.current_dir(place).args(words).kill_on_drop(true);
    done(command).await
}

/// Anywhere in a checkout, its comparison runs instead: told all that was said, and with its own end.
async fn compare_becomes_the_comparison_of_its_checkout() {
    let checkout = checkout().await;
    let inside = checkout.path().join("docs/deep");
    fs::create_dir_all(&inside).expect("a directory can be made");
    let program = checkout.path().join("comparison/compare").display().to_string();
    let lines = |words: &[&str]| format!("{program}\n{}\n", words.join("\n"));
    for place in [checkout.path(), &inside] {
        let words =
            ["compare", "--url", "redis=redis://h", "--url", "zk=zk://h", "--store", "redis", "--json"];
        let ran = compare(place, &words).await;
        assert_eq!((ran.code, ran.err.as_str()), (3, ""), "{ran:?}");
        assert_eq!(ran.out, lines(&words[1..]));
    }
    let ran = compare(&inside, &["compare", "--json", "--quick"]).await;
    assert_eq!(ran.out, lines(&["--json", "--quick"]), "{ran:?}");
}

async fn without_a_checkout_compare_says_where_to_get_one() {
    let elsewhere = Scratch::new("elsewhere").expect("a directory can be made");
    let refused = compare(elsewhere.path(), &["compare", "--quick"]).await;
    assert_eq!((refused.code, refused.out.as_str()), (64, ""), "{refused:?}");
    assert!(refused.err.contains("the sources of leasehold"), "{refused:?}");
}

/// Neither one in a folder that others may write to, nor one that another user's link leads to.
async fn a_comparison_of_somebody_else_is_not_started() {
    let checkout = checkout().await;
    let folder = checkout.path().join("comparison");
    let program = folder.join("compare");
    let refused = async |why: &str| {
        let refused = compare(checkout.path(), &["compare"]).await;
        assert_eq!((refused.code, refused.out.as_str()), (64, ""), "{refused:?}");
        assert!(refused.err.contains(why) && refused.err.contains("start it yourself"), "{refused:?}");
    };
    fs::set_permissions(&folder, Permissions::from_mode(0o777)).expect("it is ours");
    refused("comparison is writable by everybody (mode 0777)").await;
    fs::set_permissions(&folder, Permissions::from_mode(0o755)).expect("it is ours");
    if geteuid().is_root() {
        fs::rename(&program, folder.join("ours")).expect("it can be renamed");
        symlink("ours", &program).expect("a link can be made");
        lchown(&program, Some(65_534), None).expect("root gives links away");
        refused("compare belongs to user 65534").await;
    }
}
