//! A block that is put together by someone who knows what it repeats, so that nothing need be searched for.

use super::encode::{MAX_LENGTH, MIN_LENGTH, Token, WINDOW};
use super::{Deflated, encode};

/// Shorter pieces than this are not worth a distance.
const WORTH: usize = 4;
/// Bytes by which text is searched for.
const KEY_BYTES: usize = 5;
/// Places that a search remembers.
const KEYS: usize = 1 << 13;

/// The bytes of a block, and how to write them.
#[derive(Default)]
pub(in crate::output) struct Draft {
    bytes: Vec<u8>,
    tokens: Vec<Token>,
    /// The last bytes stand this far before, too; they are in no token yet.
    distance: usize,
    pending: usize,
    /// Where text that was searched for stood last, by its first bytes; any other place is as good as none.
    places: Vec<u32>,
}

impl Draft {
    /// Its bytes so far.
    pub(in crate::output) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Position of the next byte.
    pub(in crate::output) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether what stands at a position can be repeated now.
    pub(in crate::output) fn reaches(&self, at: usize) -> bool {
        at < self.len() && self.len() - at <= WINDOW
    }

    /// Adds bytes that are new.
    pub(in crate::output) fn put(&mut self, new: &[u8]) {
        self.settle();
        self.bytes.extend_from_slice(new);
        self.tokens
            .extend(new.iter().map(|&byte| Token::byte(byte)));
    }

    /// Adds text of which parts may stand before, wherever: only in text that was added so, too.
    pub(in crate::output) fn put_text(&mut self, text: &[u8]) {
        self.settle();
        self.places.resize(KEYS, 0);
        let mut new = self.len();
        self.bytes.extend_from_slice(text);
        let Self {
            bytes,
            tokens,
            places,
            ..
        } = self;
        let literals = |tokens: &mut Vec<Token>, new: &[u8]| {
            tokens.extend(new.iter().map(|&byte| Token::byte(byte)));
        };
        let mut at = new;
        while let Some(word) = bytes[at..].first_chunk::<8>() {
            let key = u64::from_le_bytes(*word) << (64 - 8 * KEY_BYTES);
            let slot = key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - KEYS.ilog2());
            let place = std::mem::replace(&mut places[slot as usize], at as u32) as usize;
            let is_near = place < at && at - place <= WINDOW;
            let equal = match is_near && bytes[place..place + KEY_BYTES] == word[..KEY_BYTES] {
                true => KEY_BYTES + common(&bytes[at + KEY_BYTES..], &bytes[place + KEY_BYTES..]),
                false => 0,
            };
            if equal == 0 {
                at += 1;
                continue;
            }
            literals(tokens, &bytes[new..at]);
            repeat_tokens(tokens, equal, at - place);
            at += equal;
            new = at;
        }
        literals(tokens, &bytes[new..]);
    }

    /// Adds what stands at a position, which is in reach.
    pub(in crate::output) fn repeat(&mut self, at: usize, len: usize) {
        let pending = self.len() - self.pending;
        if at >= self.pending && self.bytes[at - self.pending..at] == self.bytes[pending..] {
            // What comes before stands there, too: one token less.
            self.distance = self.len() - at;
        }
        self.again(self.len() - at, len);
        let mut copied = 0;
        while copied < len {
            // What is copied may be what was copied just now.
            let piece = (len - copied).min(self.len() - at);
            self.bytes.extend_from_within(at..at + piece);
            copied += piece;
        }
    }

    /// Adds bytes of which many are as at a position, which is in reach.
    pub(in crate::output) fn put_like(&mut self, bytes: &[u8], at: usize) {
        let distance = self.len() - at;
        let mut rest = bytes;
        while !rest.is_empty() {
            let model = self.len() - distance;
            let equal = common(rest, &self.bytes[model..]);
            let (head, behind) = rest.split_at(equal);
            if equal >= WORTH || (self.pending > 0 && self.distance == distance) {
                self.again(distance, equal);
                self.bytes.extend_from_slice(head);
            } else {
                self.put(head);
            }
            // At least one that differs; a few that do not among those that do are not worth it.
            let new = (1..behind.len()).find(|&at| {
                let model = &self.bytes[(self.len() + at - distance).min(self.len())..];
                common(&behind[at..], model) >= WORTH
            });
            let (new, next) = behind.split_at(new.unwrap_or(behind.len()));
            self.put(new);
            rest = next;
        }
    }

    /// Notes that the next bytes stand so far before.
    fn again(&mut self, distance: usize, len: usize) {
        if self.distance != distance {
            self.settle();
            self.distance = distance;
        }
        self.pending += len;
    }

    /// Makes tokens of what was repeated last.
    fn settle(&mut self) {
        let Self {
            bytes,
            tokens,
            distance,
            pending,
            ..
        } = self;
        if *pending >= MIN_LENGTH {
            repeat_tokens(tokens, *pending, *distance);
            *pending = 0;
        }
        let rest = &bytes[bytes.len() - *pending..];
        tokens.extend(rest.iter().map(|&byte| Token::byte(byte)));
        *pending = 0;
    }

    /// Deflates it and begins anew.
    pub(in crate::output) fn deflate(&mut self) -> Deflated {
        self.settle();
        let mut bytes = Vec::with_capacity(self.bytes.len() / 8 + 1024);
        encode::encode(&self.tokens, &mut bytes);
        let deflated = Deflated::new(bytes, &self.bytes);
        self.clear();
        deflated
    }

    /// Begins anew.
    pub(in crate::output) fn clear(&mut self) {
        self.bytes.clear();
        self.tokens.clear();
        self.places.clear();
        (self.distance, self.pending) = (0, 0);
    }
}

/// Of at least [`MIN_LENGTH`] bytes.
fn repeat_tokens(tokens: &mut Vec<Token>, mut left: usize, distance: usize) {
    while left > 0 {
        let length = match left {
            // What is left is long enough, too.
            _ if left > MAX_LENGTH && left < MAX_LENGTH + MIN_LENGTH => left - MIN_LENGTH,
            _ => left.min(MAX_LENGTH),
        };
        tokens.push(Token::again(length, distance));
        left -= length;
    }
}

/// How many bytes are equal from the beginning on.
fn common(a: &[u8], b: &[u8]) -> usize {
    let (words, _) = a.as_chunks::<8>();
    let (others, _) = b.as_chunks::<8>();
    let mut equal = 0;
    for (word, other) in words.iter().zip(others) {
        let differs = u64::from_le_bytes(*word) ^ u64::from_le_bytes(*other);
        if differs != 0 {
            return equal + (differs.trailing_zeros() / 8) as usize;
        }
        equal += 8;
    }
    let rest = a[equal..].iter().zip(&b[equal..]);
    equal + rest.take_while(|(a, b)| a == b).count()
}
