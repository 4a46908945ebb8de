#![allow(clippy::unwrap_used)]
use super::*;
use proptest::prelude::*;

/// A jitdump file, little-endian unless `swapped`.
struct Dump {
    bytes: Vec<u8>,
    swapped: bool,
}

impl Dump {
    fn new(swapped: bool, flags: u64) -> Self {
        let mut dump = Self {
            bytes: Vec::new(),
            swapped,
        };
        for word in [MAGIC, 1, 40, 62, 0, 7] {
            dump.u32(word);
        }
        dump.u64(5);
        dump.u64(flags);
        dump
    }

    fn put<const N: usize>(&mut self, mut word: [u8; N]) {
        if self.swapped {
            word.reverse();
        }
        self.bytes.extend(word);
    }

    fn u32(&mut self, word: u32) {
        self.put(word.to_le_bytes());
    }

    fn u64(&mut self, word: u64) {
        self.put(word.to_le_bytes());
    }

    fn prefix(&mut self, kind: u32, body: usize, time: u64) {
        self.u32(kind);
        self.u32((PREFIX_BYTES + body) as u32);
        self.u64(time);
    }

    fn load(mut self, time: u64, start: u64, size: u64, name: &str) -> Self {
        self.prefix(LOAD, LOAD_BYTES + name.len() + 1 + size as usize, time);
        self.u64(7);
        for word in [start, start, size, 0] {
            self.u64(word);
        }
        self.bytes.extend(name.bytes());
        self.bytes.push(0);
        self.bytes.extend(vec![0x90; size as usize]);
        self
    }

    fn moved(mut self, time: u64, from: u64, to: u64, size: u64) -> Self {
        self.prefix(MOVE, MOVE_BYTES, time);
        self.u64(7);
        for word in [to, from, to, size, 0] {
            self.u64(word);
        }
        self
    }

    /// Returns the names at two addresses, and whether the file is truncated.
    fn names(&self, until: u64) -> (Option<String>, Option<String>, bool) {
        let dump = JitDump::read(&self.bytes[..], until).unwrap();
        let name = |address| {
            dump.lookup(address)
                .map(|symbol| String::from_utf8_lossy(symbol.name).into_owned())
        };
        (name(0x1008), name(0x2008), dump.truncated)
    }
}

fn some(name: &str) -> Option<String> {
    Some(name.to_owned())
}

#[test]
fn returns_the_functions_at_a_point_in_time() {
    for swapped in [false, true] {
        let dump = Dump::new(swapped, 0)
            .load(10, 0x1000, 16, "first")
            .load(20, 0x1000, 32, "second")
            .moved(30, 0x1000, 0x2000, 32);
        assert_eq!(dump.names(15), (some("first"), None, false));
        assert_eq!(dump.names(25), (some("second"), None, false));
        assert_eq!(dump.names(35), (some("second"), some("second"), false));
    }
    let arch_time = Dump::new(false, FLAG_ARCH_TIME).load(10, 0x1000, 16, "first");
    assert_eq!(arch_time.names(5), (some("first"), None, false));
}

#[test]
fn accepts_empty_names_and_truncates_long_ones() {
    let long = "x".repeat(MAX_NAME_BYTES as usize + 1);
    let dump = Dump::new(false, 0)
        .load(10, 0x1000, 16, "")
        .load(10, 0x2000, 16, &long);
    let truncated = format!("{}...", &long[1..]);
    assert_eq!(dump.names(99), (some(""), Some(truncated), false));
}

#[test]
fn uses_all_complete_records_of_a_truncated_file() {
    let mut dump = Dump::new(false, 0)
        .load(10, 0x1000, 16, "first")
        .load(20, 0x2000, 16, "second");
    let length = dump.bytes.len();
    for removed in 0..=length {
        dump.bytes.truncate(length - removed);
        if dump.bytes.len() < HEADER_BYTES {
            break;
        }
        let (_, second, truncated) = dump.names(99);
        // The code of the last function is not read.
        assert!(second.is_some() || truncated || removed > 16, "{removed}");
        assert_eq!(removed == 0, !truncated && second.is_some(), "{removed}");
    }
    assert!(JitDump::read(&b"ELF"[..], 0).unwrap().truncated);
    let other = [b'x'; 64];
    assert!(JitDump::read(&other[..], 0).is_err());
}

#[test]
fn stops_at_a_function_larger_than_its_record() {
    let mut dump = Dump::new(false, 0).load(10, 0x1000, 16, "first");
    let second = dump.bytes.len();
    dump = dump.load(20, 0x2000, 16, "second");
    dump.bytes[second + PREFIX_BYTES + 24..][..8].copy_from_slice(&u64::MAX.to_le_bytes());
    assert_eq!(dump.names(99), (some("first"), None, true));
}

proptest! {
    #[test]
    fn never_panics(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut dump = Dump::new(false, 0).load(10, 0x1000, 16, "first");
        dump.bytes.extend(bytes);
        prop_assert_eq!(dump.names(10).0, some("first"));
    }
}
