#![allow(clippy::unwrap_used)]

use crate::dwarf::{Detail, DwarfError, DwarfSections};

const TAG_COMPILE_UNIT: u8 = 0x11;
const TAG_INLINED_SUBROUTINE: u8 = 0x1d;
const TAG_SUBPROGRAM: u8 = 0x2e;
const AT_LOW_PC: u8 = 0x11;
const AT_HIGH_PC: u8 = 0x12;
const AT_RANGES: u8 = 0x55;
const FORM_ADDR: u8 = 0x01;
const FORM_DATA4: u8 = 0x06;
const FORM_SEC_OFFSET: u8 = 0x17;

/// Returns the sections of one unit. Abbreviation codes start at 1.
fn sections(abbreviations: &[&[u8]], entries: &[u8], ranges: &[u8]) -> DwarfSections {
    let mut abbrev = Vec::new();
    for (code, abbreviation) in (1..).zip(abbreviations) {
        abbrev.extend([&[code], *abbreviation, &[0, 0]].concat());
    }
    abbrev.push(0);
    // Version 4, abbreviations at 0, addresses of 8 bytes.
    let mut unit = vec![4, 0, 0, 0, 0, 0, 8];
    unit.extend(entries);
    let mut info = (unit.len() as u32).to_le_bytes().to_vec();
    info.extend(unit);
    DwarfSections::load(false, |name| {
        Ok::<_, ()>(match name {
            ".debug_abbrev" => abbrev.clone(),
            ".debug_info" => info.clone(),
            ".debug_ranges" => ranges.to_vec(),
            _ => Vec::new(),
        })
    })
    .unwrap()
}

const WITH_RANGE: [u8; 4] = [AT_LOW_PC, FORM_ADDR, AT_HIGH_PC, FORM_DATA4];
const RANGE: [u8; 12] = [0, 0x10, 0, 0, 0, 0, 0, 0, 0, 0x10, 0, 0];

#[test]
fn bounds_steps_for_endlessly_nested_inlined_functions() {
    let unit = [&[TAG_COMPILE_UNIT, 1], &WITH_RANGE[..]].concat();
    let function = [&[TAG_SUBPROGRAM, 1], &WITH_RANGE[..]].concat();
    let inlined = [TAG_INLINED_SUBROUTINE, 1];
    let mut entries = [&[1], &RANGE[..], &[2], &RANGE].concat();
    entries.resize(entries.len() + (4 << 20), 3);
    let sections = sections(&[&unit, &function, &inlined], &entries, &[]);
    let debug_info = sections.into_debug_info().unwrap();
    let result = debug_info.frames(0x1800, Detail::Functions);
    assert!(
        matches!(result, Err(DwarfError::BudgetExceeded)),
        "{result:?}"
    );
}

#[test]
fn bounds_steps_for_ranges_shared_by_thousands_of_functions() {
    let unit = [&[TAG_COMPILE_UNIT, 1], &WITH_RANGE[..]].concat();
    let function = [TAG_SUBPROGRAM, 0, AT_RANGES, FORM_SEC_OFFSET];
    let mut entries = [&[1], &RANGE[..]].concat();
    for _ in 0..100_000 {
        entries.extend([2, 0, 0, 0, 0]);
    }
    let mut ranges = Vec::new();
    for start in 0..100_000_u64 {
        // Empty ranges are skipped.
        ranges.extend([start + 1, start + 1].map(u64::to_le_bytes).concat());
    }
    let sections = sections(&[&unit, &function], &entries, &ranges);
    let debug_info = sections.into_debug_info().unwrap();
    for _ in 0..3 {
        let result = debug_info.frames(0x1800, Detail::Functions);
        assert!(
            matches!(result, Err(DwarfError::BudgetExceeded)),
            "{result:?}"
        );
    }
}

/// Each unit has a separate table, because it starts at another offset of the same abbreviations.
#[test]
fn bounds_steps_for_overlapping_abbreviation_tables() {
    let debug_info = |units: u32| {
        const MIN_ABBREVIATION: [u8; 5] = [1, TAG_COMPILE_UNIT, 0, 0, 0];
        let mut abbrev = Vec::new();
        for index in 0..2000_u16 {
            // Distinct codes, as LEB128 of three bytes.
            let code = [index as u8 | 0x80, (index >> 7) as u8 | 0x80, 1];
            abbrev.extend([&code, &MIN_ABBREVIATION[1..]].concat());
        }
        abbrev.push(0);
        let mut info = Vec::new();
        for unit in 0..units {
            let table = (unit * 7).to_le_bytes();
            info.extend([&[8, 0, 0, 0, 4, 0], &table[..], &[8, 1]].concat());
        }
        let sections = DwarfSections::load(false, |name| {
            Ok::<_, ()>(match name {
                ".debug_abbrev" => abbrev.clone(),
                ".debug_info" => info.clone(),
                _ => Vec::new(),
            })
        });
        sections.unwrap().into_debug_info().map(drop)
    };
    assert!(debug_info(2).is_ok());
    let result = debug_info(60);
    assert!(
        matches!(result, Err(DwarfError::BudgetExceeded)),
        "{result:?}"
    );
}
