//! Value of the option `-format`.

use std::str::FromStr;

use crate::output::exports::Export;

/// Maximum number of exports beside a trace.
const MAX_EXPORTS: usize = 16;

/// The files of a trace to write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Formats {
    /// `NAME.trace.zip`.
    pub(super) zip: bool,
    /// `NAME.nettrace`.
    pub(super) nettrace: bool,
    exports: [Option<Export>; MAX_EXPORTS],
}

impl Formats {
    /// Returns the files to write for other viewers.
    pub(super) fn exports(self) -> impl Iterator<Item = Export> {
        self.exports.into_iter().flatten()
    }

    /// Adds an export. Returns `None` if there are too many.
    fn add(&mut self, export: Export) -> Option<()> {
        if !self.exports.contains(&Some(export)) {
            *self.exports.iter_mut().find(|place| place.is_none())? = Some(export);
        }
        Some(())
    }
}

impl FromStr for Formats {
    type Err = &'static str;

    /// Without a trace in the list, both are written, as dotnet-trace does.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const EXPECTED: &str = "expected a list of zip and nettrace, and of speedscope, pprof, firefox, chromium, folded and csv";
        let mut formats = Self::default();
        for name in text.split(',') {
            match name.to_ascii_lowercase().as_str() {
                "zip" => formats.zip = true,
                "nettrace" => formats.nettrace = true,
                "svg" => {
                    return Err("NAME.flamegraph.svg is always written; expected other formats");
                }
                other => Export::named(other)
                    .and_then(|export| formats.add(export))
                    .ok_or(EXPECTED)?,
            }
        }
        if !formats.zip && !formats.nettrace {
            (formats.zip, formats.nettrace) = (true, true);
        }
        Ok(formats)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> (bool, bool, Vec<&'static str>) {
        let formats: Formats = text.parse().unwrap();
        let suffixes = formats.exports().map(Export::suffix).collect();
        (formats.zip, formats.nettrace, suffixes)
    }

    #[test]
    fn accepts_traces_and_exports() {
        assert_eq!(of("zip,nettrace"), (true, true, vec![]));
        assert_eq!(of("NetTrace"), (false, true, vec![]));
        assert_eq!(of("zip,zip"), (true, false, vec![]));
        assert_eq!(of("Speedscope"), (true, true, vec![".speedscope.json"]));
        let exports = vec![".pb.gz", ".firefox.json", ".chromium.json.gz"];
        let text = "pb.gz,zip,firefox,pb.gz,chromium.json.gz";
        assert_eq!(of(text), (true, false, exports));
        for bad in ["", "zip,", "json", "svg", ".csv", "perf"] {
            assert!(bad.parse::<Formats>().is_err(), "{bad}");
        }
    }
}
