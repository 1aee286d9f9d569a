//! URLs with typing mistakes, and URLs of an attacker: each is a configuration or an error, and
//! nothing shows a password.

use leasehold::backend::StoreUrl;
use leasehold::{ErrorKind, span};
use proptest::prelude::*;
use testbed::fuzz::{changed_text, corpus, tries};

proptest! {
    #![proptest_config(tries())]

    /// What cannot be used is refused for that, and for nothing else.
    #[test]
    fn any_url_is_read_or_refused(url in changed_text(corpus("url"))) {
        // Devices can be named as certificates, and be read without end.
        prop_assume!(!url.contains("dev"));
        if let Err(refused) = leasehold::registry().configure(&url) {
            let kind = refused.kind();
            prop_assert!(
                matches!(kind, ErrorKind::InvalidOption | ErrorKind::Unsupported | ErrorKind::InvalidName),
                "{url:?}: {refused:?}"
            );
        }
        let _ = span(&url);
    }

    /// Where a URL can be read, what is shown of it has no password, nor has what is said where it cannot.
    #[test]
    fn no_password_of_a_url_is_shown(
        url in changed_text(corpus("url")),
        secret in "[a-z]{8}(%40|%2F|%3F)[a-z]{8}",
    ) {
        let Some((scheme, rest)) = url.split_once("://") else { return Ok(()) };
        let hosts = rest.rsplit('@').next().unwrap_or(rest);
        let url = format!("{scheme}://me:{secret}@{hosts}");
        prop_assume!(!url.contains("dev"));
        let part = &secret[..8];
        prop_assume!(!hosts.contains(part) && !scheme.contains(part));
        match url.parse::<StoreUrl>() {
            Ok(read) => prop_assert!(!format!("{read:?}").contains(part), "{read:?}"),
            Err(refused) => prop_assert!(!format!("{refused:?} {refused:#}").contains(part), "{refused:?}"),
        }
        if let Err(refused) = leasehold::registry().configure(&url) {
            prop_assert!(!format!("{refused:?} {refused:#}").contains(part), "{url}: {refused:?}");
        }
    }
}
