//! The output for people and programs: sentences, JSON, and nothing that steers a terminal.
//!
//! Labels and metadata come from other clients, so characters that could move a cursor, hide or reorder
//! letters are written escaped, in text and in JSON. A JSON reader gets the original text.

use std::borrow::Cow;
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use leasehold::clock::{BootClock, Clock};
use leasehold::{Mode, backend};
use serde::Serialize;

use crate::failure::Failure;
use crate::table::Width;

/// In which form results are written.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Form {
    Json,
    /// For people.
    Words(Width),
}

/// A holder as JSON shows it.
#[derive(Debug, Serialize)]
pub(crate) struct Holder {
    label: String,
    token: Option<u64>,
    since: Option<String>,
    metadata: Option<String>,
    mode: String,
    foreign: bool,
}

impl From<&backend::Holder> for Holder {
    fn from(holder: &backend::Holder) -> Self {
        Self {
            label: holder.label.clone(),
            token: holder.token.map(|token| token.get()),
            since: holder.since.map(moment),
            metadata: holder.metadata.clone(),
            mode: mode(holder.mode),
            foreign: holder.foreign,
        }
    }
}

/// The state of a lock as JSON shows it.
#[derive(Debug, Serialize)]
pub(crate) struct State {
    name: String,
    held: bool,
    /// The first of them.
    holder: Option<Holder>,
    holders: Vec<Holder>,
    waiting: usize,
}

impl From<&backend::LockState> for State {
    fn from(state: &backend::LockState) -> Self {
        Self {
            name: state.name.to_string(),
            held: state.holder().is_some(),
            holder: state.holder().map(Holder::from),
            holders: state.holders.iter().map(Holder::from).collect(),
            waiting: state.contenders,
        }
    }
}

/// A holder in a sentence.
pub(crate) fn who(holder: &backend::Holder) -> String {
    let label = if holder.label.is_empty() { "a holder without a label" } else { &holder.label };
    match holder.since {
        Some(since) => format!("{label} since {}", moment(since)),
        None => label.to_owned(),
    }
}

/// How a lock is held; permits as on the command line, such as `2/8`.
pub(crate) fn mode(mode: Mode) -> String {
    match mode {
        Mode::EXCLUSIVE | Mode::SHARED => mode.to_string(),
        _ => format!("{}/{}", mode.weight(), mode.capacity()),
    }
}

/// A point in time, in UTC to the second.
pub(crate) fn moment(time: SystemTime) -> String {
    humantime::format_rfc3339_seconds(time).to_string()
}

/// A point in time, and how long ago that is.
pub(crate) fn ago(time: SystemTime) -> String {
    match BootClock::new().wall_time().duration_since(time) {
        Ok(age) => {
            let age = Duration::from_secs(age.as_secs());
            format!("{} ({} ago)", moment(time), humantime::format_duration(age))
        }
        Err(_ahead) => moment(time),
    }
}

/// How long ago a point in time is, as short as it can be read: `42s`, `3m`, `2h`, `5d`.
pub(crate) fn age(time: SystemTime) -> String {
    age_at(time, BootClock::new().wall_time())
}

/// The same, seen at `now`.
pub(crate) fn age_at(time: SystemTime, now: SystemTime) -> String {
    let age = now.duration_since(time).unwrap_or_default().as_secs();
    match age {
        0..=119 => format!("{age}s"),
        120..=7_199 => format!("{}m", age / 60),
        7_200..=172_799 => format!("{}h", age / 3_600),
        _ => format!("{}d", age / 86_400),
    }
}

/// The text, with escapes for characters that steer a terminal.
pub(crate) fn safe(text: &str) -> Cow<'_, str> {
    escaped(text, |c| c.escape_default().to_string())
}

/// The value on one line of JSON, which a terminal may show.
pub(crate) fn line_of_json(value: &impl Serialize) -> String {
    let line = serde_json::to_string(value).expect("names and numbers have a form in JSON");
    // Such characters stand within strings only.
    let units = |c: char| c.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")).collect();
    escaped(&line, units).into_owned()
}

fn escaped(text: &str, escape: impl Fn(char) -> String) -> Cow<'_, str> {
    if !text.chars().any(steers) {
        return text.into();
    }
    text.chars().map(|c| if steers(c) { escape(c) } else { c.into() }).collect::<String>().into()
}

