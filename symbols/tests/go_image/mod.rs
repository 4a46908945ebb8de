//! Small ELF files with a function table of Go, written for each layout of the table.
//!
//! No Go compiler has written them: they are as small as a reader accepts, and have the parts that
//! differ between versions. The tests of the crate and a fuzz target share this module.
#![allow(dead_code, unreachable_pub, missing_docs)]

/// The layouts, by the first version of Go that writes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    Go1_2,
    Go1_16,
    Go1_18,
    Go1_20,
    Go1_26,
}

pub const LAYOUTS: [Layout; 5] = [
    Layout::Go1_2,
    Layout::Go1_16,
    Layout::Go1_18,
    Layout::Go1_20,
    Layout::Go1_26,
];

/// What a file has.
#[derive(Debug, Clone, Copy)]
pub struct GoImage {
    pub layout: Layout,
    /// Whether there are section headers. Without them, the table must be searched.
    pub has_sections: bool,
    /// Whether pointers are zeros that relocations set, as in position-independent files.
    pub is_relocated: bool,
    /// Whether there is a `moduledata`.
    pub has_module_data: bool,
    /// Number of additional ranges in the stack depths of the last function.
    pub added_depths: u32,
}

/// Address of the first byte of the file.
pub const BASE: u64 = 0x40_0000;
/// What entries are relative to.
pub const CODE_START: u64 = 0x50_0000;
/// Address of `main.outer`, which has the ranges that [`OUTER`] lists.
pub const OUTER_START: u64 = CODE_START + 0x10;
/// Address of `runtime.goexit`, of 16 bytes.
pub const GOEXIT_START: u64 = CODE_START + 0x50;
/// Address of `x_cgo_init`, which is not Go code and has no tables.
pub const C_START: u64 = CODE_START + 0x60;
/// Address of `runtime.mcall`, of 16 bytes, after which padding of 16 bytes ends the table.
pub const MCALL_START: u64 = CODE_START + 0x80;

/// The ranges of `main.outer`: size, index of the inlined call, file, line.
pub const OUTER: [(u32, i32, i32, i32); 4] = [
    (8, -1, 0, 10),
    (8, 0, 1, 20),
    (0x18, 1, 1, 30),
    (8, -1, 0, 11),
];
/// The stack depths of `main.outer`: size, bytes.
pub const OUTER_DEPTHS: [(u32, i32); 3] = [(4, 0), (0x28, 24), (4, 0)];
pub const FILES: [&str; 2] = ["/src/a.go", "/src/b.go"];

const TABLE_AT: usize = 0x100;
/// Stands for the address of the inlined calls until the size of the table is known.
const INLINED_CALLS: u64 = u64::MAX;
/// Number of words of `moduledata` that are written.
const MODULE_WORDS: usize = 64;

#[derive(Default)]
struct Bytes {
    bytes: Vec<u8>,
    /// Offsets of words that are addresses.
    pointers: Vec<(usize, u64)>,
}

impl Bytes {
    fn u32(&mut self, value: u32) {
        self.bytes.extend(value.to_le_bytes());
    }

    fn word(&mut self, value: u64) {
        self.bytes.extend(value.to_le_bytes());
    }

    fn pointer(&mut self, address: u64) {
        self.pointers.push((self.bytes.len(), address));
        self.word(address);
    }

    fn align(&mut self, to: usize) {
        self.bytes.resize(self.bytes.len().next_multiple_of(to), 0);
    }

    fn append(&mut self, other: &Bytes) {
        let at = self.bytes.len();
        self.bytes.extend(&other.bytes);
        let moved = other.pointers.iter().map(|&(from, to)| (at + from, to));
        self.pointers.extend(moved);
    }
}

/// Encodes values of consecutive ranges. A difference of 0 would end the table.
fn pc_values(ranges: impl IntoIterator<Item = (u32, i32)>) -> Vec<u8> {
    let mut merged: Vec<(u32, i32)> = Vec::new();
    for (size, value) in ranges {
        match merged.last_mut() {
            Some(last) if last.1 == value => last.0 += size,
            _ => merged.push((size, value)),
        }
    }
    let mut bytes = Vec::new();
    let mut before = -1_i32;
    for (size, value) in merged {
        let delta = value.wrapping_sub(before);
        varint(&mut bytes, ((delta << 1) ^ (delta >> 31)).cast_unsigned());
        varint(&mut bytes, size);
        before = value;
    }
    bytes.push(0);
    bytes
}

