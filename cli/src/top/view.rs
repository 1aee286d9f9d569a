//! The view of `top`, and how keys change it; nothing here reads a store or a keyboard.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, SystemTime};

use leasehold::backend::{Holder, LockState};
use leasehold::clock::Moment;
use ratatui::Frame;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Style, Stylize};
use ratatui::text::{Line, Text};
use ratatui::widgets::{Cell, Row, Table, TableState};

use crate::output;

/// A column by which the locks are sorted, the largest first but for names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sort {
    Name,
    Since,
    Waiting,
    Rate,
}

impl Sort {
    const fn next(self) -> Self {
        match self {
            Self::Name => Self::Since,
            Self::Since => Self::Waiting,
            Self::Waiting => Self::Rate,
            Self::Rate => Self::Name,
        }
    }

    const fn word(self) -> &'static str {
        match self {
            Self::Name => "name",
            Self::Since => "since",
            Self::Waiting => "waiting",
            Self::Rate => "grants",
        }
    }
}

/// The grants of one lock that were seen within the last minute.
#[derive(Debug, Default)]
struct Grants {
    newest: Option<u64>,
    seen: VecDeque<Moment>,
}

#[derive(Debug)]
pub(crate) struct View {
    store: String,
    prefix: String,
    locks: Vec<LockState>,
    grants: BTreeMap<String, Grants>,
    has_looked: bool,
    error: Option<String>,
    sort: Sort,
    is_reversed: bool,
    filter: String,
    is_typing: bool,
    table: TableState,
}

impl View {
    pub(crate) fn new(store: String, prefix: String) -> Self {
        Self {
            store,
            prefix,
            locks: Vec::new(),
            grants: BTreeMap::new(),
            has_looked: false,
            error: None,
            sort: Sort::Name,
            is_reversed: false,
            filter: String::new(),
            is_typing: false,
            table: TableState::default(),
        }
    }

    /// Takes what the store has listed.
    pub(crate) fn see(&mut self, locks: &[LockState], now: Moment) {
        for lock in locks {
            let newest = lock.holders.iter().filter_map(|holder| holder.token).map(|token| token.get()).max();
            let grants = self.grants.entry(lock.name.to_string()).or_default();
            // What was held before the first look was not granted since.
            if newest > grants.newest && self.has_looked {
                grants.seen.push_back(now);
            }
            grants.newest = newest.max(grants.newest);
        }
        for grants in self.grants.values_mut() {
            while grants.seen.front().is_some_and(|seen| now.since(*seen) > WINDOW) {
                grants.seen.pop_front();
            }
        }
        let is_listed = |name: &str| locks.iter().any(|lock| lock.name.as_str() == name);
        self.grants.retain(|name, grants| !grants.seen.is_empty() || is_listed(name));
        (self.locks, self.has_looked, self.error) = (locks.to_vec(), true, None);
    }

    /// The store did not answer; what it listed before is still shown.
    pub(crate) fn fail(&mut self, error: &str) {
        self.error = Some(error.to_owned());
    }

