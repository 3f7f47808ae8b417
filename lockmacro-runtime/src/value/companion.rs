//! Companion keys: `lm1:` keys beside a lock's key. A companion key is always in the slot of its
//! lock's key, and no two lock keys share one.

use std::sync::LazyLock;

/// Number of slots of a cluster.
pub(crate) const SLOTS: u16 = 16_384;
/// Most bytes that a companion key has beside its lock's key.
pub(crate) const COMPANION_MORE: usize = "lm1:xq:{109757}:".len();
/// The largest of the [`NUMBERS`].
const NUMBER_MAX: u32 = 109_757;

/// Writes the companion key of a `kind` for the lock's `key`, part by part.
///
/// A cluster hashes the tag of a key: the text between the first `{` and the first `}` after it,
/// unless that is empty. Without a tag it hashes the whole key. So there are three forms, each with
/// a prefix of its own:
///
/// - A key with a tag keeps it, behind the prefix.
/// - A key without a tag becomes the tag.
/// - A key without a tag but with a `}` cannot become one. Its tag is the smallest number that
///   hashes to the key's slot.
pub(crate) fn write_companion(key: &str, kind: &str, write: impl FnMut(&str)) {
    let number;
    let parts = if tag(key).is_some() {
        ["lm1:t", kind, ":", key, "", ""]
    } else if !key.contains('}') {
        ["lm1:w", kind, ":{", key, "}", ""]
    } else {
        number = NUMBERS[usize::from(slot(key))].to_string();
        ["lm1:x", kind, ":{", &number, "}:", key]
    };
    parts.into_iter().for_each(write);
}

/// The name of a sharded channel in a slot.
pub(crate) fn channel(slot: u16, name: &str) -> String {
    format!("lm1:{{{}}}:{name}", NUMBERS[usize::from(slot % SLOTS)])
}

/// The smallest decimal number that hashes to each slot.
static NUMBERS: LazyLock<Vec<u32>> = LazyLock::new(|| {
    let mut numbers = vec![0; usize::from(SLOTS)];
    // Down, so that the smallest one of a slot is left.
    for number in (0..=NUMBER_MAX).rev() {
        numbers[usize::from(slot(&number.to_string()))] = number;
    }
    numbers
});

fn tag(key: &str) -> Option<&str> {
    let (_, rest) = key.split_once('{')?;
    let (tag, _) = rest.split_once('}')?;
    (!tag.is_empty()).then_some(tag)
}

/// The cluster slot of a key.
pub(crate) fn slot(key: &str) -> u16 {
    crc16(tag(key).unwrap_or(key).as_bytes()) % SLOTS
}

/// CRC-16/XMODEM, as in the Redis Cluster specification.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ u16::from(*byte) << 8, |crc, _| {
            if crc & 0x8000 == 0 { crc << 1 } else { crc << 1 ^ 0x1021 }
        })
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn companion(key: &str, kind: &str) -> String {
        let mut companion = String::new();
        write_companion(key, kind, |part| companion.push_str(part));
        companion
    }

    #[test]
    fn the_checksum_is_the_one_of_the_specification() {
        assert_eq!(crc16(b"123456789"), 0x31C3);
        assert_eq!(slot("foo"), 12182);
        assert_eq!(slot("{user1000}.following"), slot("user1000"));
        assert_eq!(slot("foo{}{bar}"), crc16(b"foo{}{bar}") % SLOTS);
    }

    #[test]
    fn a_channel_is_in_its_slot() {
        for of in [0, 1, 8_191, SLOTS - 1] {
            assert_eq!(slot(&channel(of, "c0ffee")), of);
        }
    }

    #[test]
    fn every_slot_has_a_number() {
        assert_eq!(NUMBERS.len(), usize::from(SLOTS));
        for (slot, number) in NUMBERS.iter().enumerate() {
            assert_eq!(usize::from(super::slot(&number.to_string())), slot);
        }
    }

    fn adversarial() -> impl Strategy<Value = String> {
        let pieces = ["{", "}", "{}", "a", "b", "lm1:", "lm1:tf:", "lm1:wf:{", ":", "0", "7", "订"];
        prop_oneof![
            8 => proptest::collection::vec(proptest::sample::select(pieces.to_vec()), 1..7)
                .prop_map(|pieces| pieces.concat()),
            1 => "\\PC{1,9}",
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(5_000))]

        #[test]
        fn a_companion_key_is_in_the_slot_of_its_lock(key in adversarial()) {
            prop_assert_eq!(slot(&companion(&key, "f")), slot(&key));
        }

        #[test]
        fn no_two_locks_share_a_companion_key(
            one in adversarial(),
            other in adversarial(),
            kinds in proptest::sample::select(vec![("f", "f"), ("f", "q"), ("q", "w")]),
        ) {
            prop_assume!(one != other || kinds.0 != kinds.1);
            prop_assert_ne!(companion(&one, kinds.0), companion(&other, kinds.1));
        }
    }
}
