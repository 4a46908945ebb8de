//! The choice among several symbols at one address.

/// The choice among several names of one function.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Aliases {
    /// Prefers global to local to weak symbols, then fewer leading underscores.
    #[default]
    Plain,
    /// Then prefers the longer name, version included, as perf does.
    AsPerf,
}

/// The binding of a symbol, in order of preference.
///
/// A global symbol is the name that the authors use. A local symbol at the same address is the
/// start of a section or a helper's label. A weak symbol is an alias that other libraries may
/// override. perf has the same order (tools/perf/util/symbol.c, `choose_best_symbol`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Binding {
    Global,
    Local,
    Weak,
}

impl Binding {
    /// Returns the rank for [`crate::table::SymbolEntry::rank`].
    ///
    /// Symbols are ranked by binding, then by fewer leading underscores (`malloc` before
    /// `__libc_malloc`), then by `aliases`.
    pub(crate) fn rank(self, name: &[u8], aliases: Aliases) -> u32 {
        const MOST_UNDERSCORES: usize = 15;
        let mangling_prefix = match aliases {
            // perf compares demangled names.
            Aliases::AsPerf if name.starts_with(b"_Z") || name.starts_with(b"_R") => 1,
            _ => 0,
        };
        let underscores = name
            .iter()
            .skip(mangling_prefix)
            .take(MOST_UNDERSCORES)
            .take_while(|&&byte| byte == b'_')
            .count();
        const LONGEST: u32 = (1 << 24) - 1;
        let rest = match aliases {
            Aliases::Plain => 0,
            Aliases::AsPerf => LONGEST.saturating_sub(name.len() as u32),
        };
        (self as u32) << 28 | (underscores as u32) << 24 | rest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_binding_before_underscores() {
        let mut names = [
            (Binding::Weak, "a"),
            (Binding::Local, "a"),
            (Binding::Global, "__a"),
            (Binding::Global, "a"),
            (Binding::Global, "____________________a"),
        ];
        names.sort_by_key(|(binding, name)| binding.rank(name.as_bytes(), Aliases::Plain));
        assert_eq!(names.map(|(_, name)| name.len()), [1, 3, 21, 1, 1]);
        let as_perf = |name: &str| Binding::Local.rank(name.as_bytes(), Aliases::AsPerf);
        assert!(as_perf("__GI___execve") < as_perf("__GI_execve"));
        assert!(as_perf("execve") < as_perf("__GI_execve"));
        assert!(as_perf("_ZN4llvm4Pass7preparevE") < as_perf("LLVMIsMultithreaded"));
        assert!(as_perf("_ZN4llvm4Pass7preparevE") < as_perf("_init"));
    }
}
