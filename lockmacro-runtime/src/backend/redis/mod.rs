//! Locks on one Redis server: `SET NX PX`, two scripts, and what to do when no answer comes.

mod node;
mod script;
mod trouble;

use std::time::Duration;

use redis::Value;
use tokio::time::{Instant, sleep};

use self::node::{Node, Patience};
use self::script::{ACQUIRE, RELEASE, RENEW, Script};
use self::trouble::{Passing, Trouble};
use super::{Answer, Claim, Failed, Grant};
use crate::clock::Moment;
use crate::error::{LockError, Unavailability};
use crate::fence::Fence;
use crate::key::LockKey;
use crate::lease::{Lease, Renewal};
use crate::side::side;
use crate::token::label_of;

/// The manager's timeout is good for so many unanswered commands.
const TRIES: u32 = 4;
/// How long a key's last fence is remembered. After that, the server's clock keeps fences growing.
const FENCE_KEPT: Duration = Duration::from_secs(7 * 24 * 60 * 60);
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
                Ok(Reply::Granted { sent, .. }) if late(sent, claim.ttl) => {
                    let detail = format!("the ttl is {:?}", claim.ttl);
                    let reason = Unavailability::TooSlow;
                    Passing { reason, detail, unknown: true, replace: false }
                }
                Ok(Reply::Granted { sent, fence }) => {
                    return Ok(Answer::Granted(Grant { sent, resent: written, fence }));
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
        let keep = claim.keep().as_millis().to_string();
        self.own(&RELEASE, claim, &keep, self.timeout / TRIES).await
    }

    pub(crate) async fn renew(&self, claim: &Claim, ttl: Duration) -> Result<bool, LockError> {
        let time = (self.timeout / TRIES).min(ttl / TRIES);
        self.own(&RENEW, claim, &ttl.as_millis().to_string(), time).await
    }

    /// Calls a script that does something to a lock if it is still the token's own, and tells
    /// whether it was. It has little time: there is a background task with more patience.
    async fn own(
        &self,
        script: &Script,
        claim: &Claim,
        argument: &str,
        time: Duration,
    ) -> Result<bool, LockError> {
        let patience = Patience { answer: time, until: Instant::now() + time };
        let (keys, args) = ([claim.key.as_str()], [claim.token.expose(), argument]);
        let mut reply = self.eval(script, &keys, &args, patience).await;
        let mut unknown = false;
        if let Err(Trouble::Passing(broken @ Passing { replace: true, .. })) = reply {
            unknown = broken.unknown;
            reply = self.eval(script, &keys, &args, patience).await;
        }
        match reply {
            Ok(Value::Int(1)) => Ok(true),
            // A release that was applied and sent again finds nothing.
            Ok(Value::Int(0)) => Ok(unknown && std::ptr::eq(script, &RELEASE)),
            Ok(other) => Err(unexpected(&other).into_error(&claim.key)),
            // Whatever is there now, it is not ours.
            Err(Trouble::NotALock) => Ok(false),
            Err(trouble) => Err(trouble.into_error(&claim.key)),
        }
    }

    /// One round: the plain SET while nothing of this token was ever sent, then the script, which
    /// knows the token again. A fence takes the script from the start.
    async fn ask(&self, claim: &Claim, first: bool, patience: Patience) -> Result<Reply, Trouble> {
        let (key, token) = (claim.key.as_str(), claim.token.expose());
        let ttl = claim.ttl.as_millis().to_string();
        if first && !claim.fenced {
            let mut set = redis::cmd("SET");
            set.arg(key).arg(token).arg("NX").arg("PX").arg(&ttl);
            let sent = Moment::now();
            match self.node.call(&set, patience).await? {
                Value::Okay => return Ok(Reply::Granted { sent, fence: None }),
                Value::Nil => {}
                other => return Err(unexpected(&other)),
            }
        }
        let sent = Moment::now();
        let reply = if claim.fenced {
            let kept = FENCE_KEPT.as_millis().to_string();
            let keys = [key, &side(key, 'f')];
            self.eval(&ACQUIRE, &keys, &[token, &ttl, &kept], patience).await?
        } else {
            self.eval(&ACQUIRE, &[key], &[token, &ttl], patience).await?
        };
        match reply {
            Value::Int(1) => Ok(Reply::Granted { sent, fence: None }),
            Value::BulkString(number) => Ok(Reply::Granted { sent, fence: Some(fence(&number)?) }),
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
        keys: &[&str],
        args: &[&str],
        patience: Patience,
    ) -> Result<Value, Trouble> {
        match self.node.call(&script.by_hash(keys, args), patience).await {
            Err(Trouble::NoScript) => self.node.call(&script.by_text(keys, args), patience).await,
            reply => reply,
        }
    }

    fn patience(&self) -> Patience {
        Patience { answer: self.timeout / TRIES, until: Instant::now() + self.timeout }
    }
}

enum Reply {
    Granted { sent: Moment, fence: Option<Fence> },
    Busy { owner: Option<String>, left: Option<Duration> },
}

fn late(sent: Moment, ttl: Duration) -> bool {
    Lease::new(sent, ttl, Renewal::Off).remaining(Moment::now()).is_err()
}

/// A broken connection is replaced at once, then a server is given time: twice as much with each
/// try, and not the same to everybody.
fn next_pause(pause: Duration) -> Duration {
    let longest = (pause * 2).clamp(FIRST_PAUSE, LONGEST_PAUSE);
    longest.mul_f64(0.75 + fastrand::f64() / 4.0)
}

fn fence(reply: &[u8]) -> Result<Fence, Trouble> {
    let number = std::str::from_utf8(reply).ok().and_then(|number| number.parse::<u64>().ok());
    number
        .and_then(|number| Fence::try_from(number).ok())
        .ok_or_else(|| unexpected(&Value::BulkString(Vec::new())))
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
