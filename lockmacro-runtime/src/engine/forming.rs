//! The cohorts that form, by key and ttl. The table does not know the type of a cohort: cohorts use
//! the manager, and the manager has the table.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use crate::value::random::HashMap;
use crate::value::sync::Mutex;

/// A key and a ttl.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct FormingKey {
    pub(crate) key: Box<str>,
    pub(crate) ttl: Duration,
}

/// The keys with a request that has no answer yet. The cohort of a key forms until that answer,
/// unless it is sent before.
#[derive(Debug, Default)]
pub(crate) struct Forming(Mutex<HashMap<FormingKey, Asked>>);

/// A key with requests in flight.
#[derive(Debug)]
struct Asked {
    /// Number of requests without an answer.
    unanswered: usize,
    /// The only request is that of a caller by itself.
    is_alone: bool,
    cohort: Option<Arc<dyn Any + Send + Sync>>,
}

impl Forming {
    /// Lets a caller `join` the cohort of a key, which is made if there is none. Gives the caller
    /// back, and records its request, if no other request for the key is without an answer.
    ///
    /// `join` is told whether the caller should send the request of the cohort soon. Of callers
    /// that come at the same time, the first one asks by itself, and the others need not wait for
    /// its answer.
    pub(crate) fn enter<C: Any + Default + Send + Sync, T, R>(
        &self,
        key: &FormingKey,
        caller: T,
        join: impl FnOnce(Arc<C>, T, bool) -> R,
    ) -> Result<R, T> {
        let mut table = self.0.lock();
        let Some(asked) = table.get_mut(key) else {
            let alone = Asked { unanswered: 1, is_alone: true, cohort: None };
            table.insert(key.clone(), alone);
            return Err(caller);
        };
        let cohort = asked.cohort.clone().and_then(|cohort| cohort.downcast().ok());
        let sends_soon = asked.is_alone && cohort.is_none();
        let cohort = cohort.unwrap_or_else(|| {
            let cohort = Arc::<C>::default();
            asked.cohort = Some(Arc::clone(&cohort) as _);
            cohort
        });
        Ok(join(cohort, caller, sends_soon))
    }

    /// A request has its answer. Returns the cohort, which has the next request.
    pub(crate) fn answered<C: Any + Send + Sync>(&self, key: &FormingKey) -> Option<Arc<C>> {
        self.next(key, 1)
    }

    /// Returns the cohort, whose request is sent before the answer to the last one.
    pub(crate) fn early<C: Any + Send + Sync>(&self, key: &FormingKey) -> Option<Arc<C>> {
        self.next(key, 0)
    }

    fn next<C: Any + Send + Sync>(&self, key: &FormingKey, answered: usize) -> Option<Arc<C>> {
        let mut table = self.0.lock();
        let asked = table.get_mut(key)?;
        let next = asked.cohort.take();
        asked.unanswered = asked.unanswered.saturating_sub(answered) + usize::from(next.is_some());
        asked.is_alone &= next.is_none();
        if asked.unanswered == 0 {
            table.remove(key);
        }
        drop(table);
        next.and_then(|cohort| cohort.downcast().ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cohort_forms_while_a_request_has_no_answer() {
        let (forming, key) = (Forming::default(), |key: &str| FormingKey {
            key: key.into(),
            ttl: Duration::from_secs(1),
        });
        type Callers = Mutex<Vec<u32>>;
        let enter = |of, caller| {
            let join = |cohort: Arc<Callers>, caller, _| cohort.lock().push(caller);
            forming.enter(&key(of), caller, join).err()
        };
        let next = |of| {
            let cohort = forming.answered::<Callers>(&key(of));
            cohort.map(|cohort| cohort.lock().clone())
        };
        assert_eq!((enter("a", 1), enter("b", 2)), (Some(1), Some(2)), "they ask for themselves");
        assert_eq!((enter("a", 3), enter("a", 4)), (None, None), "one cohort");
        assert_eq!(next("a"), Some(vec![3, 4]));
        assert_eq!(enter("a", 5), None, "the cohort's request has no answer yet");
        assert_eq!((next("a"), next("a")), (Some(vec![5]), None));
        assert_eq!(enter("a", 6), Some(6), "nothing is in flight");
        assert_eq!((next("b"), forming.0.lock().len()), (None, 1));
    }

    #[test]
    fn the_first_cohort_beside_a_caller_by_itself_is_sent_early() {
        let (forming, key) =
            (Forming::default(), FormingKey { key: "a".into(), ttl: Duration::from_secs(1) });
        let enter = || forming.enter(&key, (), |_: Arc<()>, (), sends_soon| sends_soon);
        assert_eq!([enter(), enter(), enter()], [Err(()), Ok(true), Ok(false)]);
        assert!(forming.early::<()>(&key).is_some());
        assert_eq!(enter(), Ok(false), "two requests are in flight");
        assert!(forming.answered::<()>(&key).is_some());
        assert!(forming.answered::<()>(&key).is_none());
        assert_eq!(enter(), Ok(false), "one request is in flight, of a cohort");
        assert!(forming.answered::<()>(&key).is_some());
        assert!(forming.answered::<()>(&key).is_none());
        assert_eq!(enter(), Err(()), "nothing is in flight");
    }
}
