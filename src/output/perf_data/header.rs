//! The header before the records, and the sections after them (`HEADER_*` of perf's
//! `util/header.h`).

use std::io::{self, Seek, SeekFrom, Write};

use perf_event_open_sys::bindings as sys;

use super::image::ImageBuildId;
use super::record::SAMPLE_TYPE;
use crate::output::sanitize::{perf_event, truncate};
use crate::perf_data::section;
use crate::trace::{CaptureInfo, Nanos};

/// Magic, sizes, three file sections, feature bits.
const HEADER_BYTES: u64 = 104;
/// `PERF_ATTR_SIZE_VER5`.
const ATTRIBUTE_BYTES: u32 = 112;
/// Size of `perf_file_section`.
const SECTION_BYTES: u64 = 16;
/// Offset of the records.
pub(super) const DATA_OFFSET: u64 = HEADER_BYTES + ATTRIBUTE_BYTES as u64 + SECTION_BYTES;
const CLOCK_MONOTONIC: u32 = 1;
/// Maximum length of a string in a section. Strings of build ids are paths.
const MAX_TEXT_BYTES: usize = 4096;
/// perf pads strings to a multiple of this length.
const TEXT_ALIGNMENT: usize = 64;
/// `PERF_RECORD_MISC_BUILD_ID_SIZE`: the size of the build id follows it.
const MISC_BUILD_ID_SIZE: u32 = 1 << 15;

/// A symbol file.
#[derive(Debug)]
pub(super) struct ImageFile {
    pub(super) path: Vec<u8>,
    pub(super) build_id: ImageBuildId,
    pub(super) text_offset: u64,
    pub(super) is_kernel: bool,
}

/// Writes a preliminary header before the records.
pub(super) fn start(info: &CaptureInfo, out: &mut impl Write) -> io::Result<()> {
    out.write_all(&header(0, 0))?;
    out.write_all(&attribute(info))?;
    // The event has no ids, because it is the only one.
    out.write_all(&[0; SECTION_BYTES as usize])
}

/// Writes the sections after `data_bytes` of records, then the final header.
pub(super) fn finish(
    info: &CaptureInfo,
    times: (Nanos, Nanos),
    images: &[ImageFile],
    data_bytes: u64,
    out: &mut (impl Write + Seek),
) -> io::Result<()> {
    let sections = sections(info, times, images);
    let mut at = DATA_OFFSET + data_bytes + SECTION_BYTES * sections.len() as u64;
    let mut features = 0_u64;
    for (feature, content) in &sections {
        features |= 1 << feature;
        for part in [at, content.len() as u64] {
            out.write_all(&part.to_le_bytes())?;
        }
        at += content.len() as u64;
    }
    for (_, content) in &sections {
        out.write_all(content)?;
    }
    out.seek(SeekFrom::Start(0))?;
    out.write_all(&header(data_bytes, features))?;
    out.flush()
}

fn header(data_bytes: u64, features: u64) -> Vec<u8> {
    let mut header = b"PERFILE2".to_vec();
    let attribute_bytes = u64::from(ATTRIBUTE_BYTES) + SECTION_BYTES;
    let fields = [
        HEADER_BYTES,
        attribute_bytes,
        HEADER_BYTES,
        attribute_bytes,
        DATA_OFFSET,
        data_bytes,
        // Section of event types, which perf has not used since 2011.
        0,
        0,
        features,
        0,
        0,
        0,
    ];
    header.extend(fields.iter().flat_map(|field| field.to_le_bytes()));
    header
}

