//! Which version a runtime is, from where it lies and from what is written in its file.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// The framework's folder; its own folders are versions.
const FRAMEWORK: &str = "Microsoft.NETCore.App";
/// What the runtime's file has before its version.
const MARK: &[u8] = b"@(#)Version ";
/// Where the mark is looked for. It lies at 7 MB of `libcoreclr.so`, and at 12 MB of single-file programs of 10.
const SEARCHED_BYTES: u64 = 64 << 20;
const STEP_BYTES: usize = 1 << 20;
/// Longest version that is taken.
const MAX_VERSION_BYTES: usize = 32;

/// The version in a path such as `/usr/lib/dotnet/shared/Microsoft.NETCore.App/8.0.4/libcoreclr.so`.
pub(super) fn of_path(library: &Path) -> Option<&str> {
    let version = library.parent()?;
    (version.parent()?.file_name()? == FRAMEWORK).then_some(())?;
    version.file_name()?.to_str()
}

/// The version in a file that holds a runtime.
pub(super) fn of_file(file: &File) -> Option<String> {
    let overlap = MARK.len() + MAX_VERSION_BYTES;
    let mut bytes = vec![0; STEP_BYTES + overlap];
    let mut offset = 0;
    while offset < SEARCHED_BYTES {
        let read = read_at(file, &mut bytes, offset);
        let bytes = bytes.get(..read)?;
        if let Some(found) = bytes.windows(MARK.len()).position(|window| window == MARK) {
            return spelled(bytes.get(found + MARK.len()..)?);
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

/// `8.0.424.16909` is 8.0.4, built in 2024: the third number is the patch, and two digits of the year. Before 5 the
/// numbers were others: 4.700 is 3.0 or 3.1.
fn spelled(text: &[u8]) -> Option<String> {
    let text = text.get(..MAX_VERSION_BYTES.min(text.len()))?;
    let end = text.iter().position(|&byte| byte == b' ')?;
    let text = std::str::from_utf8(text.get(..end)?).ok()?;
    let mut numbers = text.split('.').map(str::parse::<u32>);
    let (major, minor, third) = (
        numbers.next()?.ok()?,
        numbers.next()?.ok()?,
        numbers.next()?.ok()?,
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
    fn versions_as_people_know_them() {
        let spelled = |text: &str| spelled(text.as_bytes());
        assert_eq!(spelled("8.0.424.16909 @Commit: 2d7e").unwrap(), "8.0.4");
        assert_eq!(spelled("10.0.1226.42308 @Commit").unwrap(), "10.0.12");
        assert_eq!(spelled("4.700.22.11601 @Commit").unwrap(), "3");
        assert_eq!(spelled("8.0 @"), None);
        assert_eq!(spelled("8.0.424.16909"), None);
        assert_eq!(spelled("a.b.c.d "), None);
        let path = Path::new("/x/shared/Microsoft.NETCore.App/3.1.23/libcoreclr.so");
        assert_eq!(of_path(path), Some("3.1.23"));
        assert_eq!(of_path(Path::new("/app/libcoreclr.so")), None);
        assert_eq!(of_path(Path::new("libcoreclr.so")), None);
    }

    #[test]
    fn the_mark_is_found_across_steps() {
        for at in [0, 5, STEP_BYTES - 20, STEP_BYTES + 3, 3 * STEP_BYTES] {
            let mut bytes = vec![b'@'; at];
            bytes.extend(b"@(#)Version 9.0.725.31616 @Commit: a9cf");
            let mut file = tempfile::tempfile().unwrap();
            std::io::Write::write_all(&mut file, &bytes).unwrap();
            assert_eq!(of_file(&file).as_deref(), Some("9.0.7"), "{at}");
        }
        assert_eq!(of_file(&tempfile::tempfile().unwrap()), None);
    }
}