fn varint(bytes: &mut Vec<u8>, mut value: u32) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

struct Function {
    name: &'static str,
    start: u64,
    depths: Vec<(u32, i32)>,
    /// Size, index of the inlined call, file, line.
    ranges: Vec<(u32, i32, i32, i32)>,
    id: u8,
    flags: u8,
}

fn functions(added_depths: u32) -> Vec<Function> {
    let small = |name, start, id, flags| Function {
        name,
        start,
        depths: vec![(0x10, 0)],
        ranges: vec![(0x10, -1, 0, 7)],
        id,
        flags,
    };
    let mut mcall = small("runtime.mcall", MCALL_START, 12, 6);
    let added = (0..added_depths).map(|index| (1, (index % 2).cast_signed() * 8 + 8));
    mcall.depths.extend(added);
    vec![
        Function {
            name: "main.outer",
            start: OUTER_START,
            depths: OUTER_DEPTHS.to_vec(),
            ranges: OUTER.to_vec(),
            id: 0,
            flags: 0,
        },
        small("runtime.goexit", GOEXIT_START, 7, 5),
        Function {
            name: "x_cgo_init",
            start: C_START,
            depths: Vec::new(),
            ranges: Vec::new(),
            id: 0,
            flags: 0,
        },
        mcall,
    ]
}

impl GoImage {
    /// Returns the bytes of the file.
    pub fn bytes(&self) -> Vec<u8> {
        let layout = self.layout;
        let (mut table, parts) = self.table();
        let table_address = BASE + TABLE_AT as u64;
        table.align(16);
        let data_start = table_address + table.bytes.len() as u64;
        for (at, address) in &mut table.pointers {
            if *address == INLINED_CALLS {
                *address = data_start;
                table.bytes[*at..*at + 8].copy_from_slice(&data_start.to_le_bytes());
            }
        }
        let end_of_table = match layout {
            Layout::Go1_26 => {
                table.bytes.extend(self.inlined_calls());
                table.bytes.len()
            }
            _ => {
                let end = table.bytes.len();
                table.bytes.extend(self.inlined_calls());
                end
            }
        };
        table.align(16);

        let mut file = Bytes::default();
        file.bytes.resize(TABLE_AT, 0);
        file.append(&table);
        if self.has_module_data {
            let mut words = [0; MODULE_WORDS];
            words[0] = table_address;
            for (index, part) in [1, 4, 7, 10, 13].into_iter().zip(parts) {
                words[index] = table_address + part as u64;
            }
            words[20] = OUTER_START;
            words[22] = CODE_START;
            let index = if layout == Layout::Go1_18 { 38 } else { 40 };
            words[index] = data_start;
            if layout == Layout::Go1_26 {
                words[index + 1] = table_address + end_of_table as u64;
            }
            for word in words {
                match word {
                    0 => file.word(0),
                    address => file.pointer(address),
                }
            }
        }
        let pointers = std::mem::take(&mut file.pointers);
        let dynamic_at = file.bytes.len();
        if self.is_relocated {
            let relocations_at = dynamic_at + 3 * 16;
            for (tag, value) in [
                (7, BASE + relocations_at as u64),
                (8, pointers.len() as u64 * 24),
                (0, 0),
            ] {
                file.word(tag);
                file.word(value);
            }
            for (at, address) in pointers {
                file.bytes[at..at + 8].fill(0);
                for word in [BASE + at as u64, 8, address] {
                    file.word(word);
                }
            }
        }
        let mapped = file.bytes.len();
        let sections_at = match self.has_sections {
            true => write_sections(&mut file, end_of_table),
            false => 0,
        };
        let section_count = if self.has_sections { 3 } else { 0 };
        let dynamic = self.is_relocated.then(|| dynamic_at..dynamic_at + 3 * 16);
        write_headers(&mut file.bytes, mapped, sections_at, section_count, dynamic);
        file.bytes
    }

