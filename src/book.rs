//! The programs of the book, which run as documentation tests. `tests/house` holds this list against the pages.

macro_rules! pages {
    ($($module:ident $page:literal,)*) => {
        $(#[doc = include_str!(concat!("../docs/src/", $page, ".md"))] mod $module {})*
    };
}

pages! {
    blocking "blocking",
    election "election",
    five_minutes "five-minutes",
    guard_a_write "guard-a-write",
    hourly "hourly",
    kinds "kinds",
    several_locks "several-locks",
    testing "testing",
    waiting "waiting",
}
