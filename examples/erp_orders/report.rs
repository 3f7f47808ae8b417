//! The reports of desks about their requests, within a process or from process to process.

use std::fmt::Display;
use std::time::Duration;

use lockmacro_runtime::LockError;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc::Sender;
use tokio::time::sleep;

use crate::desk::WORK;
use crate::orders::{Request, Share};

/// A worker on requests: a desk, or a foreign client.
pub trait Worker: Send + Sync {
    /// Carries out the request, or returns the reason why not.
    fn attempt(&self, request: &Request) -> impl Future<Output = Result<(), Refusal>> + Send;
}

/// Why a request was not done.
#[derive(Debug)]
pub enum Refusal {
    Busy {
        holder: String,
        free_within: Option<Duration>,
        message: String,
    },
    /// A worker will do it, at the earliest after this time.
    Deferred(Duration),
    /// The lock was lost half-way, and the work was rolled back.
    RolledBack(String),
    Failed(String),
}

pub fn failed(error: impl Display) -> Refusal {
    Refusal::Failed(error.to_string())
}

impl From<LockError> for Refusal {
    fn from(error: LockError) -> Self {
        match error {
            LockError::Busy { holder, message, .. } => Self::Busy {
                holder: holder.owner.unwrap_or_else(|| "a foreign client".to_owned()),
                free_within: holder.free_within,
                message: message.unwrap_or_default(),
            },
            LockError::Deferred { due, .. } => Self::Deferred(due),
            error => Self::Failed(error.to_string()),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    Done,
    /// Another worker is at the order; there will be another pass.
    Busy,
    /// Another worker was at the order in the last pass too.
    Refused,
    /// A worker does it later.
    Deferred,
    RolledBack,
    Failed,
}

/// One answer to one request; a row of CSV between processes.
#[derive(Debug, Serialize, Deserialize)]
pub struct Report {
    pub desk: String,
    pub line: u64,
    pub outcome: Outcome,
    pub holder: Option<String>,
    pub free_within_ms: Option<u64>,
    pub text: Option<String>,
}

/// Goes through a share, then again through its busy orders, and reports every answer.
pub async fn work_through(
    worker: &impl Worker,
    share: &Share,
    passes: u8,
    reports: &Sender<Report>,
) {
    let mut left: Vec<&Request> = share.requests.iter().collect();
    for pass in 1..=passes {
        let mut busy = Vec::new();
        for request in left {
            let answer = worker.attempt(request).await;
            if matches!(answer, Err(Refusal::Busy { .. })) {
                busy.push(request);
            }
            let report = Report::new(&share.desk, request, answer, pass == passes);
            if reports.send(report).await.is_err() {
                // No task receives this any more: the run is over.
                return;
            }
        }
        if busy.is_empty() {
            return;
        }
        left = busy;
        sleep(WORK).await;
    }
}

impl Report {
    fn new(desk: &str, request: &Request, answer: Result<(), Refusal>, last: bool) -> Self {
        let report = Self {
            desk: desk.to_owned(),
            line: request.line,
            outcome: Outcome::Done,
            holder: None,
            free_within_ms: None,
            text: None,
        };
        match answer {
            Ok(()) => report,
            Err(Refusal::Busy { holder, free_within, message }) => Self {
                outcome: if last { Outcome::Refused } else { Outcome::Busy },
                holder: Some(holder),
                free_within_ms: free_within.and_then(|time| u64::try_from(time.as_millis()).ok()),
                text: Some(message),
                ..report
            },
            Err(Refusal::Deferred(due)) => {
                let text = Some(format!("deferred for {due:.1?}"));
                Self { outcome: Outcome::Deferred, text, ..report }
            }
            Err(Refusal::RolledBack(why)) => {
                Self { outcome: Outcome::RolledBack, text: Some(why), ..report }
            }
            Err(Refusal::Failed(why)) => {
                Self { outcome: Outcome::Failed, text: Some(why), ..report }
            }
        }
    }

    /// The report as one line, for another process.
    pub fn to_line(&self) -> Result<String, csv::Error> {
        let mut writer = csv::WriterBuilder::new().has_headers(false).from_writer(Vec::new());
        writer.serialize(self)?;
        let line = writer.into_inner().map_err(|error| error.into_error())?;
        // A line break within a quoted field would end the line too early.
        Ok(String::from_utf8_lossy(&line).trim_end().replace(['\n', '\r'], " "))
    }

    /// Reads what [`to_line`](Report::to_line) wrote; `None` for anything else.
    pub fn from_line(line: &str) -> Option<Self> {
        let mut reader = csv::ReaderBuilder::new().has_headers(false).from_reader(line.as_bytes());
        reader.deserialize().next()?.ok()
    }
}
