//! Whether a list of kernel functions is that of the kernel that was recorded.

use std::fs::{self, File};
use std::io::{self, BufReader};
use std::path::Path;

use perfcollect_symbols::elf::build_id_of_notes;
use perfcollect_symbols::kallsyms;

use super::About;
use crate::download::BuildId;

const KALLSYMS: &str = "/proc/kallsyms";
/// Where the running kernel has its build id.
const NOTES: &str = "/sys/kernel/notes";
/// What recordings call the kernel.
const KERNEL: &[u8] = b"[kernel.kallsyms]";

/// Why this list of kernel functions, or this kernel's own, says nothing of the kernel that was recorded; `reference`: a symbol
/// and where it was.
pub(crate) fn kernel_gone(
    about: &About,
    reference: Option<&(Vec<u8>, u64)>,
    kallsyms: Option<&Path>,
) -> Option<String> {
    if kallsyms.is_none()
        && let Some(why) = another(about)
    {
        return Some(format!("{why}; give its list of functions with -kallsyms"));
    }
    let (symbol, recorded) = reference?;
    let path = kallsyms.unwrap_or(Path::new(KALLSYMS));
    match address_of(symbol, path) {
        Ok(Some(address)) if address == *recorded => None,
        // Addresses are hidden, which naming itself tells.
        Ok(Some(0)) | Err(_) => None,
        Ok(_) => Some(format!(
            "{} is of another kernel, or of another start of it: {} is not at {recorded:#x} in it",
            path.display(),
            String::from_utf8_lossy(symbol)
        )),
    }
}

/// Why the kernel that runs here is not the one that was recorded: their build ids differ, or where one of them is not known, their
/// releases.
fn another(about: &About) -> Option<String> {
    let theirs = about.build_ids.get(KERNEL).and_then(|id| BuildId::of(id));
    let notes = fs::read(NOTES).ok();
    let ours = notes.and_then(|notes| BuildId::of(&build_id_of_notes(&notes)?));
    match (theirs, ours) {
        (Some(theirs), Some(ours)) => (theirs != ours).then(|| {
            format!(
                "they are of a kernel with build id {theirs}, and that of this machine has {ours}"
            )
        }),
        _ if about.release.is_empty() => {
            Some("the recording does not tell of which kernel they are".into())
        }
        _ => {
            let ours = rustix::system::uname();
            let is_ours = ours.release().to_bytes() == about.release.as_bytes();
            (!is_ours).then(|| format!("they are of kernel {}", about.release))
        }
    }
}

/// The address of a symbol in a list of kernel functions.
fn address_of(symbol: &[u8], list: &Path) -> io::Result<Option<u64>> {
    kallsyms::address_of(symbol, BufReader::new(File::open(list)?))
}