/// Whether a character has no form of its own and changes how others are shown: of the categories Cc, Cf,
/// Zl and Zp of Unicode 17.
fn steers(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{ad}' | '\u{600}'..='\u{605}' | '\u{61c}' | '\u{6dd}' | '\u{70f}'
            | '\u{890}'..='\u{891}' | '\u{8e2}' | '\u{180e}' | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
            | '\u{110bd}' | '\u{110cd}' | '\u{13430}'..='\u{1343f}' | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}' | '\u{e0001}' | '\u{e0020}'..='\u{e007f}')
}

/// Writes a value as one line of JSON to standard output.
pub(crate) fn json(value: &impl Serialize) -> Result<(), Failure> {
    say(&line_of_json(value))
}

/// Writes a line to standard output at once.
pub(crate) fn say(line: &str) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    match writeln!(stdout, "{line}").and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written.map_err(|error| Failure::system("cannot write to standard output", error)),
    }
}

/// Writes a note that is neither a result nor an error, unless only errors are wanted.
pub(crate) fn note(what: &str) {
    if !SILENT.load(Ordering::Relaxed) {
        complain(&format!("leasehold: {}", safe(what)));
    }
}

/// Replaces the last line of a terminal by a note, which the next one replaces.
#[cfg(feature = "migrate")]
pub(crate) fn note_in_place(what: &str) {
    if !SILENT.load(Ordering::Relaxed) {
        let mut stderr = io::stderr().lock();
        let _unread = write!(stderr, "\r\x1b[K{}", safe(what)).and_then(|()| stderr.flush());
    }
}

/// From here on, nothing but errors is written to standard error.
pub(crate) fn be_silent() {
    SILENT.store(true, Ordering::Relaxed);
}

static SILENT: AtomicBool = AtomicBool::new(false);

/// Writes a line to standard error, if that can be.
pub(crate) fn complain(line: &str) {
    let _unread = writeln!(io::stderr().lock(), "{line}");
}

/// Standard error as log lines are written to it: no field of an event steers a terminal, or begins a line of its own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Log;

impl Write for Log {
    /// The formatter writes each event at once.
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(event);
        let line = safe(text.strip_suffix('\n').unwrap_or(&text)).into_owned() + "\n";
        io::stderr().lock().write_all(line.as_bytes())?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A holder's label can neither move a cursor nor reorder or hide letters; other letters
    /// stay.
    #[test]
    fn control_characters_are_shown_escaped() {
        assert_eq!(safe("grün/7 \u{5e9}\u{300} \"\\\u{1f512}"), "grün/7 \u{5e9}\u{300} \"\\\u{1f512}");
        assert_eq!(safe("a\x1b[2J\nb\u{9b}"), "a\\u{1b}[2J\\nb\\u{9b}");
        for (unsafe_one, shown) in [
            ('\u{7f}', "\\u{7f}"),
            ('\u{9b}', "\\u{9b}"),
            ('\u{ad}', "\\u{ad}"),
            ('\u{200b}', "\\u{200b}"),
            ('\u{2028}', "\\u{2028}"),
            ('\u{2029}', "\\u{2029}"),
            ('\u{202e}', "\\u{202e}"),
            ('\u{2066}', "\\u{2066}"),
            ('\u{feff}', "\\u{feff}"),
            ('\u{e0041}', "\\u{e0041}"),
        ] {
            assert_eq!(safe(&format!("a{unsafe_one}b")), format!("a{shown}b"));
            let text = format!("a{unsafe_one}\"b");
            let json = line_of_json(&text);
            assert!(json.is_ascii() && !json.chars().any(char::is_control), "{json}");
            assert_eq!(serde_json::from_str::<String>(&json).unwrap(), text);
        }
        assert_eq!(line_of_json(&"\x1b\u{9b}\u{e0041}ü"), "\"\\u001b\\u009b\\udb40\\udc41ü\"");
    }

    /// A holder without a label still reads as a sentence.
    #[test]
    fn a_holder_is_somebody() {
        let mut holder = backend::Holder::new("");
        assert_eq!(who(&holder), "a holder without a label");
        holder.label = "host/7".to_owned();
        holder.since = Some(SystemTime::UNIX_EPOCH);
        assert_eq!(who(&holder), "host/7 since 1970-01-01T00:00:00Z");
    }
}
