//! Addresses as `perf script` prints them.

/// Appends an address in 16 columns after a separator.
pub(super) fn put_address<const SEPARATOR: u8>(address: u64, text: &mut Vec<u8>) {
    let mut columns = [b' '; 17];
    columns[0] = SEPARATOR;
    let (mut rest, mut at) = (address, columns.len());
    while rest >= 0x10 {
        at -= 2;
        columns[at..at + 2].copy_from_slice(&HEX[(rest & 0xff) as usize]);
        rest >>= 8;
    }
    if rest > 0 || address == 0 {
        columns[at - 1] = HEX[rest as usize][1];
    }
    text.extend_from_slice(&columns);
}

/// The two digits of each byte.
const HEX: [[u8; 2]; 256] = {
    let digits = b"0123456789abcdef";
    let mut pairs = [[0; 2]; 256];
    let mut byte = 0;
    while byte < 256 {
        pairs[byte] = [digits[byte >> 4], digits[byte & 15]];
        byte += 1;
    }
    pairs
};
