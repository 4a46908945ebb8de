//! Tokens to bits: one block of RFC 1951 with codes of its own.

use super::huffman::{self, Code};

/// A byte, or 3 to 258 bytes that stand 1 to 32768 bytes before: `length << 16 | distance - 1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Token(u32);

pub(super) const MIN_LENGTH: usize = 3;
pub(super) const MAX_LENGTH: usize = 258;
/// Furthest distance.
pub(super) const WINDOW: usize = 32 << 10;

/// Ends a block.
const END: usize = 256;
/// Symbols of bytes, the end and lengths.
const SYMBOLS: usize = 286;
const DISTANCES: usize = 30;
const LONGEST: u8 = 15;
/// The order in which the lengths of the codes for lengths of codes stand.
const ORDER: [usize; 19] = [
    16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15,
];
const LONGEST_OF_LENGTHS: u8 = 7;
/// More than the lengths of the codes take, and what ends a block.
const MAX_FRAME_BYTES: usize = 1 << 10;
/// The longest token: two codes and what follows them, 48 bits.
const MAX_TOKEN_BYTES: usize = 6;

impl Token {
    pub(super) fn byte(byte: u8) -> Self {
        Self(byte.into())
    }

    pub(super) fn again(length: usize, distance: usize) -> Self {
        Self((length as u32) << 16 | (distance - 1) as u32)
    }

    fn length(self) -> usize {
        (self.0 >> 16) as usize
    }

    /// The symbol of the distance, how many bits follow it, and those.
    fn distance(self) -> (usize, u32, u32) {
        let distance = self.0 & 0xffff;
        if distance < 4 {
            return (distance as usize, 0, 0);
        }
        let extra = 30 - distance.leading_zeros();
        let symbol = 2 * (extra + 1) + (distance >> extra & 1);
        (symbol as usize, extra, distance & ((1 << extra) - 1))
    }
}

/// The symbol of a length, how many bits follow it, and those.
fn symbol_of_length(length: usize) -> (usize, u32, u32) {
    let length = (length - MIN_LENGTH) as u32;
    if length < 8 {
        return (END + 1 + length as usize, 0, 0);
    }
    if length as usize == MAX_LENGTH - MIN_LENGTH {
        return (SYMBOLS - 1, 0, 0);
    }
    let extra = 29 - length.leading_zeros();
    let symbol = 4 * (extra + 1) + (length >> extra & 3);
    (
        END + 1 + symbol as usize,
        extra,
        length & ((1 << extra) - 1),
    )
}

/// Appends a block of these tokens that is not the last, up to a whole byte (an empty stored block).
pub(super) fn encode(tokens: &[Token], out: &mut Vec<u8>) {
    let (mut symbols, mut distances) = ([0; SYMBOLS], [0; DISTANCES]);
    let mut of_length = [0_u32; MAX_LENGTH + 1];
    for token in tokens {
        match token.length() {
            0 => symbols[token.0 as usize] += 1,
            length => {
                of_length[length] += 1;
                distances[token.distance().0] += 1;
            }
        }
    }
    symbols[END] = 1;
    for (length, count) in of_length.iter().enumerate().skip(MIN_LENGTH) {
        symbols[symbol_of_length(length).0] += count;
    }
    let symbols = huffman::lengths(&symbols, LONGEST);
    let distances = huffman::lengths(&distances, LONGEST);
    let start = out.len();
    out.resize(start + MAX_FRAME_BYTES + MAX_TOKEN_BYTES * tokens.len(), 0);
    let mut bits = Bits {
        out,
        at: start,
        bits: 0,
        count: 0,
    };
    // Not the last; codes of its own.
    bits.put(0b100, 3);
    put_lengths(&symbols, &distances, &mut bits);

    let (symbols, distances) = (huffman::codes(&symbols), huffman::codes(&distances));
    let mut lengths = [Code::default(); MAX_LENGTH + 1];
    for (length, code) in lengths.iter_mut().enumerate().skip(MIN_LENGTH) {
        let (symbol, extra, more) = symbol_of_length(length);
        let Code { bits, len } = symbols[symbol];
        *code = Code {
            bits: bits | more << len,
            len: len + extra as u8,
        };
    }
    for token in tokens {
        match token.length() {
            0 => bits.put_code(symbols[token.0 as usize]),
            length => {
                let length = lengths[length];
                let (symbol, extra, more) = token.distance();
                let distance = distances[symbol];
                let both = u64::from(distance.bits | more << distance.len) << length.len
                    | u64::from(length.bits);
                bits.put(both, u32::from(length.len + distance.len) + extra);
            }
        }
    }
    bits.put_code(symbols[END]);
    bits.put(0, 3);
    let end = bits.align();
    out.truncate(end);
    out.extend_from_slice(&[0, 0, 0xff, 0xff]);
}

