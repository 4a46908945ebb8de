//! Bounds the time to evaluate the unwind rule of an address.
//!
//! A rule is a program: instructions up to the address, and expressions, which may contain loops.

use gimli::{
    BaseAddresses, CallFrameInstruction, CallFrameInstructionIter, CieOrFde, EhFrame, EhFrameHdr,
    EhFrameOffset, Encoding, EndianSlice, FrameDescriptionEntry, LittleEndian, Operation,
    RunTimeEndian, UnwindSection,
};

use super::cie::{has_small_cie, has_small_cies};
use super::unwind::{Section, UnwindSections};

/// Limit of the unwind information of a function (FDE), and of what functions share (CIE).
///
/// The longest FDE of rustc has 34 KB, that of most libraries less than 1 KB.
pub(super) const MAX_ENTRY_BYTES: usize = 64 << 10;
/// Size of addresses on x86-64.
const ADDRESS_BYTES: u8 = 8;
pub(super) const LITTLE: RunTimeEndian = RunTimeEndian::Little;

pub(super) type Slice<'a> = EndianSlice<'a, LittleEndian>;

impl UnwindSections {
    /// Returns the size of what is evaluated for an address of an x86-64 file, 0 if it has no rule.
    ///
    /// Returns `None` if the time to evaluate it is not bounded: it exceeds 64 KiB, or expressions
    /// have branches, which compilers do not generate. With an `.eh_frame_hdr`, the result is for
    /// the rule that this has for the address; else it is for the longest rule of the file.
    #[must_use]
    pub fn rule_bytes(&self, address: u64) -> Option<usize> {
        let bases = self.bases();
        match (&self.eh_frame, &self.eh_frame_hdr) {
            (Some(section), Some(table)) => {
                let eh_frame = eh_frame_of(section);
                let Some(offset) = fde_offset(table, &bases, address) else {
                    return Some(0);
                };
                if !has_small_cie(&section.data, LITTLE, offset.0) {
                    return None;
                }
                let fde = eh_frame.fde_from_offset(&bases, offset, EhFrame::cie_from_offset);
                fde.map_or(Some(0), |fde| bytes_of(&eh_frame, &bases, &fde))
            }
            (Some(section), None) => has_small_cies(&section.data, LITTLE, false)
                .then(|| longest(&eh_frame_of(section), &bases))?,
            (None, _) => Some(0),
        }
    }

    pub(super) fn bases(&self) -> BaseAddresses {
        let start = |section: &Option<Section>| section.as_ref().map_or(0, |found| found.address);
        BaseAddresses::default()
            .set_eh_frame(start(&self.eh_frame))
            .set_eh_frame_hdr(start(&self.eh_frame_hdr))
            .set_text(self.text_range.as_ref().map_or(0, |range| range.start))
            .set_got(self.got_range.as_ref().map_or(0, |range| range.start))
    }
}

pub(super) fn eh_frame_of(section: &Section) -> EhFrame<Slice<'_>> {
    let mut eh_frame = EhFrame::new(&section.data, LittleEndian);
    eh_frame.set_address_size(ADDRESS_BYTES);
    eh_frame
}

/// Returns the offset of the unwind information that the table has for an address, if it is valid.
pub(super) fn fde_offset(
    table: &Section,
    bases: &BaseAddresses,
    address: u64,
) -> Option<EhFrameOffset> {
    let header = EhFrameHdr::new(&table.data, LittleEndian);
    let header = header.parse(bases, ADDRESS_BYTES).ok()?;
    let table = header.table()?;
    table
        .pointer_to_offset(table.lookup(address, bases).ok()?)
        .ok()
}

/// Returns the size of the longest rule up to the first corrupt one, if all are bounded.
fn longest<'a, S: UnwindSection<Slice<'a>>>(section: &S, bases: &BaseAddresses) -> Option<usize> {
    let mut entries = section.entries(bases);
    let mut longest = 0;
    while let Ok(Some(entry)) = entries.next() {
        let CieOrFde::Fde(fde) = entry else { continue };
        let Ok(fde) = fde.parse(S::cie_from_offset) else {
            break;
        };
        longest = longest.max(bytes_of(section, bases, &fde)?);
    }
    Some(longest)
}

