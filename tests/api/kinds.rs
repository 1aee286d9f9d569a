//! `docs/src/kinds.md`, held against the rule: the programs of the page run as its documentation tests.
//!
//! What it says beside that is held by the kit's cases of locks that several hold, and by the tests of the rule and
//! of the local queue.

use leasehold::Mode;
use leasehold::backend::Load;

const PAGE: &str = include_str!("../../docs/src/kinds.md");

/// The queues that the page draws: the holders, and the waiters.
fn drawn() -> Vec<(&'static str, Vec<Mode>, Vec<Mode>)> {
    let pictures = PAGE.split("```text\n").skip(1).filter_map(|rest| rest.split("```").next());
    let queue = |line: &'static str| {
        let (holding, rest) = line.split_once('|').expect("a bar behind those who hold");
        let holding = holding.split_whitespace().map(|word| mode(word).expect("a mode")).collect();
        let waiting = rest.split_whitespace().map_while(mode).collect();
        (line, holding, waiting)
    };
    pictures.flat_map(str::lines).map(queue).collect()
}

/// Nothing for the first word of what is said of a queue.
fn mode(word: &str) -> Option<Mode> {
    match word {
        "W" => Some(Mode::EXCLUSIVE),
        "R" => Some(Mode::SHARED),
        _ => {
            let (weight, capacity) = word.split_once('/')?;
            Mode::permits(weight.parse().ok()?, capacity.parse().ok()?).ok()
        }
    }
}

#[test]
fn the_pictures_follow_the_rule() {
    let drawn = drawn();
    assert_eq!(drawn.len(), 11);
    for (line, holding, waiting) in drawn {
        let mut load = Load::NONE;
        for mode in holding {
            assert!(load.admits(mode), "{mode} does not hold in {line:?}");
            load = load.and(mode);
        }
        assert!(waiting.first().is_none_or(|first| !load.admits(*first)), "more hold in {line:?}");
    }
}

#[test]
fn the_rule_is_one() {
    let rule = |page: &str| page.lines().filter(|line| line.starts_with("> ")).collect::<String>();
    let semantics = include_str!("../../docs/src/semantics.md");
    assert!(rule(PAGE).starts_with("> An entry holds if and only if"), "{}", rule(PAGE));
    assert_eq!(rule(PAGE), rule(semantics));
}

/// The rows of a table whose header begins with `first`, cell by cell.
fn rows<'a>(page: &'a str, first: &str) -> Vec<Vec<&'a str>> {
    let from = page.lines().skip_while(|line| !line.starts_with(first));
    let cells = |line: &'a str| line.trim_matches('|').split('|').map(str::trim).collect();
    from.take_while(|line| line.starts_with('|')).map(cells).collect()
}

/// What it says of each store is what the table of stores says, which is what the stores say.
#[test]
fn the_stores_have_what_the_page_says() {
    let promised = rows(include_str!("../../docs/src/stores.md"), "| promise |");
    let of = |store: &str, promise: &str| {
        let column = promised[0].iter().position(|name| *name == store)?;
        promised.iter().find(|row| row[0].starts_with(&format!("`{promise}`"))).map(|row| row[column])
    };
    let told = rows(PAGE, "| store |");
    assert_eq!(told.len() - 2, promised[0].len() - 1, "{told:?}");
    for row in &told[2..] {
        let store = row[0].trim_start_matches('[').split(']').next().expect("the name of a store");
        let here = (of(store, "SHARED"), of(store, "PERMITS"));
        assert_eq!((Some(row[1]), Some(row[2])), here, "{store}");
    }
}

/// The kinds that a store must have are named by the promises that the table of stores shows.
#[test]
fn the_page_names_the_promises() {
    for mode in [Mode::SHARED, Mode::permits(1, 2).unwrap()] {
        let (promise, _) = mode.needs().iter_names().next().expect("it needs a promise");
        assert!(PAGE.contains(&format!("`{promise}`")), "{promise}");
        assert!(include_str!("../../docs/src/stores.md").contains(&format!("| `{promise}`: ")), "{promise}");
    }
    assert!(Mode::permits(1, 1).unwrap().needs().is_empty());
}
