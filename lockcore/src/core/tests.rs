use super::*;
use crate::Timing;
use crate::backend::env::Env;
use crate::backend::{Mode, StoreConfig};
use crate::clock::TokioClock;
use crate::core::holds::NameState;
use crate::core::queue::{Claim, Wish};
use crate::memory::MemoryConfig;

#[tokio::test(start_paused = true)]
async fn idle_names_are_forgotten_once_a_ttl() {
    let env = Env::new(Timing::for_ttl(Timing::DEFAULT_TTL)).unwrap();
    let env = env.with_clock(Arc::new(TokioClock::new()));
    let backend = MemoryConfig::private().open(env.sibling()).await.unwrap();
    let core = start(Context::new(env.clone(), env.sibling(), backend, None, "here".into(), Duration::ZERO));
    let names: Vec<_> = (0..20_000).map(|n| LockName::new(format!("{n}")).unwrap()).collect();
    for name in &names {
        let wish = Wish { mode: Mode::EXCLUSIVE, alone: false };
        let claim = core.names.of(name).with(|state| state.queue.claim(wish, |_, _| false));
        assert!(matches!(claim, Claim::Lead));
    }
    names.iter().for_each(|name| core.names.of(name).with(NameState::not_granted));
    let known = || core.names.collect(|_, _| vec![()]).len();
    assert_eq!(known(), names.len());
    tokio::time::sleep(Timing::DEFAULT_TTL + Duration::from_secs(1)).await;
    assert!(known() < names.len() / 2, "{} names are known", known());
}
