//! `leasehold top`: the locks of a store on the whole terminal, read again and again.
//!
//! Reading changes nothing at the store. The keyboard has a thread of its own, which ends with the process.

mod view;

use std::io::{self, IsTerminal};
use std::pin::pin;
use std::thread;
use std::time::Duration;

use clap::Args;
use futures_util::StreamExt;
use futures_util::stream;
use leasehold::LockManager;
use leasehold::clock::{BootClock, Clock};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event};
use tokio::sync::mpsc;

use crate::arguments::Store;
use crate::failure::{Exit, Failure};
use crate::output;
use crate::signals::Signals;
use crate::store::{self, Place};
use crate::top::view::View;

#[derive(Args, Debug)]
pub(crate) struct Top {
    /// Only names that start with this prefix
    #[arg(default_value = "", hide_default_value = true)]
    prefix: String,
    /// Time between two readings (1s)
    #[arg(long, value_name = "D", default_value = "1s", hide_default_value = true, value_parser = leasehold::span)]
    interval: Duration,
}

pub(crate) async fn top(store: &Store, arguments: &Top) -> Result<Exit, Failure> {
    let mut signals = Signals::of_the_end()?;
    let place = Place::of(store)?;
    if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
        return Err(Failure::usage("`top` needs a terminal: use `ls`, or `watch` for one lock"));
    }
    if arguments.interval < LEAST {
        let least = humantime::format_duration(LEAST);
        return Err(Failure::usage(format!("`--interval` is too short: expected at least {least}")));
    }
    let locks = place.open_until_a_signal(&mut signals).await?;
    let shown = show(&locks, &place, arguments, &mut signals).await;
    store::close_until_a_signal(&locks, &mut signals).await;
    shown.map_err(|error| Failure::system("cannot use the terminal", error)).map(|()| Exit::SUCCESS)
}

async fn show(locks: &LockManager, place: &Place, arguments: &Top, signals: &mut Signals) -> io::Result<()> {
    let clock = BootClock::new();
    let mut view = View::new(place.shown(), arguments.prefix.clone());
    let mut screen = Screen::open()?;
    let mut events = events();
    let first = true;
    let mut looks = pin!(stream::unfold(first, |first| async move {
        if !first {
            tokio::time::sleep(arguments.interval).await;
        }
        Some((locks.list(&arguments.prefix).await, false))
    }));
    loop {
        screen.0.draw(|frame| view.draw(frame, clock.wall_time()))?;
        tokio::select! {
            _signal = signals.next() => return Ok(()),
            event = events.recv() => match event {
                Some(Event::Key(key)) if view.press(key) => return Ok(()),
                Some(_shown_anew) => {}
                // The terminal is gone.
                None => return Ok(()),
            },
            Some(seen) = looks.next() => match seen {
                Ok(states) => view.see(&states, clock.now()),
                Err(error) => view.fail(&output::safe(&format!("{error:#}"))),
            },
        }
    }
}

/// The whole terminal, until this is dropped.
struct Screen(DefaultTerminal);

impl Screen {
    fn open() -> io::Result<Self> {
        // It may fail after it has changed the terminal.
        ratatui::try_init().map(Self).inspect_err(|_| ratatui::restore())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

fn events() -> mpsc::UnboundedReceiver<Event> {
    let (tell, events) = mpsc::unbounded_channel();
    thread::spawn(move || {
        while let Ok(event) = event::read() {
            if tell.send(event).is_err() {
                return;
            }
        }
    });
    events
}

/// A list reads every lock, so it is not asked for all the time.
const LEAST: Duration = Duration::from_millis(100);
