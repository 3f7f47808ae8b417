//! The input: requests about orders, from a CSV file.

use std::fmt;
use std::path::Path;

use lockmacro_runtime::LockKey;
use serde::{Deserialize, Serialize};

use crate::StartError;

/// The work that a request asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Task {
    Audit,
    Assign,
}

/// One line of the file.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Request {
    #[serde(default)]
    pub line: u64,
    pub order_no: String,
    pub customer: String,
    pub sku: String,
    pub quantity: u32,
    #[serde(rename = "request")]
    pub task: Task,
    pub warehouse: Option<String>,
}

/// The key under which everything about one order is locked.
///
/// A plain number stays as it is, `order:SO-2024-1041`, so that clients in other languages find the
/// same key; characters that could be taken for structure are encoded, as by the attribute's
/// templates.
pub fn order_key(order_no: &str) -> LockKey {
    LockKey::template("order:<order_no>").literal("order:").value(order_no).into()
}

/// A file's requests, and the lines that are none.
#[derive(Debug)]
pub struct Batch {
    pub requests: Vec<Request>,
    /// One message each, with the line's number. The other lines are worked on all the same.
    pub unreadable: Vec<String>,
}

impl Batch {
    /// Reads a file. Only a file that cannot be read at all is an error.
    pub fn read(path: &Path) -> Result<Self, StartError> {
        let place = path.display();
        let mut reader = csv::ReaderBuilder::new()
            .trim(csv::Trim::All)
            .from_path(path)
            .map_err(|error| format!("cannot read {place}: {error}"))?;
        let headers =
            reader.headers().map_err(|error| format!("cannot read {place}: {error}"))?.clone();
        let mut batch = Self { requests: Vec::new(), unreadable: Vec::new() };
        for row in reader.into_records() {
            let row = row.and_then(|row| {
                let mut request: Request = row.deserialize(Some(&headers))?;
                request.line = row.position().map_or(0, csv::Position::line);
                Ok(request)
            });
            let line = match &row {
                Ok(request) => request.line,
                Err(error) => error.position().map_or(0, csv::Position::line),
            };
            match row.map_err(why_unreadable).and_then(Request::checked) {
                Ok(request) => batch.requests.push(request),
                Err(why) => batch.unreadable.push(format!("line {line} of {place}: {why}")),
            }
        }
        if batch.requests.is_empty() && batch.unreadable.is_empty() {
            return Err(format!("there is no request in {place}").into());
        }
        Ok(batch)
    }
}

fn why_unreadable(error: csv::Error) -> String {
    match error.kind() {
        csv::ErrorKind::Deserialize { err, .. } => err.to_string(),
        csv::ErrorKind::UnequalLengths { expected_len, len, .. } => {
            format!("{len} fields where {expected_len} are expected")
        }
        csv::ErrorKind::Utf8 { .. } => "it is not UTF-8".to_owned(),
        _ => error.to_string(),
    }
}

impl Request {
    fn checked(self) -> Result<Self, String> {
        if self.order_no.is_empty() || self.order_no.chars().any(char::is_control) {
            return Err("the order has no usable number".to_owned());
        }
        if self.quantity == 0 {
            return Err("the quantity is 0".to_owned());
        }
        if self.task == Task::Assign && self.warehouse.is_none() {
            return Err("the request is `assign` and names no warehouse".to_owned());
        }
        Ok(self)
    }
}

/// The text for work that is done.
impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { order_no, customer, sku, quantity, .. } = self;
        match (self.task, &self.warehouse) {
            (Task::Assign, Some(warehouse)) => write!(f, "assigned {order_no} to {warehouse}")?,
            (Task::Assign, None) => write!(f, "assigned {order_no}")?,
            (Task::Audit, _) => write!(f, "audited  {order_no}")?,
        }
        write!(f, " ({quantity} x {sku} for {customer})")
    }
}

/// The requests that one desk works on.
#[derive(Debug, Clone)]
pub struct Share {
    pub desk: String,
    pub requests: Vec<Request>,
}

/// The name of the foreign client, in place of a desk's.
pub const PHP: &str = "php";

/// Deals the requests out in turn, so that neighbours in the file meet at different desks. The
/// foreign client audits every order once more.
pub fn shares(requests: &[Request], desks: u8, php_like: bool) -> Vec<Share> {
    let mut shares: Vec<Share> = (1..=desks)
        .map(|desk| Share { desk: format!("desk-{desk}"), requests: Vec::new() })
        .collect();
    for (share, request) in (0..shares.len()).cycle().zip(requests) {
        shares[share].requests.push(request.clone());
    }
    if php_like {
        let mut orders: Vec<Request> = Vec::new();
        for request in requests {
            if !orders.iter().any(|known| known.order_no == request.order_no) {
                orders.push(Request { task: Task::Audit, ..request.clone() });
            }
        }
        shares.push(Share { desk: PHP.to_owned(), requests: orders });
    }
    shares
}
