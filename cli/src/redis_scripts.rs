//! `leasehold redis-scripts`: loads the store's scripts into a Redis server or cluster, for users without the right to.

use leasehold::backend::StoreUrl;
use leasehold::redis::{RedisClusterConfig, RedisConfig};

use crate::arguments::Store;
use crate::failure::{Exit, Failure};
use crate::output::{self, Form};
use crate::store::Place;

pub(crate) async fn load(store: &Store, form: Form) -> Result<Exit, Failure> {
    let place = Place::of(store)?;
    let url = place.url().unwrap_or_default();
    let is_one_of = |schemes: &[&str]| schemes.iter().any(|scheme| url.starts_with(&format!("{scheme}:")));
    let is_cluster = is_one_of(&["redis+cluster", "rediss+cluster"]);
    if !is_cluster && !is_one_of(&["redis", "rediss", "redis+unix"]) {
        return Err(Failure::usage(
            "`redis-scripts` needs the URL of a Redis server or a Redis Cluster: redis://HOST or redis+cluster://HOST",
        ));
    }
    // Every option is checked, also unrelated ones.
    drop(place.configure()?);
    let mut url = url.parse::<StoreUrl>()?;
    let loaded = if is_cluster {
        RedisClusterConfig::from_url(&mut url)?.load_scripts().await?
    } else {
        RedisConfig::from_url(&mut url)?.load_scripts().await?
    };
    if matches!(form, Form::Json) {
        output::json(&serde_json::json!({ "loaded": loaded }))?;
    } else {
        output::say(&format!("{loaded} scripts loaded"))?;
    }
    Ok(Exit::SUCCESS)
}