    /// Writes the table. Also returns the offsets of its parts.
    fn table(&self) -> (Bytes, [usize; 5]) {
        let layout = self.layout;
        let functions = functions(self.added_depths);
        let header_bytes = if layout == Layout::Go1_16 { 64 } else { 72 };
        let names = self.names(&functions);
        let units: Vec<u8> = [0, 2, 2 + FILES[0].len() as u32 + 1]
            .into_iter()
            .flat_map(u32::to_le_bytes)
            .collect();
        let files = format!("z\0{}\0{}\0", FILES[0], FILES[1]).into_bytes();
        let mut pc_data = vec![0];
        let records: Vec<Bytes> = functions
            .iter()
            .map(|function| self.record(function, &names, &mut pc_data))
            .collect();

        let names = names.join(&0);
        let sizes = [names.len() + 1, units.len(), files.len(), pc_data.len()];
        let mut parts = [header_bytes; 5];
        for (index, size) in sizes.into_iter().enumerate() {
            parts[index + 1] = (parts[index] + size).next_multiple_of(8);
        }

        let mut table = Bytes::default();
        table.u32(match layout {
            Layout::Go1_2 => 0xffff_fffb,
            Layout::Go1_16 => 0xffff_fffa,
            Layout::Go1_18 => 0xffff_fff0,
            Layout::Go1_20 | Layout::Go1_26 => 0xffff_fff1,
        });
        table.bytes.extend([0, 0, 1, 8]);
        table.word(functions.len() as u64);
        table.word(FILES.len() as u64);
        match layout {
            Layout::Go1_16 => {}
            Layout::Go1_26 => table.word(0),
            _ => table.pointer(CODE_START),
        }
        for part in parts {
            table.word(part as u64);
        }
        for (bytes, part) in [names, units, files, pc_data].iter().zip(parts) {
            table.bytes.resize(part, 0);
            table.bytes.extend(bytes);
        }
        table.bytes.resize(parts[4], 0);

        let is_old = layout == Layout::Go1_16;
        let field_bytes = if is_old { 8 } else { 4 };
        let list_bytes = ((functions.len() * 2 + 1) * field_bytes).next_multiple_of(8);
        let mut at = list_bytes;
        for (function, record) in functions.iter().zip(&records) {
            entry(&mut table, is_old, function.start);
            match is_old {
                true => table.word(at as u64),
                false => table.u32(at as u32),
            }
            at += record.bytes.len();
        }
        entry(
            &mut table,
            is_old,
            MCALL_START + 0x20 + u64::from(self.added_depths),
        );
        table.bytes.resize(parts[4] + list_bytes, 0);
        for record in &records {
            table.append(record);
        }
        (table, parts)
    }

    fn names(&self, functions: &[Function]) -> Vec<Vec<u8>> {
        let inlined = ["main.middle", "main.inner"];
        let names = functions
            .iter()
            .map(|function| function.name)
            .chain(inlined);
        names.map(|name| name.as_bytes().to_vec()).collect()
    }

    fn record(&self, function: &Function, names: &[Vec<u8>], pc_data: &mut Vec<u8>) -> Bytes {
        let mut add = |ranges: Vec<(u32, i32)>| {
            if ranges.is_empty() {
                return 0;
            }
            let at = pc_data.len();
            pc_data.extend(pc_values(ranges));
            at as u32
        };
        let depths = add(function.depths.clone());
        let [index, file, line] = [
            |range: &(u32, i32, i32, i32)| range.1,
            |range: &(u32, i32, i32, i32)| range.2,
            |range: &(u32, i32, i32, i32)| range.3,
        ]
        .map(|value| {
            add(function
                .ranges
                .iter()
                .map(|range| (range.0, value(range)))
                .collect())
        });
        let has_inlined = function.ranges.len() > 1;

        let is_old = self.layout == Layout::Go1_16;
        let mut record = Bytes::default();
        entry(&mut record, is_old, function.start);
        record.u32(name_offset(names, function.name));
        record.u32(0);
        record.u32(0);
        for offset in [depths, file, line] {
            record.u32(offset);
        }
        record.u32(if has_inlined { 3 } else { 0 });
        record.u32(1);
        if matches!(self.layout, Layout::Go1_20 | Layout::Go1_26) {
            record.u32(1);
        }
        let data_count = if has_inlined { 4 } else { 0 };
        record
            .bytes
            .extend([function.id, function.flags, 0, data_count]);
        if has_inlined {
            for offset in [0, 0, index] {
                record.u32(offset);
            }
            if is_old {
                record.align(8);
                for _ in 0..3 {
                    record.word(0);
                }
                record.pointer(INLINED_CALLS);
            } else {
                for offset in [u32::MAX, u32::MAX, u32::MAX, 0] {
                    record.u32(offset);
                }
            }
        }
        record.align(8);
        record
    }

