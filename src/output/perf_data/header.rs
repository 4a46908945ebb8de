//! What stands before the records, and the sections behind them (`HEADER_*` of perf's `util/header.h`).

use std::io::{self, Seek, SeekFrom, Write};

use perf_event_open_sys::bindings as sys;

use super::image::ImageBuildId;
use super::record::SAMPLE_TYPE;
use crate::output::sanitize::{cut, perf_event};
use crate::perf_data::section;
use crate::trace::{CaptureInfo, Nanos};

/// Magic, sizes, three places, the bits of the sections.
const HEADER_BYTES: u64 = 104;
/// `PERF_ATTR_SIZE_VER5`.
const ATTRIBUTE_BYTES: u32 = 112;
const PLACE_BYTES: u64 = 16;
/// Where the records begin.
pub(super) const DATA_OFFSET: u64 = HEADER_BYTES + ATTRIBUTE_BYTES as u64 + PLACE_BYTES;
const CLOCK_MONOTONIC: u32 = 1;
/// Longest text of a section; one of a build id is a path.
const MAX_TEXT_BYTES: usize = 4096;
/// perf fills up texts to this.
const TEXT_ALIGNMENT: usize = 64;
/// `PERF_RECORD_MISC_BUILD_ID_SIZE`: the build id's size is behind it.
const MISC_BUILD_ID_SIZE: u32 = 1 << 15;

/// A file that names functions.
#[derive(Debug)]
pub(super) struct ImageFile {
    pub(super) path: Vec<u8>,
    pub(super) build_id: ImageBuildId,
    pub(super) text_offset: u64,
    pub(super) is_kernel: bool,
}

/// Writes the header as far as it is known before the records.
pub(super) fn begin(info: &CaptureInfo, out: &mut impl Write) -> io::Result<()> {
    out.write_all(&header(0, 0))?;
    out.write_all(&attribute(info))?;
    // The event has no ids: it is the only one.
    out.write_all(&[0; PLACE_BYTES as usize])
}

/// Writes the sections behind so many bytes of records, and completes the header.
pub(super) fn finish(
    info: &CaptureInfo,
    times: (Nanos, Nanos),
    images: &[ImageFile],
    data_bytes: u64,
    out: &mut (impl Write + Seek),
) -> io::Result<()> {
    let sections = sections(info, times, images);
    let mut at = DATA_OFFSET + data_bytes + PLACE_BYTES * sections.len() as u64;
    let mut features = 0_u64;
    for (number, content) in &sections {
        features |= 1 << number;
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
    let attribute_bytes = u64::from(ATTRIBUTE_BYTES) + PLACE_BYTES;
    let numbers = [
        HEADER_BYTES,
        attribute_bytes,
        HEADER_BYTES,
        attribute_bytes,
        DATA_OFFSET,
        data_bytes,
        // Names of events, as they were before 2011.
        0,
        0,
        features,
        0,
        0,
        0,
    ];
    header.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
    header
}

/// `perf_event_attr`: the weights are nanoseconds of CPU time, whatever has triggered the samples.
fn attribute(info: &CaptureInfo) -> Vec<u8> {
    /// Bits of the struct: mmap, comm, task, `sample_id_all`, mmap2, `comm_exec`, `use_clockid`, `build_id`.
    const FLAGS: [u32; 8] = [8, 9, 13, 18, 23, 24, 25, 34];
    let mut out = Vec::new();
    let mut put = |bytes: &[u8]| out.extend_from_slice(bytes);
    put(&sys::PERF_TYPE_SOFTWARE.to_le_bytes());
    put(&ATTRIBUTE_BYTES.to_le_bytes());
    let flags = FLAGS.iter().fold(0_u64, |flags, bit| flags | 1 << bit);
    for number in [
        u64::from(sys::PERF_COUNT_SW_CPU_CLOCK),
        info.period_ns,
        u64::from(SAMPLE_TYPE),
        0,
        flags,
    ] {
        put(&number.to_le_bytes());
    }
    // Up to the size of stack copies, behind which the clock is.
    put(&[0; 44]);
    put(&CLOCK_MONOTONIC.to_le_bytes());
    out.resize(ATTRIBUTE_BYTES as usize, 0);
    out
}

/// Number and content, in the order of the numbers.
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
    sections.sort_by_key(|(number, _)| *number);
    sections
}

/// Version, clock, one moment on the wall and on the clock.
fn clock_data(info: &CaptureInfo) -> Vec<u8> {
    let mut out = [1, CLOCK_MONOTONIC].map(u32::to_le_bytes).concat();
    let moment = [info.start_unix_ns, info.start_ns];
    out.extend(moment.iter().flat_map(|time| time.to_le_bytes()));
    out
}

/// Length and bytes, filled up with zeros of which one is the end.
fn text(text: &str) -> Vec<u8> {
    let text = cut(text, MAX_TEXT_BYTES);
    let padded = (text.len() + 1).next_multiple_of(TEXT_ALIGNMENT);
    let mut out = (padded as u32).to_le_bytes().to_vec();
    out.extend_from_slice(text.as_bytes());
    out.resize(size_of::<u32>() + padded, 0);
    out
}

/// For each file a header, the process (none in particular), 24 bytes with the build id and its size, the path.
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
