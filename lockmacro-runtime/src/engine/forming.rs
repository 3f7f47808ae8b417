//! The cohorts that form, by key and ttl. The table does not know the type of a cohort: cohorts use
//! the manager, and the manager has the table.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use crate::value::random::HashMap;
use crate::value::sync::Mutex;

/// A key and a ttl. The callers of a forked process have cohorts of their own.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct FormingKey {
    pub(crate) key: Box<str>,
    pub(crate) ttl: Duration,
    pub(crate) process: u32,
}

/// The keys with a request that has no answer yet. The cohort of a key forms until that answer.
#[derive(Debug, Default)]
pub(crate) struct Forming(Mutex<HashMap<FormingKey, Option<Arc<dyn Any + Send + Sync>>>>);

impl Forming {
    /// Lets a caller `join` the cohort of a key, which is made if there is none. Gives the caller
    /// back, and records its request, if no other request for the key is without an answer.
    pub(crate) fn enter<C: Any + Default + Send + Sync, T, R>(
        &self,
        key: &FormingKey,
        caller: T,
        join: impl FnOnce(Arc<C>, T) -> R,
    ) -> Result<R, T> {
        let mut table = self.0.lock();
        let Some(forming) = table.get_mut(key) else {
            table.insert(key.clone(), None);
            return Err(caller);
        };
        let cohort = forming.clone().and_then(|cohort| cohort.downcast().ok());
        let cohort = cohort.unwrap_or_else(|| {
            let cohort = Arc::<C>::default();
            *forming = Some(Arc::clone(&cohort) as _);
            cohort
        });
        Ok(join(cohort, caller))
    }

    /// The request has an answer. Returns the cohort, which has the next request.
    pub(crate) fn answered<C: Any + Send + Sync>(&self, key: &FormingKey) -> Option<Arc<C>> {
        let mut table = self.0.lock();
        let next = table.get_mut(key).and_then(Option::take);
        if next.is_none() {
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
            process: 7,
        });
        type Callers = Mutex<Vec<u32>>;
        let enter = |of, caller| {
            let join = |cohort: Arc<Callers>, caller| cohort.lock().push(caller);
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
}
