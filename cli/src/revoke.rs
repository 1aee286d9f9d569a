//! `leasehold revoke`: requests the release of a lock, or deletes its holder's entry.

use std::io::{self, BufRead, IsTerminal, Write};

use leasehold::Revocation;

use crate::arguments::{Revoke, Store};
use crate::failure::{Exit, Failure};
use crate::output::{self, Form};
use crate::store::{self, Place};

pub(crate) async fn revoke(store: &Store, arguments: &Revoke, form: Form) -> Result<Exit, Failure> {
    let name = &*arguments.name;
    if arguments.force && !arguments.yes && !is_sure(name)? {
        return Err(Failure::usage("cancelled: the lock was not revoked"));
    }
    let locks = Place::of(store)?.open().await?;
    let how = match arguments.force {
        true => leasehold::Revoke::Force,
        false => leasehold::Revoke::Ask { grace: arguments.grace },
    };
    let revocation = locks.revoke(name, how).await;
    store::close(&locks).await;
    let (word, sentence, exit) = match revocation? {
        Revocation::Released if arguments.force => {
            ("released", "revoked by force; its former holder may not be notified yet", Exit::SUCCESS)
        }
        Revocation::Released => ("released", "released, or its lease has ended", Exit::SUCCESS),
        Revocation::Late => {
            let sentence = "no longer held, but its holder did not release it in time: the holder may still \
                 be working";
            ("late", sentence, Exit::SUCCESS)
        }
        Revocation::NotHeld => ("not_held", "free", Exit::NO),
        Revocation::Unanswered => {
            let sentence = "still held: its holder did not answer in time; use `--force` to delete its entry";
            ("unanswered", sentence, Exit::BUSY)
        }
        Revocation::Foreign => {
            let sentence = "held by a foreign client, which cannot be notified; use `--force` to delete its \
                 entry";
            ("foreign", sentence, Exit::BUSY)
        }
    };
    if matches!(form, Form::Json) {
        output::json(&serde_json::json!({ "name": name, "force": arguments.force, "outcome": word }))?;
    } else {
        output::say(&format!("{}: {sentence}", output::safe(name)))?;
    }
    Ok(exit)
}

/// Asks for confirmation at the terminal.
fn is_sure(name: &str) -> Result<bool, Failure> {
    if !io::stdin().is_terminal() {
        return Err(Failure::usage(
            "`--force` revokes the lock of a holder that may still be working; use `--yes` to confirm",
        ));
    }
    let mut stderr = io::stderr().lock();
    let asked = write!(
        stderr,
        "The holder of {name:?} may still be working. Until it is notified, two clients may believe that\n\
         they hold the lock, and only the fencing token protects the resource.\n\
         Revoke it by force? [y/N] "
    );
    asked
        .and_then(|()| stderr.flush())
        .map_err(|error| Failure::system("cannot show the question", error))?;
    let mut answer = String::new();
    let read = io::stdin().lock().read_line(&mut answer);
    read.map_err(|error| Failure::system("cannot read the answer", error))?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}