/// Writes the lengths of both codes, which are packed in a code of their own.
fn put_lengths(symbols: &[u8], distances: &[u8], bits: &mut Bits<'_>) {
    let used = |lengths: &[u8], least: usize| {
        let last = lengths.iter().rposition(|&len| len > 0);
        last.map_or(least, |last| least.max(last + 1))
    };
    let symbols = &symbols[..used(symbols, END + 1)];
    let distances = &distances[..used(distances, 1)];
    let packed = packed([symbols, distances].concat());
    let mut counts = [0; ORDER.len()];
    for (symbol, ..) in &packed {
        counts[*symbol] += 1;
    }
    let lengths = huffman::lengths(&counts, LONGEST_OF_LENGTHS);
    let last = ORDER.iter().rposition(|&symbol| lengths[symbol] > 0);
    let order = &ORDER[..last.map_or(4, |last| 4.max(last + 1))];
    bits.put((symbols.len() - END - 1) as u64, 5);
    bits.put(distances.len() as u64 - 1, 5);
    bits.put(order.len() as u64 - 4, 4);
    for &symbol in order {
        bits.put(lengths[symbol].into(), 3);
    }
    let codes = huffman::codes(&lengths);
    for (symbol, extra, more) in packed {
        bits.put_code(codes[symbol]);
        bits.put(more.into(), extra);
    }
}

/// Lengths of codes as symbols: a length, or how often there is the one before (16) or 0 (17, 18); with the bits that follow.
fn packed(lengths: Vec<u8>) -> Vec<(usize, u32, u32)> {
    let mut packed = Vec::new();
    for run in lengths.chunk_by(|a, b| a == b) {
        let length = usize::from(run[0]);
        let mut left = run.len() as u32;
        if length > 0 {
            packed.push((length, 0, 0));
            left -= 1;
        }
        while left > 0 {
            let (most, least, symbol, extra) = match length {
                0 if left > 10 => (138, 11, 18, 7),
                0 => (10, 3, 17, 3),
                _ => (6, 3, 16, 2),
            };
            let now = left.min(most);
            if now < least {
                packed.push((length, 0, 0));
                left -= 1;
            } else {
                packed.push((symbol, extra, now - least));
                left -= now;
            }
        }
    }
    packed
}

/// Puts bits behind each other, the first in the lowest of a byte.
struct Bits<'a> {
    /// With room for all that comes, and for a word behind it.
    out: &'a mut [u8],
    at: usize,
    bits: u64,
    /// Of `bits`; below 8.
    count: u32,
}

impl Bits<'_> {
    /// At most 56 bits.
    fn put(&mut self, bits: u64, count: u32) {
        self.bits |= bits << self.count;
        self.count += count;
        // A whole word each time costs less than to ask how much of it there is.
        self.out[self.at..self.at + 8].copy_from_slice(&self.bits.to_le_bytes());
        let whole = self.count / 8;
        self.at += whole as usize;
        self.bits >>= 8 * whole;
        self.count %= 8;
    }

    fn put_code(&mut self, code: Code) {
        self.put(code.bits.into(), code.len.into());
    }

    /// Ends the last byte, and tells where.
    fn align(self) -> usize {
        self.at + usize::from(self.count > 0)
    }
}
