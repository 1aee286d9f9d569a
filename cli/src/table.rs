//! Tables for people: as wide as the terminal, whole where there is none.
//!
//! A cell of letters and digits that a reader copies, such as a token, is never split or cut.

use std::borrow::Cow;
use std::io;

use rustix::termios::{isatty, tcgetwinsize};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use crate::failure::Failure;
use crate::output;

/// How a column gives way where the table is too wide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Column {
    /// Not at all.
    Whole,
    /// Its cells are cut at the end.
    Cut,
    /// Its cells go on in further lines; it is the last column.
    Wrapped,
}

/// The space that a table has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Width {
    /// No limit: `--wide`, or output that is not a terminal.
    Wide,
    Columns(usize),
}

impl Width {
    /// That of standard output.
    pub(crate) fn of_stdout(wide: bool) -> Self {
        let stdout = io::stdout();
        if wide || !isatty(&stdout) {
            return Self::Wide;
        }
        // A terminal that does not know its width says 0.
        let columns = tcgetwinsize(&stdout).map_or(0, |size| usize::from(size.ws_col));
        Self::Columns(if columns == 0 { UNKNOWN } else { columns })
    }
}

/// A table without lines.
#[derive(Debug)]
pub(crate) struct Table<const N: usize> {
    columns: [Column; N],
    rows: Vec<[String; N]>,
}

impl<const N: usize> Table<N> {
    pub(crate) fn new(columns: [Column; N]) -> Self {
        Self { columns, rows: Vec::new() }
    }

    pub(crate) fn with_header(columns: [Column; N], header: [&str; N]) -> Self {
        Self { columns, rows: vec![header.map(str::to_owned)] }
    }

    /// Characters that steer a terminal are escaped.
    pub(crate) fn row(&mut self, cells: [&str; N]) {
        self.rows.push(cells.map(|cell| output::safe(cell).into_owned()));
    }

    /// Writes it to standard output.
    pub(crate) fn show(&self, width: Width) -> Result<(), Failure> {
        output::say(&self.lines(width).join("\n"))
    }

    pub(crate) fn lines(&self, width: Width) -> Vec<String> {
        let widths = self.widths(width);
        self.rows.iter().flat_map(|row| self.line(row, &widths)).collect()
    }

    /// The width of each column; of none for the last ones if there is no room for them. The first two always stay.
    fn widths(&self, width: Width) -> Vec<usize> {
        let widest =
            |column: usize| self.rows.iter().map(|row| row[column].width()).max().unwrap_or_default();
        let full: Vec<_> = (0..N).map(widest).collect();
        let Width::Columns(room) = width else { return full };
        let mut count = N;
        loop {
            // From the full widths: the others get what a dropped column leaves.
            let (widths, fits) = self.narrowed(full[..count].to_vec(), room);
            if fits || count <= KEPT {
                return widths;
            }
            count -= 1;
        }
    }

    /// The widths for so much room, and whether that is enough.
    fn narrowed(&self, mut widths: Vec<usize>, room: usize) -> (Vec<usize>, bool) {
        while widths.iter().sum::<usize>() + GAP * widths.len().saturating_sub(1) > room {
            let gives = |column: &usize| self.columns[*column] != Column::Whole && widths[*column] > LEAST;
            match (0..widths.len()).filter(gives).max_by_key(|column| widths[*column]) {
                Some(widest) => widths[widest] -= 1,
                None => return (widths, false),
            }
        }
        (widths, true)
    }

    fn line(&self, row: &[String; N], widths: &[usize]) -> Vec<String> {
        let (mut lines, mut indent) = (vec![String::new()], 0);
        for ((cell, &width), column) in row.iter().zip(widths).zip(self.columns) {
            let mut parts = match column {
                Column::Whole => vec![Cow::from(cell)],
                Column::Cut => vec![cut(cell, width)],
                Column::Wrapped => wrapped(cell, width),
            }
            .into_iter();
            let first = parts.next().unwrap_or_default();
            let pad = width.saturating_sub(first.width()) + GAP;
            lines[0] += &format!("{first}{:pad$}", "");
            lines.extend(parts.map(|part| format!("{:indent$}{part}", "")));
            indent += width + GAP;
        }
        lines.into_iter().map(|line| line.trim_end().to_owned()).collect()
    }
}

