//! Which of several names for one address to show.

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
    /// The rank for [`crate::table::Entry::rank`]: the binding, then fewer leading underscores
    /// (`malloc` before `__libc_malloc`).
    pub(crate) fn rank(self, name: &[u8]) -> u8 {
        const MOST_UNDERSCORES: usize = 15;
        let underscores = name
            .iter()
            .take(MOST_UNDERSCORES)
            .take_while(|&&byte| byte == b'_')
            .count();
        (self as u8) << 4 | underscores as u8
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
        names.sort_by_key(|(binding, name)| binding.rank(name.as_bytes()));
        assert_eq!(names.map(|(_, name)| name.len()), [1, 3, 21, 1, 1]);
    }
}
