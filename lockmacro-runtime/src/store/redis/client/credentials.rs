//! Users and passwords that change: requested for each new connection.

use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use crate::store::redis::client::error::{CallError, Transient};
use crate::value::applied::Applied;
use crate::value::error::Unavailability;

type Asked = Pin<Box<dyn Future<Output = Result<(String, String), String>> + Send>>;

/// A provider of the user and the password for the next connection.
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

    /// Requests them. A failure counts as a refused login after which the next one may be accepted.
    pub(crate) async fn ask(&self) -> Result<(String, String), CallError> {
        (self.0)().await.map_err(|error| refused(&format!("no credentials: {error}")))
    }
}

/// The error of such a login: nothing was applied, and a new connection is needed.
pub(crate) fn refused(detail: &str) -> CallError {
    let transient = Transient::new(Unavailability::Disconnected, detail, Applied::No);
    CallError::Transient(Transient { login: true, ..transient.replacing() })
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials")
    }
}
