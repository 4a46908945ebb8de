//! Headers of code blocks, which the runtime stores with the code.
//!
//! ```text
//! start-8          pointer to the header; 0..15: not a method but a block of stubs of that kind
//! header           RealCodeHeader: ... MethodDesc, u32 n, RUNTIME_FUNCTION[n]: the method, then its funclets
//! RUNTIME_FUNCTION u32 begin, u32 end, u32 UNWIND_INFO, all from one base = start - begin of the first
//! ```

use super::contract::Contract;
use super::execution_manager::MAX_METHOD_BYTES;
use super::memory::{Memory, Structure};
use super::runtime_error::CodeLookupError;
use super::stub_kind::StubKind;

/// Lowest value that is a pointer. Smaller values are kinds of stub blocks (`StubCodeBlockKind`).
const FIRST_HEADER: u64 = 16;
/// Lowest address of mapped memory.
const LOWEST_ADDRESS: u64 = 0x1_0000;
/// Limit on the functions of one method: its body and a funclet for each handler.
const MAX_FUNCTIONS: u32 = 4096;
/// Size of a RUNTIME_FUNCTION.
const FUNCTION_BYTES: usize = 12;

/// A contiguous range of code with its unwind information (`RUNTIME_FUNCTION`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FunctionEntry {
    /// The first address.
    pub begin: u64,
    /// The exclusive end address.
    pub end: u64,
    /// The address of the `UNWIND_INFO`.
    pub unwind_info: u64,
}

/// A compiled method.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Method {
    /// The identity of the method.
    pub key: MethodKey,
    /// The functions, sorted by address.
    functions: Box<[FunctionEntry]>,
}

/// Identity of a compiled method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MethodKey {
    /// The first address of the code.
    pub start: u64,
    /// The address of the runtime's `MethodDesc`.
    pub method_desc: u64,
}

/// A block of a code heap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum CodeBlock {
    Method(Method),
    Stubs(StubKind),
}

impl CodeBlock {
    /// Reads and checks the block at an address.
    ///
    /// # Errors
    /// The block is not readable or inconsistent, which may be temporary.
    pub(super) fn read(
        memory: &impl Memory,
        contract: &Contract,
        start: u64,
    ) -> Result<Self, CodeLookupError> {
        let at = start.checked_sub(8);
        let header = memory.u64(at.ok_or(CodeLookupError::NoMethod(start))?)?;
        if header < FIRST_HEADER {
            return Ok(Self::Stubs(StubKind::from_code(header as u32)));
        }
        Method::read(memory, contract, start, header).map(Self::Method)
    }
}

impl Method {
    fn read(
        memory: &impl Memory,
        contract: &Contract,
        start: u64,
        at: u64,
    ) -> Result<Self, CodeLookupError> {
        if at < LOWEST_ADDRESS {
            return Err(CodeLookupError::Header { start, found: at });
        }
        let fields = &contract.header;
        let header = Structure::new(memory, at);
        let method_desc = header.u64(fields.method_desc)?;
        let count = header.u32(fields.unwind_info_count)?;
        if !(1..=MAX_FUNCTIONS).contains(&count) {
            return Err(CodeLookupError::FunctionCount {
                start,
                count,
                limit: MAX_FUNCTIONS,
            });
        }
        let mut raw = vec![0; count as usize * FUNCTION_BYTES];
        header.read_exact(fields.unwind_infos, &mut raw)?;
        let (raw, _) = raw.as_chunks::<FUNCTION_BYTES>();
        let functions = functions(raw, start).ok_or(CodeLookupError::Functions(start))?;
        Ok(Self {
            key: MethodKey { start, method_desc },
            functions,
        })
    }

    /// Returns the exclusive end address.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.functions
            .last()
            .map_or(self.key.start, |last| last.end)
    }

    /// Returns the function of the method that contains an address.
    #[must_use]
    pub fn function_at(&self, address: u64) -> Option<&FunctionEntry> {
        let index = self.functions.partition_point(|f| f.end <= address);
        self.functions.get(index).filter(|f| f.begin <= address)
    }
}