/// The beginning of a text that is too long.
fn cut(text: &str, room: usize) -> Cow<'_, str> {
    if text.width() <= room {
        return text.into();
    }
    let mut left = room.saturating_sub(1);
    let fits = |c: &char| {
        let width = c.width().unwrap_or_default();
        let fits = width <= left;
        left = left.saturating_sub(width);
        fits
    };
    let start: String = text.chars().take_while(fits).collect();
    (start + "…").into()
}

/// The lines of a text, broken between words; a word that is longer than the room stays whole.
fn wrapped(text: &str, room: usize) -> Vec<Cow<'_, str>> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let last = lines.last_mut().expect("there is a line");
        if last.is_empty() {
            last.push_str(word);
        } else if last.width() + 1 + word.width() <= room {
            *last += " ";
            *last += word;
        } else {
            lines.push(word.to_owned());
        }
    }
    lines.into_iter().map(Cow::from).collect()
}

/// The width of a terminal that does not know it.
const UNKNOWN: usize = 80;
/// Between two columns.
const GAP: usize = 2;
/// The rest of a column that gives way.
const LEAST: usize = 10;
/// So many columns are never dropped: a subject and its value.
const KEPT: usize = 2;

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "1838383168220346368";

    fn table() -> Table<4> {
        let columns = [Column::Cut, Column::Whole, Column::Cut, Column::Wrapped];
        let mut table = Table::with_header(columns, ["NAME", "TOKEN", "HOLDER", "METADATA"]);
        table.row([
            "invoice/a-name-that-goes-on-and-on",
            TOKEN,
            "host-with-a-name/4711",
            "build 1234 of the main branch",
        ]);
        table.row(["b", TOKEN, "漢字漢字漢字漢字", "-"]);
        table
    }

    /// At any width no line is longer than the terminal, and every token can be copied.
    #[test]
    fn tables_fit_and_tokens_stay_whole() {
        for columns in [40, 60, 80, 200] {
            let lines = table().lines(Width::Columns(columns));
            assert!(lines.iter().all(|line| line.width() <= columns), "{columns}: {lines:#?}");
            assert_eq!(lines.iter().filter(|line| line.contains(TOKEN)).count(), 2, "{columns}: {lines:#?}");
        }
        assert_eq!(table().lines(Width::Columns(200)), table().lines(Width::Wide));
        let narrow = table().lines(Width::Columns(60));
        assert!(narrow[1].starts_with("invoice/a") && narrow.last().is_some_and(|line| line.contains("漢…")));
        assert!(!table().lines(Width::Columns(40))[0].contains("METADATA"));
    }

    /// The columns that stay share what a dropped one leaves.
    #[test]
    fn dropped_column_leaves_its_room_to_the_others() {
        let (name, holder) = ("invoices/a-name-that-goes-on-for-a-while", "some-host.example.org/4711");
        let columns = [Column::Cut, Column::Cut, Column::Whole, Column::Whole, Column::Whole, Column::Cut];
        let mut table =
            Table::with_header(columns, ["NAME", "HOLDER", "TOKEN", "SINCE", "WAITING", "METADATA"]);
        table.row([name, holder, TOKEN, "a long time ago", "1234567", &"why ".repeat(30)]);
        let lines = table.lines(Width::Columns(80));
        assert!(!lines[0].contains("METADATA") && lines[0].contains("WAITING"), "{lines:#?}");
        assert_eq!(lines[1].width(), 80, "{lines:#?}");
    }

    /// A subject without its value says nothing.
    #[test]
    fn value_beside_a_subject_is_never_dropped() {
        let mut table = Table::new([Column::Whole, Column::Wrapped]);
        table.row(["a-subject-that-is-as-long-as-the-line", "one two"]);
        assert!(table.lines(Width::Columns(40))[0].ends_with("  one two"));
    }

    /// Long texts go on below their own beginning.
    #[test]
    fn sentences_are_wrapped_between_words() {
        let mut table = Table::new([Column::Whole, Column::Wrapped]);
        table.row(["holder", "one two three"]);
        assert_eq!(table.lines(Width::Columns(19)), ["holder  one two", "        three"]);
        assert_eq!(table.lines(Width::Wide), ["holder  one two three"]);
    }
}
