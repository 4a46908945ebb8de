//! The version of a runtime, from the path of its library or from a string in its file.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// The framework's directory. Its subdirectories are named after versions.
const FRAMEWORK: &str = "Microsoft.NETCore.App";
/// The bytes before the version in the runtime's file.
const MARKER: &[u8] = b"@(#)Version ";
/// Limit of the search. The marker is at 7 MB of `libcoreclr.so`, and at 12 MB of single-file
/// programs of .NET 10.
const SEARCHED_BYTES: u64 = 64 << 20;
const STEP_BYTES: usize = 1 << 20;
/// Size limit of a version string.
const MAX_VERSION_BYTES: usize = 32;

/// Returns the version in a path like
/// `/usr/lib/dotnet/shared/Microsoft.NETCore.App/8.0.4/libcoreclr.so`.
#[must_use]
pub fn from_path(library: &Path) -> Option<&str> {
    let version = library.parent()?;
    (version.parent()?.file_name()? == FRAMEWORK).then_some(())?;
    version.file_name()?.to_str()
}

/// Returns the version in a file that contains a runtime.
pub(super) fn from_file(file: &File) -> Option<String> {
    let overlap = MARKER.len() + MAX_VERSION_BYTES;
    let mut bytes = vec![0; STEP_BYTES + overlap];
    let mut offset = 0;
    while offset < SEARCHED_BYTES {
        let read = read_at(file, &mut bytes, offset);
        let bytes = bytes.get(..read)?;
        let mut windows = bytes.windows(MARKER.len());
        if let Some(marker) = windows.position(|window| window == MARKER) {
            return parse(bytes.get(marker + MARKER.len()..)?);
        }
        if read <= overlap {
            return None;
        }
        offset += (read - overlap) as u64;
    }
    None
}

fn read_at(file: &File, buffer: &mut [u8], offset: u64) -> usize {
    let mut filled = 0;
    while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, offset + filled as u64) {
            Ok(read) if read > 0 => filled += read,
            _ => break,
        }
    }
    filled
}

/// Parses a file version: `8.0.424.16909` is 8.0.4, built in 2024.
///
/// The third component is the patch and two digits of the year. Before .NET 5 the scheme was
/// different: 4.700 is 3.0 or 3.1.
fn parse(bytes: &[u8]) -> Option<String> {
    let bytes = bytes.get(..MAX_VERSION_BYTES.min(bytes.len()))?;
    let end = bytes.iter().position(|&byte| byte == b' ')?;
    let version = std::str::from_utf8(bytes.get(..end)?).ok()?;
    let mut components = version.split('.').map(str::parse::<u32>);
    let (major, minor, third) = (
        components.next()?.ok()?,
        components.next()?.ok()?,
        components.next()?.ok()?,
    );
    Some(match (major, minor) {
        (4, 700) => "3".to_owned(),
        _ => format!("{major}.{minor}.{}", third / 100),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_file_versions_and_paths() {
        let parse = |version: &str| parse(version.as_bytes());
        assert_eq!(parse("8.0.424.16909 @Commit: 2d7e").unwrap(), "8.0.4");
        assert_eq!(parse("10.0.1226.42308 @Commit").unwrap(), "10.0.12");
        assert_eq!(parse("4.700.22.11601 @Commit").unwrap(), "3");
        assert_eq!(parse("8.0 @"), None);
        assert_eq!(parse("8.0.424.16909"), None);
        assert_eq!(parse("a.b.c.d "), None);
        let path = Path::new("/x/shared/Microsoft.NETCore.App/3.1.23/libcoreclr.so");
        assert_eq!(from_path(path), Some("3.1.23"));
        assert_eq!(from_path(Path::new("/app/libcoreclr.so")), None);
        assert_eq!(from_path(Path::new("libcoreclr.so")), None);
    }

    #[test]
    fn finds_marker_across_read_boundaries() {
        for at in [0, 5, STEP_BYTES - 20, STEP_BYTES + 3, 3 * STEP_BYTES] {
            let mut bytes = vec![b'@'; at];
            bytes.extend(b"@(#)Version 9.0.725.31616 @Commit: a9cf");
            let mut file = tempfile::tempfile().unwrap();
            std::io::Write::write_all(&mut file, &bytes).unwrap();
            assert_eq!(from_file(&file).as_deref(), Some("9.0.7"), "{at}");
        }
        assert_eq!(from_file(&tempfile::tempfile().unwrap()), None);
    }
}
