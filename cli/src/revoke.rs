//! `leasehold revoke`: asking a holder to give a lock up, or taking it away.

use std::io::{self, BufRead, IsTerminal, Write};

use leasehold::Revocation;

use crate::arguments::{Revoke, Store};
use crate::failure::{Exit, Failure};
use crate::output;
use crate::store::{self, Place};

pub(crate) async fn revoke(store: &Store, arguments: &Revoke, json: bool) -> Result<Exit, Failure> {
    let name = &*arguments.name;
    if arguments.force && !arguments.yes && !is_sure(name)? {
        return Err(Failure::usage("nothing was done"));
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
            ("released", "taken away; its former holder may not know yet", Exit::SUCCESS)
        }
        Revocation::Released => ("released", "released, or its lease has ended", Exit::SUCCESS),
        Revocation::Late => {
            let sentence = "no longer held, but its holder did not release it in time: it may not have heard, and \
                            may still be at work";
            ("late", sentence, Exit::SUCCESS)
        }
        Revocation::NotHeld => ("not_held", "held by nobody", Exit::NO),
        Revocation::Unanswered => {
            let sentence = "still held: its holder did not answer in time; --force takes it away";
            ("unanswered", sentence, Exit::BUSY)
        }
        Revocation::Foreign => {
            let sentence = "held by a foreign client, which cannot be asked; --force takes it away";
            ("foreign", sentence, Exit::BUSY)
        }
    };
    if json {
        output::json(&serde_json::json!({ "name": name, "force": arguments.force, "outcome": word }))?;
    } else {
        output::say(&format!("{}: {sentence}", output::safe(name)))?;
    }
    Ok(exit)
}

/// Asks whoever sits at the terminal.
fn is_sure(name: &str) -> Result<bool, Failure> {
    if !io::stdin().is_terminal() {
        return Err(Failure::usage(
            "--force takes the lock from a holder who may still be at work; say --yes if that is meant",
        ));
    }
    let mut stderr = io::stderr().lock();
    let asked = write!(
        stderr,
        "The holder of {name:?} may still be at work. Until it has heard that the lock is taken away, two\n\
         may believe they hold it, and only the fencing token keeps them apart.\n\
         Take it away? [y/N] "
    );
    asked.and_then(|()| stderr.flush()).map_err(|error| Failure::system("cannot ask", error))?;
    let mut answer = String::new();
    let read = io::stdin().lock().read_line(&mut answer);
    read.map_err(|error| Failure::system("cannot read the answer", error))?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}
