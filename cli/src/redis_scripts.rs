//! `leasehold redis-scripts`: loads the store's scripts into a Redis server, for users without the right to.

use leasehold::StoreUrl;
use leasehold::redis::RedisConfig;

use crate::arguments::Store;
use crate::failure::{Exit, Failure};
use crate::output;
use crate::store::Place;

pub(crate) async fn load(store: &Store, json: bool) -> Result<Exit, Failure> {
    let place = Place::of(store)?;
    let url = place.url().unwrap_or_default();
    if !["redis", "rediss", "redis+unix"].iter().any(|scheme| url.starts_with(&format!("{scheme}:"))) {
        return Err(Failure::usage("`redis-scripts` needs the URL of a Redis server: redis://HOST"));
    }
    // Every option is checked, also unrelated ones.
    drop(place.configure()?);
    let loaded = RedisConfig::from_url(&mut url.parse::<StoreUrl>()?)?.load_scripts().await?;
    if json {
        output::json(&serde_json::json!({ "loaded": loaded }))?;
    } else {
        output::say(&format!("{loaded} scripts loaded"))?;
    }
    Ok(Exit::SUCCESS)
}
