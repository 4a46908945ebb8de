//! Trace files to write.

use std::str::FromStr;

/// The requested trace files, at least one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Formats {
    /// `NAME.trace.zip`.
    pub(super) zip: bool,
    /// `NAME.nettrace`.
    pub(super) nettrace: bool,
}

impl FromStr for Formats {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut formats = Self::default();
        for name in text.split(',') {
            match name.to_ascii_lowercase().as_str() {
                "zip" => formats.zip = true,
                "nettrace" => formats.nettrace = true,
                _ => {
                    return Err(
                        "expected zip, nettrace or zip,nettrace; `perfcollect convert NAME.trace.zip -o NAME.speedscope.json` exports to others",
                    );
                }
            }
        }
        Ok(formats)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_one_format_or_both() {
        let of = |zip, nettrace| Ok(Formats { zip, nettrace });
        assert_eq!("zip,nettrace".parse(), of(true, true));
        assert_eq!("NetTrace".parse(), of(false, true));
        assert_eq!("zip,zip".parse(), of(true, false));
        for bad in ["", "zip,", "speedscope"] {
            assert!(bad.parse::<Formats>().is_err(), "{bad}");
        }
    }
}
