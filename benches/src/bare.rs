//! The two commands that every lock needs, on one connection.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::{AsyncConnectionConfig, Client, IntoConnectionInfo, Script};

use crate::Failure;

const RELEASE: &str =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";

/// The scripts of the library that acquire and release a shared lock.
macro_rules! library {
    ($($file:literal),+) => {
        concat!($(include_str!(concat!(
            "../../lockmacro-runtime/src/store/redis/scripts/",
            $file
        ))),+)
    };
}
const SHARE: &str = library!("acquire_shared.lua", "for_each_call.lua");
const END_SHARE: &str = library!("release_shared.lua", "for_each_call.lua");

/// `SET NX PX`, and a script that compares and deletes; or the scripts of a shared lock.
#[derive(Clone)]
pub struct Bare {
    connection: MultiplexedConnection,
    release: Script,
    shared: [Script; 2],
}

impl Bare {
    /// With a time limit for each answer, as the library has by default; here it is never reached.
    pub async fn connect(url: &str) -> Result<Self, Failure> {
        Self::with(url, Some(Duration::from_secs(20))).await
    }

    /// Without a time limit for an answer.
    pub async fn without_limit(url: &str) -> Result<Self, Failure> {
        Self::with(url, None).await
    }

    async fn with(url: &str, limit: Option<Duration>) -> Result<Self, Failure> {
        let config = AsyncConnectionConfig::new().set_response_timeout(limit);
        let connection = client(url)?.get_multiplexed_async_connection_with_config(&config).await?;
        let shared = [Script::new(SHARE), Script::new(END_SHARE)];
        Ok(Self { connection, release: Script::new(RELEASE), shared })
    }

    /// Returns whether the key was free.
    pub async fn set(&mut self, key: &str, token: &str, ttl: Duration) -> Result<bool, Failure> {
        let mut set = redis::cmd("SET");
        set.arg(key).arg(token).arg("NX").arg("PX").arg(ttl.as_millis().to_string());
        Ok(set.query_async(&mut self.connection).await?)
    }

    /// Returns whether the key had the token.
    pub async fn release(&mut self, key: &str, token: &str) -> Result<bool, Failure> {
        let mut release = self.release.key(key);
        let released: i64 = release.arg(token).invoke_async(&mut self.connection).await?;
        Ok(released == 1)
    }

    /// Takes and releases a shared lock. Returns whether it was free, and held.
    pub async fn share(&mut self, key: &str, token: &str, ttl: Duration) -> Result<bool, Failure> {
        let keys = ["q", "h"].map(|kind| format!("lm1:w{kind}:{{{key}}}"));
        let ttl = ttl.as_millis();
        let args = [format!("{token} {ttl} 0"), token.to_owned()];
        for (script, args) in self.shared.iter().zip(&args) {
            let mut call = script.key(key);
            keys.iter().for_each(|key| {
                call.key(key);
            });
            args.split(' ').for_each(|arg| {
                call.arg(arg);
            });
            let done: i64 = call.invoke_async(&mut self.connection).await?;
            if done != 1 {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// A round trip with nothing in it.
    pub async fn ping(&mut self) -> Result<(), Failure> {
        Ok(redis::cmd("PING").query_async(&mut self.connection).await?)
    }
}

/// A client with `TCP_NODELAY`, which lockmacro sets by itself.
pub fn client(url: &str) -> Result<Client, Failure> {
    let info = url.into_connection_info()?;
    Ok(Client::open(info.set_tcp_settings(TcpSettings::default().set_nodelay(true)))?)
}
