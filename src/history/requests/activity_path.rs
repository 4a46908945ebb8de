//! Paths in the activity ids of .NET's `EventSource`.
//!
//! An id is a path from an outer activity to inner ones: a list of numbers in the first 12 bytes, in nibbles,
//! the high one of a byte first. The last 4 bytes are a checksum. The format is that of `ActivityTracker` in
//! dotnet/runtime:
//!
//! ```text
//! 0        end of the list          B        overflow: a length follows, the number has no place in the path
//! 1 to A   this number              C to F   1 to 4 bytes follow, after the rest of this byte. If the length is
//!                                            the high nibble, the low one has bits 8 to 11 of a number below 4096
//! checksum = (sum of the other three 32-bit integers + 0x599D99AD) xor process id
//! ```

/// Length of the path in an id, in bytes.
const PATH_BYTES: usize = 12;
/// Added to the checksum.
const CHECKSUM: u32 = 0x599D_99AD;
/// Maximum process id of Linux.
const MAX_PID: u32 = 1 << 22;
/// First nibble of a number with more than one nibble.
const OVERFLOW: u8 = 0xB;
const LENGTH: u8 = 0xC;

/// Id of an activity.
pub(super) type ActivityId = [u8; 16];

/// Returns an id and those of all activities around it, the innermost first.
///
/// An id that is not a path has none around it; the id of no activity has not even itself.
pub(super) fn with_outer(id: ActivityId) -> impl Iterator<Item = ActivityId> {
    let outer = process(&id).into_iter().flat_map(move |pid| {
        // The last end is that of the id itself.
        let ends = ends(&id).into_iter().rev();
        ends.map(move |end| up_to(&id, end, pid))
    });
    let is_none = id == ActivityId::default();
    let own = (!is_none).then_some(id);
    own.into_iter()
        .chain(outer.filter(move |outer| *outer != id))
}

/// Returns the process id in the checksum of an id, if it is a path.
fn process(id: &ActivityId) -> Option<u32> {
    let [.., a, b, c, d] = *id;
    let pid = u32::from_le_bytes([a, b, c, d]) ^ checksum(id);
    (pid <= MAX_PID).then_some(pid)
}

fn checksum(id: &ActivityId) -> u32 {
    let (words, _) = id[..PATH_BYTES].as_chunks();
    let words = words.iter().map(|word| u32::from_le_bytes(*word));
    words.fold(CHECKSUM, u32::wrapping_add)
}

/// Returns the id of the activity whose path ends after this many nibbles.
fn up_to(id: &ActivityId, nibbles: usize, pid: u32) -> ActivityId {
    let mut outer = ActivityId::default();
    outer[..nibbles / 2].copy_from_slice(&id[..nibbles / 2]);
    if nibbles % 2 == 1 {
        outer[nibbles / 2] = id[nibbles / 2] & 0xf0;
    }
    let sum = checksum(&outer) ^ pid;
    outer[PATH_BYTES..].copy_from_slice(&sum.to_le_bytes());
    outer
}

/// Returns the ends of the numbers in a path, in nibbles.
fn ends(id: &ActivityId) -> Vec<usize> {
    let nibble = |at: usize| match at % 2 {
        0 => id[at / 2] >> 4,
        _ => id[at / 2] & 0xf,
    };
    let mut ends = Vec::new();
    let mut at = 0;
    while at < 2 * PATH_BYTES {
        let mut first = nibble(at);
        if first == OVERFLOW && at + 1 < 2 * PATH_BYTES {
            at += 1;
            first = nibble(at);
        }
        at = match first {
            0 | OVERFLOW => break,
            ..OVERFLOW => at + 1,
            _ => {
                let length = usize::from(first - LENGTH) + 1;
                // What follows starts with a whole byte.
                let number = at / 2 + 1;
                let end = number + length;
                // The writer skips a byte after a number of 9 to 12 bits.
                let has_high_bits = at % 2 == 0 && first == LENGTH && nibble(at + 1) != 0;
                let skipped = has_high_bits && id[..PATH_BYTES].get(end) == Some(&0);
                2 * (end + usize::from(skipped))
            }
        };
        if at > 2 * PATH_BYTES {
            break;
        }
        ends.push(at);
    }
    ends
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// An id with these first bytes.
    fn id(path: &[u8], pid: u32) -> ActivityId {
        let mut id = ActivityId::default();
        id[..path.len()].copy_from_slice(path);
        up_to(&id, 2 * PATH_BYTES, pid)
    }

    fn outer(path: &[u8]) -> Vec<ActivityId> {
        with_outer(id(path, 7)).collect()
    }

    fn ids<const N: usize>(paths: [&[u8]; N]) -> [ActivityId; N] {
        paths.map(|path| id(path, 7))
    }

    /// From a real process, 19536.
    #[test]
    fn real_ids_have_the_process_in_their_checksum() {
        let root = [
            0x1c, 0x13, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x99, 0xe0, 0x9d, 0x59,
        ];
        assert_eq!(process(&root), Some(19536));
        let child = [
            0x1c, 0x0b, 0x30, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x99, 0xe8, 0xcd, 0x59,
        ];
        let parent = [
            0x1c, 0x0b, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x99, 0xe8, 0x9d, 0x59,
        ];
        assert_eq!(with_outer(child).nth(1), Some(parent));
    }

    #[test]
    fn outer_activities_are_prefixes_of_the_path() {
        assert_eq!(outer(&[0x12, 0x30]), ids([&[0x12, 0x30], &[0x12], &[0x10]]));
        // A number of one byte after a high nibble, of two bytes after a low one.
        assert_eq!(
            outer(&[0x1c, 0x10, 0xd0, 0x00, 0x20, 0x30]),
            ids([
                &[0x1c, 0x10, 0xd0, 0x00, 0x20, 0x30],
                &[0x1c, 0x10, 0xd0, 0x00, 0x20],
                &[0x1c, 0x10],
                &[0x10],
            ])
        );
        // 0x131 in a high nibble, its skipped byte, and a number after it.
        assert_eq!(
            outer(&[0x15, 0xc1, 0x31, 0x00, 0x20]),
            ids([
                &[0x15, 0xc1, 0x31, 0x00, 0x20],
                &[0x15, 0xc1, 0x31],
                &[0x15],
                &[0x10]
            ])
        );
        // A number without a place in the path.
        assert_eq!(
            outer(&[0x15, 0xbc, 0x31]),
            ids([&[0x15, 0xbc, 0x31], &[0x15], &[0x10]])
        );
    }

    #[test]
    fn an_id_of_another_kind_has_no_outer_activities() {
        assert_eq!(with_outer([0x11; 16]).count(), 1);
        assert_eq!(with_outer([0; 16]).count(), 0);
    }

    proptest! {
        #[test]
        fn any_id_has_few_outer_activities(path: [u8; PATH_BYTES], pid in 0..MAX_PID, raw: ActivityId) {
            for id in [id(&path, pid), raw] {
                let all: Vec<ActivityId> = with_outer(id).collect();
                prop_assert!(all.len() <= 2 * PATH_BYTES + 1);
                for outer in all.iter().skip(1) {
                    prop_assert_eq!(process(outer), process(&id));
                }
            }
        }
    }
}
