//! The access rights of created nodes.

use leasehold_core::{Error, Result};
use zookeeper_client::{Acl, AuthId, Permission};

/// Every client may do what a manager does.
pub(super) fn open() -> Vec<Acl> {
    vec![Acl::new(ours(), AuthId::anyone())]
}

/// The creator's identity at the server may do what a manager does.
pub(super) fn creator() -> Vec<Acl> {
    vec![Acl::new(ours(), AuthId::authed())]
}

/// Whether a right belongs to our identity, as the server knows it.
pub(super) fn is_of_creator(acl: &Acl) -> bool {
    acl.scheme() == "auth"
}

/// The rights that a manager needs. Not that to change rights: with it one client can close nodes to all others.
fn ours() -> Permission {
    Permission::READ | Permission::WRITE | Permission::CREATE | Permission::DELETE
}

/// The value of the option.
pub(super) fn parsed(acl: &str) -> Result<Vec<Acl>> {
    match acl {
        "open" => Ok(open()),
        "creator" => Ok(creator()),
        entries => parsed_entries(entries),
    }
}

/// Entries with commas between. Ids may have commas: one ends an entry only behind rights.
fn parsed_entries(mut entries: &str) -> Result<Vec<Acl>> {
    let mut parsed = Vec::new();
    loop {
        let mut ends = entries.match_indices(',').map(|(at, _)| at).chain([entries.len()]);
        let first = ends.find_map(|end| Some((parsed_entry(&entries[..end])?, entries.get(end + 1..))));
        let (acl, others) = first.ok_or_else(|| {
            Error::invalid_option(format!(
                "access right {entries:?} is invalid: expected open, creator, or scheme:id:rights with \
                 rights among rwcda"
            ))
        })?;
        parsed.push(acl);
        match others {
            Some(others) => entries = others,
            None => return Ok(parsed),
        }
    }
}

fn parsed_entry(entry: &str) -> Option<Acl> {
    let (scheme, rest) = entry.split_once(':')?;
    let (id, rights) = rest.rsplit_once(':')?;
    // In ids of the other schemes a comma is a slip of the entry before.
    let may_have_commas = !matches!(scheme, "world" | "auth" | "digest" | "ip");
    if scheme.is_empty() || (id.contains(',') && !may_have_commas) {
        return None;
    }
    // Nor may an entry be swallowed by a slip of the one before.
    if entry.split(',').skip(1).any(looks_like_an_entry) {
        return None;
    }
    Some(Acl::new(permission(rights)?, AuthId::new(scheme, id)))
}

/// Whether a part of an id is `scheme:id:rights` by itself; an attribute of a name has no such scheme.
fn looks_like_an_entry(part: &str) -> bool {
    let Some((scheme, rest)) = part.split_once(':') else {
        return false;
    };
    let is_scheme = !scheme.is_empty() && scheme.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
    is_scheme && rest.rsplit_once(':').is_some_and(|(_, rights)| permission(rights).is_some())
}

fn permission(rights: &str) -> Option<Permission> {
    let of = |right| RIGHTS.iter().find(|(letter, _)| *letter == right).map(|(_, permission)| *permission);
    let permission = rights.chars().try_fold(Permission::NONE, |all, right| Some(all | of(right)?));
    permission.filter(|_| !rights.is_empty())
}

const RIGHTS: [(char, Permission); 5] = [
    ('r', Permission::READ),
    ('w', Permission::WRITE),
    ('c', Permission::CREATE),
    ('d', Permission::DELETE),
    ('a', Permission::ADMIN),
];

#[cfg(test)]
mod tests {
    use super::*;

    /// Ids may have colons and commas; a comma ends an entry only behind its rights.
    #[test]
    fn entries_are_told_apart() {
        let read = |acl| {
            let entries = parsed(acl).unwrap();
            let shown =
                entries.iter().map(|acl| format!("{}|{}|{}", acl.scheme(), acl.id(), acl.permission()));
            shown.collect::<Vec<_>>()
        };
        assert_eq!(read("digest:u:aGFzaA==:rcd"), ["digest|u:aGFzaA==|READ|CREATE|DELETE"]);
        assert_eq!(
            read("auth::rwcd,world:anyone:r"),
            ["auth||READ|WRITE|CREATE|DELETE", "world|anyone|READ"]
        );
        assert_eq!(read("x509:CN=a,OU=b:c:r,sasl:u:r"), ["x509|CN=a,OU=b:c|READ", "sasl|u|READ"]);
        assert_eq!(
            read(r"x509:CN=a,OU=b\, c,O=d:rw,x509:CN=e:r,world:anyone:a"),
            [r"x509|CN=a,OU=b\, c,O=d|READ|WRITE", "x509|CN=e|READ", "world|anyone|ADMIN"]
        );
    }

    /// Text that is no right is refused and named, also between others.
    #[test]
    fn unknown_right_is_refused() {
        for (acl, named) in [
            ("", ""),
            ("all", "all"),
            ("world:anyone:x", "world:anyone:x"),
            ("world:anyone:x,auth::r", "world:anyone:x,auth::r"),
            ("auth::r,ip:10.0.0.1:", "ip:10.0.0.1:"),
            ("auth::r,", ""),
            ("x509:CN=a,OU=b", "x509:CN=a,OU=b"),
            (":id:r", ":id:r"),
            ("x509:CN=a:rwx,world:anyone:r", "x509:CN=a:rwx,world:anyone:r"),
            ("auth::r,x509:CN=a,OU=b,x509:CN=c:r,auth::r", "x509:CN=a,OU=b,x509:CN=c:r,auth::r"),
        ] {
            let refused = parsed(acl).unwrap_err().to_string();
            assert!(refused.starts_with(&format!("access right {named:?} is invalid")), "{acl}: {refused}");
        }
    }

    /// Nobody is given the right to change rights.
    #[test]
    fn no_node_of_ours_can_be_closed_to_others() {
        for acl in [open(), creator()] {
            assert_eq!(acl[0].permission().to_string(), "READ|WRITE|CREATE|DELETE");
        }
    }
}
