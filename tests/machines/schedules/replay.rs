//! The steps of a schedule as events of the model, which must allow each of them.

use lockmacro_model_tests::event::{Event as Told, Reply as Answer};
use lockmacro_model_tests::replay::Replay;

use crate::model::{Event, Reply, Step, World};

/// Dead waiters that one call removes at most.
const DEAD_AT_ONCE: usize = 128;

/// Replays a step. The error says why the model does not allow it.
pub fn replay(model: &mut Replay, world: &World, step: &Step) -> Result<(), String> {
    for event in events(world, step) {
        model.event(&event).map_err(|why| format!("the model does not allow {event:?}: {why}"))?;
    }
    Ok(())
}

/// What happened in a step, for the model: first who left the queue, last what is there now.
fn events(world: &World, step: &Step) -> Vec<Told> {
    let (before, after) = (&step.before, &step.after);
    let actor = step.event.actor().map(|client| world.clients[client].token.clone());
    let changed = before.held != after.held;
    let granted = after.held.as_ref().filter(|_| changed);
    let leaves = |token: &&String| {
        !after.waits(token) && Some(*token) != actor.as_ref() && Some(*token) != granted
    };
    let waited = before.queue.iter().map(|(token, _)| token);
    let left: Vec<_> = waited.filter(leaves).collect();
    let gives_up = left.len() >= DEAD_AT_ONCE && after.held.is_none();
    let mut events: Vec<_> =
        left.into_iter().map(|token| Told::Left { token: token.clone() }).collect();
    events.extend(gives_up.then_some(Told::TooManyDead));
    events.extend(main(world, step, actor));
    if let Some(client) = world.handed_off(step) {
        let client = &world.clients[client];
        // Where no push was received, the last fence is known all the same.
        let last = after.fence.filter(|_| client.fenced).map(|last| (last, last));
        let fences = step.pushes.first().map_or(last, |push| push.fences);
        events.push(Told::HandedOff { token: client.token.clone(), fences });
    }
    let queue = after.queue.iter().map(|(token, _)| token.clone()).collect();
    events.push(Told::Seen { held: after.held.clone(), queue });
    events
}

fn main(world: &World, step: &Step, actor: Option<String>) -> Option<Told> {
    let token = actor.unwrap_or_default();
    let (before, after) = (&step.before, &step.after);
    Some(match step.event {
        Event::Ask { max_queue, .. } => {
            let reply = match step.reply {
                Reply::Granted(fences) => Answer::Granted(fences),
                Reply::Busy(_, _, Some((-1, _))) => Answer::Full,
                Reply::Busy(_, _, Some(_)) => Answer::Queued,
                Reply::Busy(_, _, None) => Answer::Busy,
                // By a server without memory: nothing has happened.
                _ => return None,
            };
            Told::Asked { token, waits: max_queue > 0, reply }
        }
        Event::Set { .. } => Told::Set { token, granted: step.reply == Reply::Own(true) },
        Event::Release { keep, .. } => Told::Released {
            token,
            held: step.reply == Reply::Own(true),
            keeps: keep > 0 && step.reply == Reply::Own(true),
        },
        Event::Renew { .. } => Told::Renewed { token, held: step.reply == Reply::Own(true) },
        Event::ForeignSet if before.held.is_none() && after.held.is_some() => Told::Foreign,
        Event::Expire | Event::ForeignDelete if before.held.is_some() && after.held.is_none() => {
            Told::Freed
        }
        // The server's clock is ahead of any fence that is forgotten.
        Event::FenceForgotten => Told::Counter { last: world.last_fence },
        Event::FenceAhead(last) => Told::Counter { last },
        _ => return None,
    })
}