fn field_value(raw: &[u8; FUNCTION_BYTES], index: usize) -> u32 {
    let (fields, _) = raw.as_chunks::<4>();
    fields.get(index).copied().map_or(0, u32::from_le_bytes)
}

/// Decodes the functions of the method at `start`. Returns `None` if they are inconsistent.
fn functions(raw: &[[u8; FUNCTION_BYTES]], start: u64) -> Option<Box<[FunctionEntry]>> {
    let base = start.checked_sub(u64::from(field_value(raw.first()?, 0)))?;
    let functions: Option<Box<[_]>> = raw.iter().map(|raw| function(raw, base)).collect();
    functions.filter(|functions| {
        functions
            .windows(2)
            .all(|pair| matches!(pair, [a, b] if a.end <= b.begin))
    })
}

fn function(raw: &[u8; FUNCTION_BYTES], base: u64) -> Option<FunctionEntry> {
    let address = |index| base.checked_add(u64::from(field_value(raw, index)));
    let function = FunctionEntry {
        begin: address(0)?,
        end: address(1)?,
        unwind_info: address(2)?,
    };
    let size = function.end.checked_sub(function.begin)?;
    (1..MAX_METHOD_BYTES).contains(&size).then_some(function)
}

#[cfg(test)]
mod tests {
    use super::super::execution_manager::tests::Bytes;
    use super::*;
    use crate::dotnet::contract::DOTNET_8;

    const START: u64 = 0x2_0100;
    const HEADER: u64 = 0x3_0000;

    fn image(functions: &[[u32; 3]]) -> Bytes {
        let mut bytes = Bytes(Vec::new());
        bytes.put(START - 8, HEADER);
        bytes.put(HEADER + 24, 0x7777);
        bytes.put(HEADER + 32, functions.len() as u64);
        for (at, field) in (HEADER + 36..).step_by(4).zip(functions.iter().flatten()) {
            bytes.put_bytes(at, &field.to_le_bytes());
        }
        bytes
    }

    fn read(bytes: &Bytes) -> Result<CodeBlock, CodeLookupError> {
        CodeBlock::read(&bytes.memory(), &DOTNET_8, START)
    }

    #[test]
    fn reads_a_method_and_its_funclet() {
        let bytes = image(&[[0x100, 0x140, 0x180], [0x140, 0x150, 0x190]]);
        let Ok(CodeBlock::Method(method)) = read(&bytes) else {
            panic!("no method");
        };
        assert_eq!((method.key.start, method.key.method_desc), (START, 0x7777));
        let begin = |address| method.function_at(address).map(|f| f.begin);
        assert_eq!(begin(START), Some(START));
        assert_eq!(begin(START + 0x3f), Some(START));
        assert_eq!(begin(START + 0x40), Some(START + 0x40));
        assert_eq!(begin(START + 0x50), None);
        assert_eq!(begin(START - 1), None);
        assert_eq!(method.function_at(START).unwrap().unwind_info, START + 0x80);
    }

    #[test]
    fn rejects_inconsistent_headers() {
        for functions in [
            &[][..],
            &[[0x100, 0x100, 0]],
            &[[0x100, 0xff, 0]],
            &[[0x100, 0x140, 0], [0x13f, 0x150, 0]],
            &[[0x3_0000, 0x3_0010, 0]],
            &[[0x100, 0x0200_0000, 0]],
        ] {
            let result = read(&image(functions));
            let is_rejected = match functions {
                [] => matches!(result, Err(CodeLookupError::FunctionCount { count: 0, .. })),
                _ => matches!(result, Err(CodeLookupError::Functions(START))),
            };
            assert!(is_rejected, "{functions:x?}: {result:?}");
        }
        let mut many = image(&[[0x100, 0x140, 0x180]]);
        many.put(HEADER + 32, 5000);
        let error = read(&many).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the method at 0x20100 has 5000 functions, expected 1 to 4096"
        );
        many.put(START - 8, 0x4000);
        assert!(matches!(
            read(&many),
            Err(CodeLookupError::Header { found: 0x4000, .. })
        ));
        many.put(START - 8, 3);
        let stubs = CodeBlock::Stubs(StubKind::DynamicHelper);
        assert_eq!(read(&many).unwrap(), stubs);
    }
}
