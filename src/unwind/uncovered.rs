//! Code of ELF files without unwind information, and the rules that an analysis or a function table
//! has for it.

use std::collections::BTreeMap;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use perfcollect_symbols::symbolizer::Symbolizer;
use rustc_hash::FxHashMap;

use super::analysis::{Analyst, Finding, Row, Waiting};
use super::covered_code::CoveredCode;
use super::module::{Coverage, ElfModule};
use super::modules::Modules;
use super::owner_time::OwnerTime;
use crate::machine::{Content, FileTable};
use crate::trace::ModuleId;

/// Maximum number of cached sources. The cache is cleared when it is full.
const MAX_SOURCES: usize = 1 << 14;
/// Maximum number of cached return addresses. The cache is cleared when it is full.
const MAX_CALLS: usize = 1 << 14;
/// Maximum number of findings near instructions, about. They are forgotten when there are more.
const MAX_NEAR: usize = 1 << 14;
/// Longest call instruction that compilers use: opcode, ModRM, SIB, 4 bytes, after a REX prefix.
pub(super) const MAX_CALL_BYTES: usize = 8;

/// `syscall`.
const SYSTEM_CALL: [u8; 2] = [0x0f, 0x05];
/// Opcode of a call of an address.
const CALL: u8 = 0xe8;

/// How to unwind an instruction of an ELF file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// By the unwind information of the file.
    UnwindInformation,
    /// By the result of an analysis, by the `.debug_frame` or by the function table of the file.
    Analysis(Finding),
    /// By the frame pointer: nothing is known.
    None,
}

/// Checked findings of code near instructions that were analyzed.
#[derive(Default)]
struct Near {
    /// Exclusive end and finding of consecutive instructions, by file and their start.
    rows: BTreeMap<(ModuleId, u64), (u64, Finding)>,
}

impl Near {
    fn get(&self, id: ModuleId, svma: u64) -> Option<Finding> {
        let rows = self.rows.range((id, 0)..=(id, svma));
        let (_, (end, finding)) = rows.last()?;
        (svma < *end).then_some(*finding)
    }

    fn add(&mut self, id: ModuleId, rows: Vec<Row>) {
        if self.rows.len() >= MAX_NEAR {
            self.rows.clear();
        }
        let rows = rows.into_iter();
        self.rows
            .extend(rows.map(|row| ((id, row.start), (row.end, row.finding))));
    }
}

/// Sources of unwind rules by instruction.
#[derive(Default)]
pub(super) struct Uncovered {
    /// Instructions that have nothing but unwind information.
    covered: CoveredCode,
    /// Sources of the others.
    sources: FxHashMap<(ModuleId, u64), Source>,
    /// Analyzes files that may take any time, and the others.
    analysts: [Analyst; 2],
    near: Near,
    #[cfg(test)]
    hides: bool,
    /// Whether an analysis was not ready.
    is_pending: bool,
    /// Whether a call precedes an address.
    calls: FxHashMap<(ModuleId, u64), bool>,
}

impl Uncovered {
    /// Acts as if no file had unwind information.
    #[cfg(test)]
    pub(super) fn hide_unwind_information(&mut self) {
        self.hides = true;
        for analyst in &mut self.analysts {
            analyst.hide_unwind_information();
        }
    }

    /// Changes where debug files are searched.
    pub(super) fn set_symbolizer(&mut self, symbolizer: &Arc<Symbolizer>) {
        for analyst in &mut self.analysts {
            analyst.set_symbolizer(symbolizer.clone());
        }
    }

    /// Changes how long it waits for analyses.
    pub(super) fn set_waiting(&mut self, waiting: Waiting) {
        for analyst in &mut self.analysts {
            analyst.set_waiting(waiting);
        }
    }

    /// Returns whether an analysis was not ready since the last call.
    pub(super) fn take_pending(&mut self) -> bool {
        std::mem::take(&mut self.is_pending)
    }

    /// Returns whether an instruction is known to be unwound by the unwind information of its file,
    /// and by nothing else.
    #[inline]
    pub(super) fn is_covered(&self, place: (ModuleId, u64)) -> bool {
        self.covered.has(place)
    }

    /// Returns how to unwind an instruction.
    pub(super) fn source(
        &mut self,
        (id, svma): (ModuleId, u64),
        files: &FileTable,
        modules: &mut Modules,
        time: &mut OwnerTime,
    ) -> Source {
        if self.is_covered((id, svma)) {
            return Source::UnwindInformation;
        }
        if let Some(source) = self.sources.get(&(id, svma)) {
            return *source;
        }
        let file = files.file(id);
        let Some(coverage) = modules.coverage(id, file, svma, time) else {
            return Source::UnwindInformation;
        };
        #[cfg(test)]
        let coverage = match coverage {
            Coverage::UnwindInformation if self.hides => Coverage::None,
            coverage => coverage,
        };
        let source = match (coverage, &file.content) {
            (Coverage::FunctionTable(finding), _) => Source::Analysis(finding),
            (Coverage::None, Content::File(_)) => match self.query((id, svma), files, modules) {
                Some(finding) => finding.map_or(Source::None, Source::Analysis),
                None => return Source::None,
            },
            _ => Source::UnwindInformation,
        };
        let has_no_other = |module: &ElfModule| module.instruction_rule(svma).is_none();
        if source == Source::UnwindInformation
            && modules.read(id, file, time).is_some_and(has_no_other)
        {
            self.covered.add((id, svma));
            return source;
        }
        if self.sources.len() >= MAX_SOURCES {
            self.sources.clear();
        }
        self.sources.insert((id, svma), source);
        source
    }

