//! Which of several names for one address to show.

/// Which of several names of one function to take.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Aliases {
    /// A global name before a local one, that before a weak one; then the one with fewer leading underscores.
    #[default]
    Plain,
    /// The same, then the longer one, versions included: what perf prints.
    AsPerf,
}

/// How a symbol binds, best name first.
///
/// A global name is what the authors call a function by; a local one at the same address is a section start
/// or a helper's label; a weak one is an alias for other libraries to override. perf chooses alike
/// (tools/perf/util/symbol.c, `choose_best_symbol`), with global before local and not weak before weak.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Binding {
    Global,
    Local,
    Weak,
}

impl Binding {
    /// The rank for [`crate::table::SymbolEntry::rank`]: the binding, then fewer leading underscores
    /// (`malloc` before `__libc_malloc`), then what `aliases` says.
    pub(crate) fn rank(self, name: &[u8], aliases: Aliases) -> u32 {
        const MOST_UNDERSCORES: usize = 15;
        let of_mangling = match aliases {
            // perf has demangled the names when it chooses.
            Aliases::AsPerf if name.starts_with(b"_Z") || name.starts_with(b"_R") => 1,
            _ => 0,
        };
        let underscores = name
            .iter()
            .skip(of_mangling)
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
    fn binding_counts_before_underscores() {
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
