//! A lock's error as the response of an axum handler. (Feature `axum`.)

use axum_core::response::{IntoResponse, Response};

use crate::value::error::LockError;

/// Makes the response of a handler of axum 0.8 that returns a `LockError`. (Feature `axum`.)
///
/// It has the [status](LockError::http_status), the header `Retry-After` where
/// [`retry_after_secs`](LockError::retry_after_secs) is known, and the
/// [public message](LockError::public_message) as text. For an error with a status of 500 the whole
/// error is logged at ERROR.
///
/// ```
/// use std::time::Duration;
///
/// use axum_core::response::IntoResponse;
/// use lockmacro_runtime::{Holder, LockError};
///
/// let busy = LockError::busy("order:42", Holder::new("web-3"), Duration::from_secs(5));
/// let response = busy.into_response();
/// assert_eq!(response.status(), 423);
/// assert_eq!(response.headers()["retry-after"], "5");
/// ```
impl IntoResponse for LockError {
    fn into_response(self) -> Response {
        let status = self.http_status();
        if status == 500 {
            tracing::error!(error = %self, "lock failed in a handler");
        }
        let mut response = self.public_message().to_owned().into_response();
        if let Ok(status) = status.try_into() {
            *response.status_mut() = status;
        }
        if let Some(seconds) = self.retry_after_secs() {
            response.headers_mut().insert("retry-after", seconds.into());
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures::StreamExt as _;
    use futures::executor::block_on;

    use super::*;
    use crate::value::holder::Holder;

    #[test]
    fn a_response_has_the_status_the_time_to_wait_and_the_public_message() {
        let busy = || LockError::busy("order:42", Holder::new("web-3"), Duration::from_secs(5));
        for (error, status, after, text) in [
            (busy(), 423, Some("5"), "somebody else is using this: try again later"),
            (busy().with_message("audited"), 423, Some("5"), "audited"),
            (LockError::NOT_INSTALLED, 500, None, "an internal error occurred"),
        ] {
            let response = error.into_response();
            let header = response.headers().get("retry-after").map(|value| value.as_bytes());
            assert_eq!((response.status().as_u16(), header), (status, after.map(str::as_bytes)));
            let mut body = response.into_body().into_data_stream();
            let chunk = block_on(body.next()).map(|chunk| chunk.expect("a body").to_vec());
            assert_eq!(chunk.as_deref(), Some(text.as_bytes()));
        }
    }
}
