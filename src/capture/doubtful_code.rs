//! Counts stacks with doubtful callers by the code of these.

use rustc_hash::FxHashMap;

use crate::machine::Machine;
use crate::trace::{CodeAddress, Doubt, Doubts, ModuleId, Pid, ProcessId};

/// Maximum length of a name.
const MAX_NAME_CHARS: usize = 255;

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Code {
    File(ModuleId),
    Jit(ProcessId),
}

/// Indices in [`Doubts::by_code`], or `None` for code that is not listed.
#[derive(Default)]
pub(super) struct DoubtfulCallers(FxHashMap<Code, Option<usize>>);

impl DoubtfulCallers {
    /// Counts a stack of a process.
    pub(super) fn count(
        &mut self,
        doubts: &mut Doubts,
        (doubt, caller): (Doubt, CodeAddress),
        pid: Pid,
        machine: &Machine,
    ) {
        let code = match caller {
            CodeAddress::Elf(id, _) | CodeAddress::File(id, _) => Some(Code::File(id)),
            CodeAddress::Jit(process, _) => Some(Code::Jit(process)),
            CodeAddress::Kernel(_)
            | CodeAddress::Unmapped(..)
            | CodeAddress::Truncated(_)
            | CodeAddress::Blocked(_)
            | CodeAddress::Waker(_) => None,
        };
        let at = code.and_then(|code| match self.0.get(&code) {
            Some(at) => *at,
            // Only the listed code has indices.
            None if doubts.by_code.len() >= Doubts::MAX_CODE => None,
            None => {
                let at = doubts.add_code(name(code, pid, machine));
                self.0.insert(code, at);
                at
            }
        });
        doubts.count(doubt, at);
    }
}

fn name(code: Code, Pid(pid): Pid, machine: &Machine) -> String {
    let name = match code {
        Code::File(id) => {
            let path = machine.files().file(id).clean_path();
            path.file_name()
                .unwrap_or(path.as_os_str())
                .to_string_lossy()
        }
        Code::Jit(_) => return format!("JIT code of process {pid}"),
    };
    name.chars().take(MAX_NAME_CHARS).collect()
}