    /// Handles a key; returns whether it ends the command.
    pub(crate) fn press(&mut self, key: KeyEvent) -> bool {
        if key.kind == KeyEventKind::Release {
            return false;
        }
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('c' | 'd') if is_control => return true,
            KeyCode::Enter if self.is_typing => self.is_typing = false,
            KeyCode::Esc => (self.is_typing, self.filter) = (false, String::new()),
            KeyCode::Backspace if self.is_typing => _ = self.filter.pop(),
            KeyCode::Char(typed) if self.is_typing => self.filter.push(typed),
            KeyCode::Char('q') => return true,
            KeyCode::Char('/') => self.is_typing = true,
            KeyCode::Char('s') => self.sort = self.sort.next(),
            KeyCode::Char('r') => self.is_reversed = !self.is_reversed,
            KeyCode::Down | KeyCode::Char('j') => self.table.select_next(),
            KeyCode::Up | KeyCode::Char('k') => self.table.select_previous(),
            KeyCode::PageDown => self.table.scroll_down_by(PAGE),
            KeyCode::PageUp => self.table.scroll_up_by(PAGE),
            KeyCode::Home => self.table.select_first(),
            KeyCode::End => self.table.select_last(),
            _ => {}
        }
        false
    }

    fn rate(&self, lock: &LockState) -> usize {
        self.grants.get(lock.name.as_str()).map_or(0, |grants| grants.seen.len())
    }

    /// The locks that are shown, in order.
    fn sorted(&self) -> Vec<&LockState> {
        let is_wanted = |text: &str| text.contains(&self.filter);
        let is_shown = |lock: &&LockState| {
            is_wanted(lock.name.as_str()) || lock.holders.iter().any(|holder| is_wanted(&holder.label))
        };
        let mut locks: Vec<_> = self.locks.iter().filter(is_shown).collect();
        locks.sort_by(|one, other| {
            let by_name = one.name.cmp(&other.name);
            let since = |lock: &LockState| lock.holder().and_then(|holder| holder.since);
            let largest_first = match self.sort {
                Sort::Name => by_name,
                // A free lock comes last.
                Sort::Since => {
                    (since(one).is_none(), since(one)).cmp(&(since(other).is_none(), since(other)))
                }
                Sort::Waiting => other.contenders.cmp(&one.contenders),
                Sort::Rate => self.rate(other).cmp(&self.rate(one)),
            };
            let order = if self.is_reversed { largest_first.reverse() } else { largest_first };
            order.then(by_name)
        });
        locks
    }

    pub(crate) fn draw(&mut self, frame: &mut Frame<'_>, now: SystemTime) {
        let [head, body, foot] =
            Layout::vertical([Constraint::Length(2), Constraint::Min(1), Constraint::Length(1)])
                .areas(frame.area());
        let rows: Vec<_> = self.sorted().into_iter().flat_map(|lock| self.rows(lock, now)).collect();
        frame.render_widget(self.head(), head);
        let header = ["NAME", "HOLDER", "MODE", "SINCE", "TTL", "WAITING", "GRANTS/MIN"];
        let table = Table::new(rows, WIDTHS).header(Row::new(header).bold()).column_spacing(2);
        frame.render_stateful_widget(
            table.row_highlight_style(Style::new().reversed()),
            body,
            &mut self.table,
        );
        frame.render_widget(self.foot(), foot);
    }

    fn head(&self) -> Text<'_> {
        let held = self.locks.iter().filter(|lock| lock.holder().is_some()).count();
        let waiting: usize = self.locks.iter().map(|lock| lock.contenders).sum();
        let grants: usize = self.grants.values().map(|grants| grants.seen.len()).sum();
        let prefix =
            if self.prefix.is_empty() { String::new() } else { format!("  names {}…", self.prefix) };
        let counts = format!("{held} held, {waiting} waiting, {grants} grants seen in a minute");
        let second = match &self.error {
            Some(error) => Line::from(error.as_str()).red(),
            None if !self.has_looked => Line::from("reading…"),
            None => Line::from(counts),
        };
        let first = Line::from(output::safe(&format!("{}{prefix}", self.store)).into_owned()).bold();
        Text::from(vec![first, second])
    }

    fn foot(&self) -> Line<'_> {
        if self.is_typing {
            return Line::from(format!("filter: {}▏  Enter keeps it, Esc clears it", self.filter));
        }
        let order = if self.is_reversed { ", reversed" } else { "" };
        let filter = if self.filter.is_empty() { String::new() } else { format!(" ({})", self.filter) };
        Line::from(format!(
            "q quit  s sort: {}{order}  r reverse  / filter{filter}  ↑↓ scroll",
            self.sort.word()
        ))
    }

    /// A row for each holder, and one for a lock without a holder.
    fn rows(&self, lock: &LockState, now: SystemTime) -> Vec<Row<'static>> {
        let nobody = lock.holders.is_empty().then_some(None);
        let cells = |(at, holder): (usize, Option<&Holder>)| {
            let first = |text: String| if at == 0 { text } else { String::new() };
            let of = |show: &dyn Fn(&Holder) -> Option<String>| {
                holder.and_then(show).unwrap_or_else(|| "-".to_owned())
            };
            Row::new([
                Cell::from(first(output::safe(lock.name.as_str()).into_owned())),
                Cell::from(of(&|holder| Some(output::safe(&holder.label).into_owned()))),
                Cell::from(of(&|holder| Some(output::mode(holder.mode)))),
                Cell::from(of(&|holder| holder.since.map(|since| output::age_at(since, now)))),
                Cell::from(of(&|holder| holder.ttl.map(lasts))),
                Cell::from(first(lock.contenders.to_string())),
                Cell::from(first(self.rate(lock).to_string())),
            ])
        };
        lock.holders.iter().map(Some).chain(nobody).enumerate().map(cells).collect()
    }
}

/// How long a lease lasts without a renewal, or its rest where the store knows only that.
fn lasts(ttl: Duration) -> String {
    match ttl {
        Duration::MAX => "never ends".to_owned(),
        ttl => format!("{:.1}s", ttl.as_secs_f64()),
    }
}

