use super::*;
use leasehold_core::ErrorKind;
use redis::ConnectionAddr;

fn config(url: &str) -> Result<RedisConfig> {
    RedisConfig::from_url(&mut url.parse()?)
}

/// The path is the database, and every option has its form.
#[test]
fn a_url_says_everything() {
    let host = || RedisConfig::new("h", 6379);
    assert_eq!(config("redis://h").unwrap(), host());
    assert_eq!(config("redis://h:1/").unwrap(), RedisConfig::new("h", 1));
    assert_eq!(config("redis://[::1]:7/2").unwrap(), RedisConfig::new("::1", 7).database(2));
    assert_eq!(config("redis://:p%40s@h").unwrap(), host().password("p@s"));
    assert_eq!(
        config("rediss://bill:s@h/3?prefix=a+b&wait_replicas=2").unwrap(),
        host().tls(Tls::new()).credentials("bill", "s").database(3).prefix("a b").wait_replicas(2)
    );
    assert_eq!(config("redis://h?wait_aof=1").unwrap(), host().wait_aof(true));
    assert_eq!(config("redis://h?wait_aof=0&slots=false").unwrap(), host());
    assert_eq!(config("redis://h?slots=true").unwrap(), host().slots(true));
    let pausing = host().pause_after_restart(Duration::from_secs(20));
    assert_eq!(config("redis://h?pause_after_restart=20s").unwrap(), pausing);
    assert_eq!(config("redis://h?pause_after_restart=0").unwrap(), host());
    let socket = RedisConfig::unix("/run/redis.sock").database(4).password("p");
    assert_eq!(config("redis+unix://:p@/run/redis.sock?db=4").unwrap(), socket);
}

/// The client of the program says where the server is; its TLS settings have to be given.
#[test]
fn client_of_the_program_is_taken_over() {
    let theirs = |url| RedisConfig::from_client(&redis::Client::open(url).unwrap());
    let own = RedisConfig::new("h", 7).credentials("bill", "s").database(3);
    assert_eq!(theirs("redis://bill:s@h:7/3").unwrap(), own);
    assert_eq!(theirs("redis://:p@h").unwrap(), RedisConfig::new("h", 6379).password("p"));
    let socket = RedisConfig::unix("/run/redis.sock").database(4);
    assert_eq!(theirs("redis+unix:///run/redis.sock?db=4").unwrap(), socket);
    let plain = redis::IntoConnectionInfo::into_connection_info("redis://h").unwrap();
    let tls = ConnectionAddr::TcpTls { host: "h".to_owned(), port: 6379, insecure: false, tls_params: None };
    let encrypted = RedisConfig::from_connection_info(plain.set_addr(tls)).unwrap();
    let refused = encrypted.checked().unwrap_err();
    assert_eq!(*refused.kind(), ErrorKind::InvalidOption);
    assert!(["`ca`", "`cert`", "`key`"].iter().all(|name| refused.to_string().contains(name)), "{refused}");
    encrypted.tls(Tls::new()).checked().unwrap();
    assert_eq!(*theirs("redis://h/-1").unwrap_err().kind(), ErrorKind::InvalidOption);
}

#[test]
fn impossible_option_is_refused() {
    for url in [
        "redis://",
        "redis:///0",
        "redis://a,b",
        "redis://h:0",
        "redis://h:port",
        "redis://[::1",
        "redis://[::1]7",
        "redis://[foo]",
        "redis://h/locks",
        "redis://h/-1",
        "redis://me@h",
        "redis://h?prefix=",
        "redis://h?prefix={a}",
        "redis://h?wait_replicas=-1",
        "redis://h?wait_aof=2",
        "redis://h?slots=1",
        "redis://h?slots=true&format=string",
        "redis://h?slots=true&wait_replicas=1",
        "redis://h?slots=true&wait_aof=1",
        "redis://h?pause_after_restart=soon",
        "redis://h?pause_after_restart=25h",
        "redis://h?pause_after_restart=0.0001",
        "redis://h?pause_after_restart=20s&format=string",
        "rediss://h?cert=Cargo.toml",
        "rediss://h?ca=/no/such/file",
        "redis+unix://h/run/redis.sock",
        "redis+unix:///",
        "redis+unix:///s?db=x",
        "redis://h?message_key=fifteen-letters",
    ] {
        let error = config(url).unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::InvalidOption, "{url}: {error}");
    }
    let nowhere = [RedisConfig::new("", 1), RedisConfig::new("h", 0)];
    for config in nowhere.into_iter().chain([RedisConfig::unix("/s").tls(Tls::new())]) {
        assert!(config.checked().is_err(), "{config:?}");
    }
    let no_pem = RedisConfig::new("h", 1).tls(Tls::new().client_certificate("no", "pem"));
    assert_eq!(*no_pem.client(Duration::MAX).unwrap_err().kind(), ErrorKind::InvalidOption);
}

#[test]
fn secrets_are_never_shown() {
    let config = RedisConfig::new("h", 1).credentials("bill", "sesame");
    assert!(!format!("{config:?}").contains("sesame"));
    let error = "redis://bill:sesame@h/x".parse().and_then(|mut url| RedisConfig::from_url(&mut url));
    assert!(!format!("{error:?}").contains("sesame"));
    let signing = self::config("redis://h?message_key=sesame-and-16-more").unwrap();
    assert_eq!(signing, RedisConfig::new("h", 6379).message_key("sesame-and-16-more"));
    assert!(!format!("{signing:?}").contains("sesame"));
}
