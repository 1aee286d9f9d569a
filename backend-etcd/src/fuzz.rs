//! Keys, records and messages that another client may have written, changed at random.

use leasehold_core::backend::Revoke;
use proptest::prelude::*;
use testbed::fuzz::{changed, corpus, tries};

use crate::keys::{self, HolderNote, Keyspace};

proptest! {
    #![proptest_config(tries())]

    /// A key that is read as a contender's lies in the queue of that lock.
    #[test]
    fn keys_lead_to_names_that_lead_back(key in changed(corpus("etcd"))) {
        let keyspace = Keyspace::new("leasehold");
        if let Some(name) = keyspace.name_of(&key) {
            prop_assert!(key.starts_with(&keyspace.queue(&name)), "{name:?}");
        }
        if let Some(lease) = keyspace.lease_of(&key) {
            prop_assert!(keyspace.asked_for(lease, &key).is_none());
        }
    }

    #[test]
    fn records_that_are_read_are_ours(value in changed(corpus("etcd"))) {
        if let Some(record) = HolderNote::from_bytes(&value) {
            prop_assert_eq!(HolderNote::from_bytes(&record.to_bytes()), Some(record));
        }
        let _ = keys::holder(&value, &value, 7);
        let _ = keys::base(Some(&value));
        prop_assert!(keys::grace_of(&value) <= Revoke::MAX_GRACE);
    }
}