    fn inlined_calls(&self) -> Vec<u8> {
        let names = self.names(&functions(0));
        let [middle, inner] = ["main.middle", "main.inner"].map(|name| name_offset(&names, name));
        let mut calls = Bytes::default();
        match self.layout {
            Layout::Go1_20 | Layout::Go1_26 => {
                for value in [0, middle, 0x04, 1, 0, inner, 0x0c, 1] {
                    calls.u32(value);
                }
            }
            _ => {
                let parents = [0xffff, 0];
                let calls_of = [[0, 10, middle, 0x04], [1, 20, inner, 0x0c]];
                for (parent, call) in parents.into_iter().zip(calls_of) {
                    calls.u32(parent);
                    for value in call {
                        calls.u32(value);
                    }
                }
            }
        }
        calls.bytes
    }
}

fn entry(bytes: &mut Bytes, is_old: bool, address: u64) {
    match is_old {
        true => bytes.pointer(address),
        false => bytes.u32((address - CODE_START) as u32),
    }
}

fn name_offset(names: &[Vec<u8>], name: &str) -> u32 {
    let before = names.iter().take_while(|other| *other != name.as_bytes());
    before.map(|name| name.len() as u32 + 1).sum()
}

/// Writes the null section, the table and the names of sections. Returns their offset.
fn write_sections(file: &mut Bytes, table_bytes: usize) -> u64 {
    let names_at = file.bytes.len();
    file.bytes.extend(b"\0.gopclntab\0.shstrtab\0");
    file.align(8);
    let sections_at = file.bytes.len() as u64;
    let table_address = BASE + TABLE_AT as u64;
    for (name, kind, flags, address, offset, size) in [
        (0, 0, 0, 0, 0, 0),
        (1, 1, 2, table_address, TABLE_AT, table_bytes),
        (12, 3, 0, 0, names_at, 22),
    ] {
        file.u32(name);
        file.u32(kind);
        for word in [flags, address, offset as u64, size as u64, 0, 1, 0] {
            file.word(word);
        }
    }
    sections_at
}

fn write_headers(
    file: &mut [u8],
    mapped: usize,
    sections_at: u64,
    section_count: u16,
    dynamic: Option<std::ops::Range<usize>>,
) {
    let mut header = Bytes::default();
    header
        .bytes
        .extend(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0");
    header.bytes.extend([2, 0, 62, 0]);
    header.u32(1);
    for word in [0, 64, sections_at] {
        header.word(word);
    }
    header.u32(0);
    let segment_count = 1 + u16::from(dynamic.is_some());
    let section_names = section_count.saturating_sub(1);
    for half in [64, 56, segment_count, 64, section_count, section_names] {
        header.bytes.extend(half.to_le_bytes());
    }
    let segments = [Some((1, 0..mapped)), dynamic.map(|range| (2, range))];
    for (kind, range) in segments.into_iter().flatten() {
        header.u32(kind);
        header.u32(6);
        let address = BASE + range.start as u64;
        let size = range.len() as u64;
        for word in [range.start as u64, address, address, size, size, 8] {
            header.word(word);
        }
    }
    file[..header.bytes.len()].copy_from_slice(&header.bytes);
}
