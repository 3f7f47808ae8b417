//! Users and passwords that change: asked for whenever a connection is opened.

use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use crate::store::redis::client::error::{CallError, LOGIN, Transient};
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
    pub(crate) async fn ask(&self) -> Result<(String, String), CallError> {
        (self.0)().await.map_err(|error| refused(&format!("no credentials: {error}")))
    }
}

/// Nothing was applied, and another connection is asked for.
pub(crate) fn refused(detail: &str) -> CallError {
    CallError::Transient(Transient {
        reason: Unavailability::Disconnected,
        detail: format!("{LOGIN}{detail}"),
        unknown: false,
        replace: true,
    })
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials")
    }
}