    /// Returns what the analysis of an instruction shows, also if unwind information describes it.
    pub(super) fn analyzed(
        &mut self,
        (id, svma): (ModuleId, u64),
        files: &FileTable,
        modules: &Modules,
    ) -> Option<Finding> {
        match files.file(id).content {
            Content::File(_) => self.query((id, svma), files, modules)?,
            _ => None,
        }
    }

    /// Queries the analysis of an instruction. Returns `None` if there is no answer yet.
    fn query(
        &mut self,
        (id, svma): (ModuleId, u64),
        files: &FileTable,
        modules: &Modules,
    ) -> Option<Option<Finding>> {
        if let Some(finding) = self.near.get(id, svma) {
            return Some(Some(finding));
        }
        let [trusted, others] = &mut self.analysts;
        let analyst = match modules.owner(id) {
            None => trusted,
            Some(_) => others,
        };
        let answer = analyst.query((id, svma), || files.shared(id));
        self.is_pending |= answer.is_none();
        let answer = answer?;
        self.near.add(id, answer.near);
        Some(answer.finding)
    }

    /// Returns whether a call precedes the code at an address, which is at an offset in the file.
    pub(super) fn follows_call(
        &mut self,
        place: (ModuleId, u64),
        content: &Content,
        offset: u64,
    ) -> bool {
        let Content::File(file) = content else {
            return true;
        };
        if self.calls.len() >= MAX_CALLS {
            self.calls.clear();
        }
        *self.calls.entry(place).or_insert_with(|| {
            let mut code = [0; MAX_CALL_BYTES];
            let length = offset.min(MAX_CALL_BYTES as u64) as usize;
            let code = &mut code[MAX_CALL_BYTES - length..];
            file.read_exact_at(code, offset - length as u64).is_ok() && ends_with_call(code)
        })
    }
}

/// Returns the bytes before an offset of a file.
pub(super) fn code_before<const BYTES: usize>(
    content: &Content,
    offset: u64,
) -> Option<[u8; BYTES]> {
    let Content::File(file) = content else {
        return None;
    };
    let mut code = [0; BYTES];
    let start = offset.checked_sub(BYTES as u64)?;
    file.read_exact_at(&mut code, start).is_ok().then_some(code)
}

/// Returns whether a system call precedes the code at a file offset.
pub(super) fn follows_system_call(content: &Content, offset: u64) -> bool {
    code_before(content, offset) == Some(SYSTEM_CALL)
}

/// Returns how far a call of an address jumps, from its end. Returns `None` if the code does not end
/// with one.
pub(super) fn called_distance(code: &[u8]) -> Option<i64> {
    let [.., CALL, a, b, c, d] = *code else {
        return None;
    };
    Some(i32::from_le_bytes([a, b, c, d]).into())
}

/// Returns whether code ends with a call instruction (Intel SDM, volume 2, "CALL").
///
/// ```text
/// e8 rel32                    call of an address
/// [rex] ff /2 [sib] [disp]    call through a register or memory
/// ```
pub(super) fn ends_with_call(code: &[u8]) -> bool {
    let before = |bytes: usize| code.len().checked_sub(bytes).and_then(|at| code.get(at..));
    if before(5).is_some_and(|call| call.first() == Some(&CALL)) {
        return true;
    }
    (2..=7).any(|length| {
        let Some(&[0xff, modrm, ref rest @ ..]) = before(length) else {
            return false;
        };
        let (mode, memory) = (modrm >> 6, modrm & 7);
        let has_sib = mode != 3 && memory == 4;
        let displacement = match mode {
            0 if memory == 5 || has_sib && rest.first().is_some_and(|sib| sib & 7 == 5) => 4,
            1 => 1,
            2 => 4,
            _ => 0,
        };
        modrm >> 3 & 7 == 2 && rest.len() == usize::from(has_sib) + displacement
    })
}

#[cfg(test)]
mod tests {
    use super::{called_distance, ends_with_call};

    #[test]
    fn finds_distance_of_call() {
        let call = [0x90, 0x90, 0x90, 0xe8, 0xf0, 0xff, 0xff, 0xff];
        assert_eq!(called_distance(&call), Some(-16));
        assert_eq!(called_distance(&[0x90; 8]), None);
    }

    #[test]
    fn recognizes_calls() {
        for call in [
            &[0xe8, 1, 2, 3, 4][..],
            &[0xff, 0xd0],                               // call rax
            &[0x41, 0xff, 0xd4],                         // call r12
            &[0xff, 0x15, 1, 2, 3, 4],                   // call [rip+n]
            &[0xff, 0x50, 8],                            // call [rax+8]
            &[0xff, 0x14, 0xc8],                         // call [rax+rcx*8]
            &[0xff, 0x14, 0x25, 1, 2, 3, 4],             // call [n]
            &[0xff, 0x94, 0xc3, 1, 2, 3, 4],             // call [rbx+rax*8+n]
            &[0x90, 0x90, 0x90, 0xff, 0x93, 1, 2, 3, 4], // call [rbx+n]
        ] {
            assert!(ends_with_call(call), "{call:x?}");
        }
        for other in [
            &[][..],
            &[0xe9, 1, 2, 3, 4],
            &[0xff, 0xe0],
            &[0xff, 0x25, 1, 2, 3, 4],
            &[0xff, 0x50, 8, 0x90],
        ] {
            assert!(!ends_with_call(other), "{other:x?}");
        }
    }
}
