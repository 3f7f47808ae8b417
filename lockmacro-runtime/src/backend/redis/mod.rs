//! Locks on one Redis server: `SET NX PX`, two scripts, and what to do when no answer comes.

mod node;
mod script;
mod trouble;

use std::time::Duration;

use redis::Value;
use tokio::time::{Instant, sleep};

use self::node::{Node, Patience};
use self::script::{ACQUIRE, RELEASE, Script};
use self::trouble::{Passing, Trouble};
use super::{Answer, Claim, Failed};
use crate::error::{LockError, Unavailability};
use crate::key::LockKey;
use crate::lease::{Lease, Moment};
use crate::token::label_of;

/// The manager's timeout is good for so many unanswered commands.
const TRIES: u32 = 4;
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(200);

#[derive(Debug)]
pub(crate) struct Redis {
    node: Node,
    timeout: Duration,
}

impl Redis {
    /// Locks on the server at `url`, not connected yet. No call takes longer than `timeout`.
    pub(crate) fn new(url: &str, timeout: Duration) -> Result<Self, LockError> {
        Ok(Self { node: Node::new(url)?, timeout })
    }

    pub(crate) fn apart(&self) -> Self {
        Self { node: self.node.apart(), timeout: self.timeout }
    }

    /// Connects, or says why not.
    pub(crate) async fn ready(&self) -> Result<(), LockError> {
        // No key is part of what can go wrong here.
        let nothing = LockKey::from("");
        self.node.ready(self.patience().until).await.map_err(|trouble| trouble.into_error(&nothing))
    }

    pub(crate) fn disconnect(&self) {
        self.node.disconnect();
    }

    pub(crate) async fn acquire(&self, claim: &Claim) -> Result<Answer, Failed> {
        let patience = self.patience();
        let mut pause = Duration::ZERO;
        let mut written = false;
        let mut first = true;
        loop {
            let trouble = match self.ask(claim, first, patience).await {
                Ok(Reply::Granted { sent }) if late(sent, claim.ttl) => {
                    let detail = format!("the ttl is {:?}", claim.ttl);
                    let reason = Unavailability::TooSlow;
                    Passing { reason, detail, unknown: true, replace: false }
                }
                Ok(Reply::Granted { sent }) => {
                    return Ok(Answer::Granted { sent, resent: written });
                }
                Ok(Reply::Busy { owner, left }) => {
                    return Ok(Answer::Busy { owner, left, resent: written });
                }
                Err(Trouble::Passing(passing)) => passing,
                Err(trouble) => {
                    return Err(Failed { error: trouble.into_error(&claim.key), written });
                }
            };
            first &= !trouble.unknown;
            written |= trouble.unknown;
            if Instant::now() + pause >= patience.until {
                let error = Trouble::Passing(trouble).into_error(&claim.key);
                return Err(Failed { error, written });
            }
            sleep(pause).await;
            pause = next_pause(pause);
        }
    }

    pub(crate) async fn release(&self, claim: &Claim) -> Result<bool, LockError> {
        // Whoever waits for a release has work to go on with: the janitor has more patience.
        let patience = Patience { until: Instant::now() + self.timeout / TRIES, ..self.patience() };
        let args = [claim.token.expose()];
        let mut reply = self.eval(&RELEASE, claim.key.as_str(), &args, patience).await;
        let mut gone = false;
        if let Err(Trouble::Passing(Passing { replace: true, unknown, .. })) = reply {
            reply = self.eval(&RELEASE, claim.key.as_str(), &args, patience).await;
            gone = unknown;
        }
        match reply {
            Ok(Value::Int(held)) => Ok(held == 1 || gone),
            Ok(other) => Err(unexpected(&other).into_error(&claim.key)),
            // Whatever is there now, it is not ours.
            Err(Trouble::NotALock) => Ok(false),
            Err(trouble) => Err(trouble.into_error(&claim.key)),
        }
    }

    /// One round: the plain SET while nothing of this token was ever sent, then the script, which
    /// knows the token again.
    async fn ask(&self, claim: &Claim, first: bool, patience: Patience) -> Result<Reply, Trouble> {
        let (key, token) = (claim.key.as_str(), claim.token.expose());
        let ttl = claim.ttl.as_millis().to_string();
        if first {
            let mut set = redis::cmd("SET");
            set.arg(key).arg(token).arg("NX").arg("PX").arg(&ttl);
            let sent = Moment::now();
            match self.node.call(&set, patience).await? {
                Value::Okay => return Ok(Reply::Granted { sent }),
                Value::Nil => {}
                other => return Err(unexpected(&other)),
            }
        }
        let sent = Moment::now();
        match self.eval(&ACQUIRE, key, &[token, &ttl], patience).await? {
            Value::Int(1) => Ok(Reply::Granted { sent }),
            Value::Array(parts) => match parts.as_slice() {
                [Value::Int(left), Value::BulkString(held)] => Ok(Reply::Busy {
                    owner: label_of(held),
                    left: u64::try_from(*left).ok().map(Duration::from_millis),
                }),
                _ => Err(unexpected(&Value::Array(parts))),
            },
            other => Err(unexpected(&other)),
        }
    }

    async fn eval(
        &self,
        script: &Script,
        key: &str,
        args: &[&str],
        patience: Patience,
    ) -> Result<Value, Trouble> {
        match self.node.call(&script.by_hash(key, args), patience).await {
            Err(Trouble::NoScript) => self.node.call(&script.by_text(key, args), patience).await,
            reply => reply,
        }
    }

    fn patience(&self) -> Patience {
        Patience { answer: self.timeout / TRIES, until: Instant::now() + self.timeout }
    }
}

enum Reply {
    Granted { sent: Moment },
    Busy { owner: Option<String>, left: Option<Duration> },
}

fn late(sent: Moment, ttl: Duration) -> bool {
    Lease::new(sent, ttl).is_over(Moment::now())
}

/// A broken connection is replaced at once, then a server is given time: twice as much with each
/// try, and not the same to everybody.
fn next_pause(pause: Duration) -> Duration {
    let longest = (pause * 2).clamp(FIRST_PAUSE, LONGEST_PAUSE);
    longest.mul_f64(0.75 + fastrand::f64() / 4.0)
}

fn unexpected(reply: &Value) -> Trouble {
    // The kind of the reply only: its text may be somebody's token.
    let kind = match reply {
        Value::Nil => "nil",
        Value::Int(_) => "an integer",
        Value::Okay | Value::SimpleString(_) => "a status",
        Value::BulkString(_) => "a string",
        Value::Array(_) => "an array",
        _ => "something else",
    };
    Trouble::Final(LockError::Unavailable {
        reason: Unavailability::Protocol,
        detail: format!("the server answered {kind}"),
    })
}
