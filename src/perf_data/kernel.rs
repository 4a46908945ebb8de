//! Whether a list of kernel functions is that of the kernel that was recorded.

use std::fs::{self, File};
use std::io::{self, BufReader};
use std::path::Path;

use perfcollect_symbols::build_id::BuildId;
use perfcollect_symbols::elf::build_id_from_notes;
use perfcollect_symbols::kallsyms;

use super::RecordingInfo;
use crate::perf::MmapRecord;

const KALLSYMS: &str = "/proc/kallsyms";
/// Where the running kernel has its build id.
const NOTES: &str = "/sys/kernel/notes";
/// What the kernel's own mapping is called; the name of a symbol follows.
const MAPPING: &[u8] = b"[kernel.kallsyms]";

/// The kernel's own mapping, as a recording has it.
pub(crate) struct KernelMapping {
    /// A symbol of the kernel; empty if the mapping names none.
    symbol: Box<[u8]>,
    /// Its address.
    address: u64,
    /// The kernel's build id; empty unless perf recorded it here (`--buildid-mmap`).
    build_id: Box<[u8]>,
}

impl KernelMapping {
    /// `None`: it is a mapping of another kind.
    pub(crate) fn of(mapping: &MmapRecord<'_>) -> Option<Self> {
        let symbol = mapping.path.strip_prefix(MAPPING)?;
        Some(Self {
            symbol: symbol.into(),
            address: mapping.file_offset,
            build_id: mapping.build_id.into(),
        })
    }
}

/// Why this list of kernel functions, or this kernel's own, says nothing of the kernel that was recorded.
pub(crate) fn kernel_gone(
    about: &RecordingInfo,
    mapping: Option<&KernelMapping>,
    kallsyms: Option<&Path>,
) -> Option<String> {
    let recorded = mapping.map(|mapping| &*mapping.build_id);
    let recorded = recorded.filter(|id| !id.is_empty());
    let recorded = recorded.or_else(|| about.kernel.as_ref().map(|(_, id)| &**id));
    if kallsyms.is_none()
        && let Some(why) = another(about, recorded)
    {
        return Some(format!("{why}; give its list of functions with -kallsyms"));
    }
    let mapping = mapping.filter(|mapping| !mapping.symbol.is_empty())?;
    let path = kallsyms.unwrap_or(Path::new(KALLSYMS));
    match address_of(&mapping.symbol, path) {
        Ok(Some(address)) if address == mapping.address => None,
        // Addresses are hidden, which naming itself tells.
        Ok(Some(0)) | Err(_) => None,
        Ok(_) => Some(format!(
            "{} is of another kernel, or of another start of it: {} is not at {:#x} in it",
            path.display(),
            String::from_utf8_lossy(&mapping.symbol),
            mapping.address
        )),
    }
}

/// Why the kernel that runs here is not the one that was recorded: their build ids differ, or where one of them is not known, their
/// releases.
fn another(about: &RecordingInfo, recorded: Option<&[u8]>) -> Option<String> {
    let theirs = recorded.and_then(BuildId::from_bytes);
    let notes = fs::read(NOTES).ok();
    let ours = notes.and_then(|notes| build_id_from_notes(&notes));
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
