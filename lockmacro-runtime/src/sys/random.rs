//! Randomness. Nothing else draws random numbers.

use crate::sys::world::{self, World};

/// 128 bits of the system, for tokens: a forked process gets other ones than its parent. Fails when
/// the system has none.
pub(crate) fn secret() -> Result<u128, getrandom::Error> {
    if let Some(bits) = of_world(|world| [world.random(), world.random()]) {
        let [high, low] = bits.map(u128::from);
        return Ok(high << 64 | low);
    }
    let mut bits = [0; 16];
    getrandom::fill(&mut bits)?;
    Ok(u128::from_be_bytes(bits))
}

/// Random bits for a name that is not secret, and that is unique among processes, even if they seed
/// their own random numbers alike.
pub(crate) fn random_name() -> u128 {
    // Without random bits of the system there are no locks, so nothing depends on the fallback.
    secret().unwrap_or_else(|_| fastrand::u128(..))
}

/// A number from 0 to 1, without 1.
pub(crate) fn fraction() -> f64 {
    generator().f64()
}

pub(crate) fn shuffle<T>(slice: &mut [T]) {
    generator().shuffle(slice);
}

/// How keys are hashed: unlike in any other process, so that nobody can choose keys that collide.
#[cfg(not(all(lockmacro_simulation, feature = "test-util")))]
type Hashing = std::hash::RandomState;

/// The same in every process, so that a simulation has the order of each table again.
#[cfg(all(lockmacro_simulation, feature = "test-util"))]
type Hashing = std::hash::BuildHasherDefault<std::hash::DefaultHasher>;

pub(crate) type HashMap<K, V> = std::collections::HashMap<K, V, Hashing>;
pub(crate) type HashSet<K> = std::collections::HashSet<K, Hashing>;

fn generator() -> fastrand::Rng {
    of_world(|world| fastrand::Rng::with_seed(world.random())).unwrap_or_default()
}

fn of_world<T>(draw: impl FnOnce(&dyn World) -> T) -> Option<T> {
    world::current().map(|world| draw(&*world))
}
