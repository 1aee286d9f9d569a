//! The conformance kit on the stores of this build, through the facade.

use std::process::ExitCode;

use conformance::Suite;

fn main() -> ExitCode {
    let suite = Suite::new();
    #[cfg(feature = "file")]
    let suite = suite.store(Box::new(file::Directories::new()));
    suite.run()
}

#[cfg(feature = "file")]
mod file {
    use std::time::Duration;

    use conformance::{Pace, Subject};
    use leasehold::backend::StoreConfig;
    use leasehold::file::FileConfig;
    use testbed::Scratch;

    /// A directory per namespace, in one that goes with the test.
    #[derive(Debug)]
    pub(super) struct Directories(Scratch);

    impl Directories {
        pub(super) fn new() -> Self {
            Self(Scratch::new("kit-file").expect("there is room for a directory"))
        }
    }

    impl Subject for Directories {
        fn name(&self) -> &str {
            "file"
        }

        fn pace(&self) -> Pace {
            Pace::Real { ttl: Duration::from_secs(3) }
        }

        fn config(&self, namespace: &str) -> Box<dyn StoreConfig> {
            Box::new(FileConfig::new(self.0.path().join(namespace)))
        }
    }
}