const WIDTHS: [Constraint; 7] = [
    Constraint::Fill(3),
    Constraint::Fill(2),
    Constraint::Length(9),
    Constraint::Length(5),
    Constraint::Length(10),
    Constraint::Length(7),
    Constraint::Length(10),
];
/// For how long a grant counts.
const WINDOW: Duration = Duration::from_secs(60);
/// Rows of a step by PageUp and PageDown.
const PAGE: u16 = 10;

#[cfg(test)]
mod tests {
    use leasehold::LockName;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;

    fn lock(name: &str, counter: u64, since: u64, waiting: usize) -> LockState {
        let mut holder = Holder::new(format!("host-{name}/7")).with_counter(counter);
        holder.since = Some(SystemTime::UNIX_EPOCH + Duration::from_secs(since));
        holder.ttl = Some(Duration::from_millis(14_250));
        LockState::new(LockName::new(name).unwrap(), [holder], waiting)
    }

    fn at(seconds: u64) -> Moment {
        Moment::from_nanos(seconds * 1_000_000_000)
    }

    fn shown(view: &mut View, width: u16, height: u16) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(100);
        terminal.draw(|frame| view.draw(frame, now)).unwrap();
        let cells = terminal.backend().buffer().content().iter().map(|cell| cell.symbol());
        let cells: Vec<_> = cells.collect();
        cells.chunks(width.into()).map(|line| line.concat().trim_end().to_owned()).collect()
    }

    fn press(view: &mut View, keys: &str) -> bool {
        keys.chars().any(|key| {
            let code = match key {
                '\n' => KeyCode::Enter,
                '\u{1b}' => KeyCode::Esc,
                key => KeyCode::Char(key),
            };
            view.press(KeyEvent::new(code, KeyModifiers::NONE))
        })
    }

    fn names(view: &View) -> Vec<&str> {
        view.sorted().into_iter().map(|lock| lock.name.as_str()).collect()
    }

    #[test]
    fn screens_have_every_column_at_each_size() {
        let mut view = View::new("redis://h:6379/0".to_owned(), String::new());
        assert_eq!(shown(&mut view, 80, 24)[1], "reading…");
        view.see(&[lock("a", 1, 58, 2), lock("b", 1, 90, 0)], at(0));
        for (width, height) in [(80, 24), (200, 60)] {
            let lines = shown(&mut view, width, height);
            assert_eq!(lines.len(), usize::from(height));
            assert_eq!(
                (&*lines[0], &*lines[1]),
                ("redis://h:6379/0", "2 held, 2 waiting, 0 grants seen in a minute")
            );
            let words: Vec<_> = lines[3].split_whitespace().collect();
            assert_eq!(words, ["a", "host-a/7", "exclusive", "42s", "14.2s", "2", "0"]);
            assert!(lines.last().unwrap().starts_with("q quit  s sort: name"), "{lines:?}");
        }
        view.fail("cannot connect");
        assert_eq!(shown(&mut view, 80, 24)[1], "cannot connect");
    }

    #[test]
    fn keys_sort_filter_and_quit() {
        let mut view = View::new(String::new(), String::new());
        view.see(&[lock("a", 1, 50, 0), lock("b", 1, 10, 5), lock("c", 1, 90, 1)], at(0));
        assert_eq!(names(&view), ["a", "b", "c"]);
        press(&mut view, "r");
        assert_eq!(names(&view), ["c", "b", "a"]);
        press(&mut view, "rs");
        assert_eq!(names(&view), ["b", "a", "c"], "held for longest first");
        press(&mut view, "s");
        assert_eq!(names(&view), ["b", "c", "a"], "most waiters first");
        assert!(!press(&mut view, "/host-q"), "a letter of the filter");
        assert_eq!(names(&view), [""; 0]);
        press(&mut view, "\u{1b}/host-c\n");
        assert_eq!(names(&view), ["c"]);
        assert!(press(&mut view, "q"));
    }

    /// A larger token is a grant, for a minute; what was held at the first look is none.
    #[test]
    fn grants_are_counted_for_a_minute() {
        let mut view = View::new(String::new(), String::new());
        let counted = |view: &View| view.grants.values().map(|grants| grants.seen.len()).sum::<usize>();
        view.see(&[lock("a", 1, 0, 0)], at(0));
        assert_eq!(counted(&view), 0);
        view.see(&[lock("a", 2, 0, 0), lock("b", 1, 0, 0)], at(1));
        view.see(&[lock("a", 2, 0, 0)], at(30));
        assert_eq!(counted(&view), 2);
        press(&mut view, "sss");
        assert_eq!(names(&view), ["a"]);
        view.see(&[], at(62));
        assert_eq!((counted(&view), view.grants.len()), (0, 0));
    }
}
