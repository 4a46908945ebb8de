//! Verification that a list of kernel symbols belongs to the recorded kernel.

use std::fs::{self, File};
use std::io::{self, BufReader};
use std::path::Path;

use perfcollect_symbols::build_id::BuildId;
use perfcollect_symbols::elf::build_id_from_notes;
use perfcollect_symbols::kallsyms;

use super::RecordingInfo;
use crate::perf::MmapRecord;

const KALLSYMS: &str = "/proc/kallsyms";
/// ELF notes of the running kernel, which contain its build id.
const NOTES: &str = "/sys/kernel/notes";
/// Path prefix of the mapping of the kernel; the name of a symbol follows.
const MAPPING: &[u8] = b"[kernel.kallsyms]";

/// The recorded mapping of the kernel.
pub(crate) struct KernelMapping {
    /// The reference symbol; empty if the mapping has none.
    symbol: Box<[u8]>,
    /// Address of the reference symbol.
    address: u64,
    /// Build id of the kernel; empty unless the mapping contains it (`--buildid-mmap`).
    build_id: Box<[u8]>,
}

impl KernelMapping {
    /// Converts the mapping of the kernel. Returns `None` for another mapping.
    pub(crate) fn of(mapping: &MmapRecord<'_>) -> Option<Self> {
        let symbol = mapping.path.strip_prefix(MAPPING)?;
        Some(Self {
            symbol: symbol.into(),
            address: mapping.file_offset,
            build_id: mapping.build_id.into(),
        })
    }
}

/// Returns the reason why kernel symbols do not belong to the recorded kernel.
///
/// The symbols are those in `kallsyms`, or those of the running kernel. Returns `None` if no reason
/// is known.
pub(crate) fn kernel_mismatch(
    info: &RecordingInfo,
    mapping: Option<&KernelMapping>,
    kallsyms: Option<&Path>,
) -> Option<String> {
    let recorded = mapping.map(|mapping| &*mapping.build_id);
    let recorded = recorded.filter(|id| !id.is_empty());
    let recorded = recorded.or_else(|| info.kernel.as_ref().map(|(_, id)| &**id));
    if kallsyms.is_none()
        && let Some(reason) = running_kernel_mismatch(info, recorded)
    {
        return Some(format!(
            "{reason}; pass a copy of its /proc/kallsyms with -kallsyms"
        ));
    }
    let mapping = mapping.filter(|mapping| !mapping.symbol.is_empty())?;
    let path = kallsyms.unwrap_or(Path::new(KALLSYMS));
    match address_of(&mapping.symbol, path) {
        Ok(Some(address)) if address == mapping.address => None,
        // The kernel hides addresses. Symbolization reports this.
        Ok(Some(0)) | Err(_) => None,
        Ok(_) => Some(format!(
            "{} belongs to another kernel or another boot ({} is not at {:#x})",
            path.display(),
            String::from_utf8_lossy(&mapping.symbol),
            mapping.address
        )),
    }
}

/// Returns the reason why the running kernel is not the recorded one.
///
/// Compares the build ids, or the releases if a build id is unknown.
fn running_kernel_mismatch(info: &RecordingInfo, recorded: Option<&[u8]>) -> Option<String> {
    let recorded = recorded.and_then(BuildId::from_bytes);
    let notes = fs::read(NOTES).ok();
    let running = notes.and_then(|notes| build_id_from_notes(&notes));
    match (recorded, running) {
        (Some(recorded), Some(running)) => (recorded != running).then(|| {
            format!("the recorded kernel has build id {recorded}, the running kernel has {running}")
        }),
        _ if info.release.is_empty() => Some("the recording does not identify its kernel".into()),
        _ => {
            let running = rustix::system::uname();
            let is_same = running.release().to_bytes() == info.release.as_bytes();
            (!is_same).then(|| format!("the recorded kernel is {}", info.release))
        }
    }
}

/// Returns the address of a symbol in a list of kernel symbols.
fn address_of(symbol: &[u8], list: &Path) -> io::Result<Option<u64>> {
    kallsyms::address_of(symbol, BufReader::new(File::open(list)?))
}
