//! Users and passwords that change: asked for whenever a connection is opened.

use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use crate::store::redis::client::error::{LOGIN, Passing, Trouble};
use crate::store::redis::client::url::{Settings, invalid};
use crate::store::redis::store::Redis;
use crate::store::redis::topology::route::Nodes;
use crate::value::error::LockError;
use crate::value::unavailability::Unavailability;

type Asked = Pin<Box<dyn Future<Output = Result<(String, String), String>> + Send>>;

/// What gives the user and the password of the next connection.
#[derive(Clone)]
pub(crate) struct Credentials(Arc<dyn Fn() -> Asked + Send + Sync>);

impl Credentials {
    pub(crate) fn new<F, W, E>(provider: F) -> Self
    where
        F: Fn() -> W + Send + Sync + 'static,
        W: Future<Output = Result<(String, String), E>> + Send + 'static,
        E: Into<Box<dyn Error + Send + Sync>>,
    {
        Self(Arc::new(move || {
            let asked = provider();
            Box::pin(async move { asked.await.map_err(|error| error.into().to_string()) })
        }))
    }

    /// Fails as a login does that may be accepted soon.
    async fn ask(&self) -> Result<(String, String), Trouble> {
        (self.0)().await.map_err(|error| refused(&format!("no credentials: {error}")))
    }
}

impl Settings {
    /// The same with the user and the password of now.
    pub(crate) async fn current(&self) -> Result<Self, Trouble> {
        let mut current = self.clone();
        if let Some(credentials) = &self.credentials {
            let (user, password) = credentials.ask().await?;
            current.login = current.login.set_username(user).set_password(password);
        }
        Ok(current)
    }

    /// A login that is refused may be accepted with the next credentials.
    pub(crate) fn or_next_login(&self, trouble: Trouble) -> Trouble {
        match trouble {
            Trouble::Final(LockError::Authentication { detail }) if self.credentials.is_some() => {
                refused(&detail)
            }
            other => other,
        }
    }
}

/// Nothing was applied, and another connection is asked for.
fn refused(detail: &str) -> Trouble {
    Trouble::Passing(Passing {
        reason: Unavailability::Disconnected,
        detail: format!("{LOGIN}{detail}"),
        unknown: false,
        replace: true,
    })
}

impl Redis {
    /// Logs in by these, instead of what the URL says. For one that nobody uses yet.
    pub(crate) fn log_in_by(&mut self, credentials: &Credentials) -> Result<(), LockError> {
        let connectors = match &mut self.nodes {
            Nodes::One(node) => node.connector_mut().into_iter().collect(),
            Nodes::Cluster(cluster) => cluster.seeds_mut(),
        };
        if connectors.is_empty() {
            return Err(invalid("it is in use already"));
        }
        for connector in connectors {
            connector.settings_mut().credentials = Some(credentials.clone());
        }
        Ok(())
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials")
    }
}
