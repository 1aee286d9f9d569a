//! The option `migrate_to`: which URLs move locks, and what is refused of them.

#[cfg(feature = "migrate")]
use leasehold::connect;
use leasehold::{Error, ErrorKind};

fn refused(url: &str) -> Error {
    leasehold::registry().configure(url).map(drop).expect_err(url)
}

#[test]
#[cfg(feature = "migrate")]
fn urls_that_cannot_move_are_refused() {
    for (url, kind, said) in [
        ("memory://a?migrate_to=", ErrorKind::InvalidOption, "scheme"),
        ("memory://a?migrate_to=mysql://h", ErrorKind::InvalidOption, "unknown scheme \"mysql\""),
        ("memory://a?migrate_to=memory://b?tll=3s", ErrorKind::InvalidOption, "\"tll\""),
        ("memory://a?migrate_to=memory://b?ttl=3s", ErrorKind::InvalidOption, "option `ttl`"),
        ("memory://a?migrate_to=memory://b?prefix=c%26owner=x", ErrorKind::InvalidOption, "option `owner`"),
        (
            "memory://a?migrate_to=memory://b?migrate_to=memory://c",
            ErrorKind::InvalidOption,
            "option `migrate_to`",
        ),
        ("memory://a?migrate_to=memory://b&migrate_to=memory://c", ErrorKind::InvalidOption, "given twice"),
        ("memory://a?migrate_to=redis://u:sesame@h", ErrorKind::InvalidOption, "@ as %40"),
        ("memory://a?migrate_to=redis://u:sesame&sesame=1%40h", ErrorKind::InvalidOption, "write & as %26"),
    ] {
        let error = refused(url);
        assert!(*error.kind() == kind && error.to_string().contains(said), "{url}: {error:#}");
        assert!(!format!("{error:?} {error:#}").contains("sesame"), "{error:?}");
    }
}

/// In a build that cannot move locks the option is no other store's, and the error names the feature.
#[test]
#[cfg(not(feature = "migrate"))]
fn a_build_that_cannot_move_says_so() {
    let error = refused("memory://a?migrate_to=memory://b");
    assert_eq!(*error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("`migrate`"), "{error}");
}

/// The inner URL is one word of the outer one: what stands behind its `&` is the outer one's, and options of both stand
/// outside.
#[tokio::test]
#[cfg(feature = "migrate")]
async fn an_inner_url_is_read_as_it_is_written() {
    let inner = "memory://inner?prefix=b+c%26d";
    let plain = connect(inner).await.unwrap();
    let moving = connect("memory://outer?migrate_to=memory://inner?prefix=b%2Bc%2526d&ttl=3s").await.unwrap();
    let barred = connect(inner).await.unwrap_err();
    assert_eq!(*barred.kind(), ErrorKind::Misuse, "it is the same namespace: {barred}");
    let guard = moving.lock("a").unwrap().acquire().await.unwrap();
    guard.release().await.unwrap();
    moving.shutdown().await.unwrap();
    plain.shutdown().await.unwrap();
}

#[tokio::test]
#[cfg(feature = "migrate")]
async fn a_namespace_is_not_moved_to_itself() {
    let same = connect("memory://same?migrate_to=memory://same").await.unwrap_err();
    assert!(*same.kind() == ErrorKind::InvalidOption && same.to_string().contains("prefix"), "{same}");
    connect("memory://same?migrate_to=memory://same?prefix=p").await.unwrap().shutdown().await.unwrap();
}

#[tokio::test]
#[cfg(feature = "migrate")]
async fn locks_move_to_one_store_only() {
    let keeps = connect("memory://left?migrate_to=memory://first").await.unwrap();
    let other = connect("memory://left?migrate_to=memory://second").await.unwrap_err();
    assert_eq!(*other.kind(), ErrorKind::Misuse, "{other}");
    let backwards = connect("memory://first?migrate_to=memory://left").await.unwrap_err();
    assert_eq!(*backwards.kind(), ErrorKind::Misuse, "{backwards}");
    keeps.shutdown().await.unwrap();
}
