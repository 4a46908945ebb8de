//! Whether a list of kernel functions is that of the kernel that was recorded.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

use super::About;

const KALLSYMS: &str = "/proc/kallsyms";
/// Lines of a list of kernel functions in which the symbol of the mapping is looked for.
const REFERENCE_LINES: usize = 1 << 20;

/// Why this list of kernel functions, or this kernel's own, says nothing of the kernel that was recorded; `reference`: a symbol
/// and where it was.
pub(crate) fn kernel_gone(
    about: &About,
    reference: Option<&(Vec<u8>, u64)>,
    kallsyms: Option<&Path>,
) -> Option<String> {
    let ours = rustix::system::uname();
    let is_ours = ours.release().to_bytes() == about.release.as_bytes();
    if kallsyms.is_none() && !is_ours {
        return Some(format!(
            "they are of kernel {}; give its list of functions with -kallsyms",
            about.release
        ));
    }
    let (symbol, recorded) = reference?;
    let path = kallsyms.unwrap_or(Path::new(KALLSYMS));
    match address_of(symbol, path) {
        Ok(Some(address)) if address == *recorded => None,
        // Addresses are hidden, which naming itself tells.
        Ok(Some(0)) | Err(_) => None,
        Ok(_) => Some(format!(
            "{} is of another kernel, or of another start of it",
            path.display()
        )),
    }
}

/// The address of a symbol in a list of kernel functions: lines of address, kind, name.
fn address_of(symbol: &[u8], kallsyms: &Path) -> io::Result<Option<u64>> {
    let lines = BufReader::new(File::open(kallsyms)?).split(b'\n');
    for line in lines.take(REFERENCE_LINES) {
        let line = line?;
        let mut words = line.split(u8::is_ascii_whitespace);
        if let (Some(address), Some(_), Some(name)) = (words.next(), words.next(), words.next())
            && name == symbol
        {
            let address = str::from_utf8(address).ok();
            return Ok(address.and_then(|text| u64::from_str_radix(text, 16).ok()));
        }
    }
    Ok(None)
}