/// Returns the `perf_event_attr` of a CPU clock.
///
/// The weights are nanoseconds of CPU time, regardless of the event that triggered the samples.
fn attribute(info: &CaptureInfo) -> Vec<u8> {
    /// Bits of the struct: mmap, comm, task, `sample_id_all`, mmap2, `comm_exec`, `use_clockid`,
    /// `build_id`.
    const FLAGS: [u32; 8] = [8, 9, 13, 18, 23, 24, 25, 34];
    let mut out = Vec::new();
    let mut put = |bytes: &[u8]| out.extend_from_slice(bytes);
    put(&sys::PERF_TYPE_SOFTWARE.to_le_bytes());
    put(&ATTRIBUTE_BYTES.to_le_bytes());
    let flags = FLAGS.iter().fold(0_u64, |flags, bit| flags | 1 << bit);
    for field in [
        u64::from(sys::PERF_COUNT_SW_CPU_CLOCK),
        info.period_ns,
        u64::from(SAMPLE_TYPE),
        0,
        flags,
    ] {
        put(&field.to_le_bytes());
    }
    // All fields up to `sample_stack_user`. `clockid` follows.
    put(&[0; 44]);
    put(&CLOCK_MONOTONIC.to_le_bytes());
    out.resize(ATTRIBUTE_BYTES as usize, 0);
    out
}

/// Returns the feature number and the content of each section, sorted by number.
fn sections(
    info: &CaptureInfo,
    (first, last): (Nanos, Nanos),
    images: &[ImageFile],
) -> Vec<(u32, Vec<u8>)> {
    let version = format!("perfcollect {}", info.version);
    let mut events = [1, ATTRIBUTE_BYTES].map(u32::to_le_bytes).concat();
    events.extend(attribute(info));
    events.extend([0; 4]);
    events.extend(text(&perf_event(&info.event)));
    let command_line = [
        2_u32.to_le_bytes().to_vec(),
        text("perfcollect"),
        text(&info.target),
    ];
    let mut sections = vec![
        (section::BUILD_ID, build_ids(images)),
        (section::OSRELEASE, text(&info.kernel)),
        (section::VERSION, text(&version)),
        (section::ARCH, text(&info.arch)),
        (
            section::NRCPUS,
            [info.cpus; 2].map(u32::to_le_bytes).concat(),
        ),
        (section::CMDLINE, command_line.concat()),
        (section::EVENT_DESC, events),
        (
            section::SAMPLE_TIME,
            [first.0, last.0].map(u64::to_le_bytes).concat(),
        ),
        (section::CLOCKID, 1_u64.to_le_bytes().to_vec()),
        (section::CLOCK_DATA, clock_data(info)),
    ];
    if !info.host.is_empty() {
        sections.push((section::HOSTNAME, text(&info.host)));
    }
    sections.sort_by_key(|(feature, _)| *feature);
    sections
}

/// Returns version, clock id, and one time on the wall clock and on the clock of the samples.
fn clock_data(info: &CaptureInfo) -> Vec<u8> {
    let mut out = [1, CLOCK_MONOTONIC].map(u32::to_le_bytes).concat();
    let times = [info.start_unix_ns, info.start_ns];
    out.extend(times.iter().flat_map(|time| time.to_le_bytes()));
    out
}

/// Returns length and bytes of a string, padded with at least one NUL.
fn text(text: &str) -> Vec<u8> {
    let text = truncate(text, MAX_TEXT_BYTES);
    let padded = (text.len() + 1).next_multiple_of(TEXT_ALIGNMENT);
    let mut out = (padded as u32).to_le_bytes().to_vec();
    out.extend_from_slice(text.as_bytes());
    out.resize(size_of::<u32>() + padded, 0);
    out
}

/// Returns the build id events: record header, pid -1, 24 bytes with the build id and its size,
/// path.
fn build_ids(images: &[ImageFile]) -> Vec<u8> {
    let mut out = Vec::new();
    for image in images {
        let mode = match image.is_kernel {
            true => sys::PERF_RECORD_MISC_KERNEL,
            false => sys::PERF_RECORD_MISC_USER,
        };
        let path_bytes = (image.path.len() + 1).next_multiple_of(TEXT_ALIGNMENT);
        let bytes = 8 + 4 + 24 + path_bytes;
        out.extend([0; 4]);
        out.extend(((mode | MISC_BUILD_ID_SIZE) as u16).to_le_bytes());
        out.extend((bytes as u16).to_le_bytes());
        out.extend((-1_i32).to_le_bytes());
        out.extend(image.build_id);
        out.extend([image.build_id.len() as u8, 0, 0, 0]);
        out.extend(&image.path);
        out.extend(vec![0; path_bytes - image.path.len()]);
    }
    out
}
