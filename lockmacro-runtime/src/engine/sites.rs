//! Functions that are known by their path. The path that the attribute gives has the module and the
//! function in it, and not the type whose method it is, nor the function around it: so two of them
//! may have the same one, and would get the values and the calls of each other.

use std::collections::BTreeMap;
use std::panic::Location;

use crate::sys::sync::Mutex;
use crate::value::error::LockError;

/// So many names are looked at. A program has as many functions, unless it makes names.
const MOST: usize = 10_000;

/// Where the functions are that a manager was used by, by their paths.
#[derive(Debug, Default)]
pub(crate) struct Sites(Mutex<BTreeMap<String, &'static Location<'static>>>);

impl Sites {
    /// Refuses a path that another function has been called by. Names that are no paths are chosen,
    /// and may be used at several places.
    pub(crate) fn check(
        &self,
        name: &str,
        site: &'static Location<'static>,
    ) -> Result<(), LockError> {
        if !name.contains("::") {
            return Ok(());
        }
        let mut sites = self.0.lock();
        match sites.get(name) {
            Some(other) if *other != site => {
                let detail = format!(
                    "two functions of one module are `{name}`, at {other} and at {site}, and would \
                     be taken for each other: give each a `name = \"…\"` of its own"
                );
                Err(LockError::invalid("name", detail))
            }
            Some(_) => Ok(()),
            None => {
                if sites.len() < MOST {
                    sites.insert(name.to_owned(), site);
                }
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_that_of_one_place_and_a_name_that_was_chosen_of_several() {
        let sites = Sites::default();
        let one = Location::caller();
        let other = here();
        for name in ["orders.audit", "shop::orders::audit"] {
            assert_eq!((sites.check(name, one), sites.check(name, one)), (Ok(()), Ok(())));
        }
        assert_eq!(sites.check("orders.audit", other), Ok(()));
        let refused = sites.check("shop::orders::audit", other).unwrap_err().to_string();
        assert!(refused.contains(&other.to_string()) && refused.contains("`name = "), "{refused}");
        assert_eq!(Sites::default().check("shop::orders::audit", other), Ok(()));
    }

    #[track_caller]
    fn here() -> &'static Location<'static> {
        Location::caller()
    }
}