fn bytes_of<'a, S: UnwindSection<Slice<'a>>>(
    section: &S,
    bases: &BaseAddresses,
    fde: &FrameDescriptionEntry<Slice<'a>>,
) -> Option<usize> {
    let (cie, encoding) = (fde.cie(), fde.cie().encoding());
    let sizes = [cie.entry_len(), fde.entry_len()];
    let is_bounded = sizes.iter().all(|&size| size <= MAX_ENTRY_BYTES)
        && is_straight(section, cie.instructions(section, bases), encoding)
        && is_straight(section, fde.instructions(section, bases), encoding);
    is_bounded.then(|| sizes.iter().sum())
}

/// Returns whether no expression branches. A branch may lead into the middle of an operation, so
/// the forward ones could make a loop too.
fn is_straight<'a, S: UnwindSection<Slice<'a>>>(
    section: &S,
    mut instructions: CallFrameInstructionIter<'_, Slice<'a>>,
    encoding: Encoding,
) -> bool {
    while let Ok(Some(instruction)) = instructions.next() {
        let (CallFrameInstruction::DefCfaExpression { expression }
        | CallFrameInstruction::Expression { expression, .. }
        | CallFrameInstruction::ValExpression { expression, .. }) = instruction
        else {
            continue;
        };
        let Ok(expression) = expression.get(section) else {
            return false;
        };
        let mut operations = expression.operations(encoding);
        while let Ok(Some(operation)) = operations.next() {
            if matches!(operation, Operation::Skip { .. } | Operation::Bra { .. }) {
                return false;
            }
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    const CIE: &[u8] = b"\x14\0\0\0\0\0\0\0\x01zR\0\x01\x78\x10\x01\x1b\x0c\x07\x08\x90\x01\0\0";

    /// A function at 0 with these instructions.
    fn sections(instructions: &[u8]) -> UnwindSections {
        let mut data = CIE.to_vec();
        data.extend((instructions.len() as u32 + 13).to_le_bytes());
        data.extend(28_u32.to_le_bytes());
        data.extend((-32_i32).to_le_bytes()); // start, relative to this position
        data.extend(16_u32.to_le_bytes());
        data.push(0); // augmentation
        data.extend(instructions);
        data.extend([0; 4]);
        UnwindSections {
            eh_frame: Some(Section {
                address: 0,
                data: data.into(),
            }),
            ..UnwindSections::default()
        }
    }

    /// The same with a search table, whose only row is the function.
    fn with_table(mut sections: UnwindSections) -> UnwindSections {
        let mut data = vec![1, 0x1b, 0x03, 0x3b];
        let address = 0x10_0000_i32;
        data.extend((-address - 4).to_le_bytes());
        data.extend(1_u32.to_le_bytes());
        data.extend((-address).to_le_bytes());
        data.extend((24 - address).to_le_bytes());
        sections.eh_frame_hdr = Some(Section {
            address: address as u64,
            data: data.into(),
        });
        sections
    }

    #[test]
    fn rejects_rules_whose_time_is_not_bounded() {
        let loop_of_one = [0x0f, 3, 0x2f, 0xfd, 0xff];
        let forward = [0x16, 6, 6, 0x0a, 0x28, 0, 0x28, 1, 0];
        let long = [0; MAX_ENTRY_BYTES];
        for instructions in [&loop_of_one[..], &forward, &long] {
            let sections = sections(instructions);
            assert_eq!(sections.rule_bytes(8), None);
            assert_eq!(with_table(sections).rule_bytes(8), None);
        }
        let plt = [
            0x0f, 11, 0x77, 8, 0x80, 0, 0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24, 0x22,
        ];
        let sections = sections(&plt);
        assert_eq!(sections.rule_bytes(8), Some(0x14 + 13 + plt.len()));
        assert_eq!(
            with_table(sections).rule_bytes(8),
            Some(0x14 + 13 + plt.len())
        );
        assert_eq!(UnwindSections::default().rule_bytes(8), Some(0));
    }
}
