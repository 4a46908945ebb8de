//! The symbolizer with real files and processes.
#![allow(clippy::unwrap_used)]

use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use perfcollect_symbols::dwarf::DebugInfo;
use perfcollect_symbols::elf::ElfFile;
use perfcollect_symbols::kallsyms::KernelSymbols;
use perfcollect_symbols::process::{parse_all_maps, parse_maps, read_maps};
use perfcollect_symbols::symbolizer::{
    Evidence, FileContent, FileSource, FileSymbolizer, JitQuery, JitSource, JitSymbols,
    ProcessSymbolizer, Symbolizer, Unresolved,
};
use perfcollect_symbols::table::SymbolTable;
use test_skip::{Missing, skip};

/// Stops the process at the end of a test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Removes a file at the end of a test.
struct RemovedFile(String);

impl Drop for RemovedFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn own_file(symbolizer: &Symbolizer) -> FileSymbolizer {
    symbolizer.file(FileSource::open(std::env::current_exe().unwrap()).unwrap())
}

/// Returns the address of a function of a library in a process.
///
/// The loader maps all of a file before it makes its code executable.
fn address_in(pid: i32, library: &str, symbol: &str) -> Option<u64> {
    let maps = read_maps(pid).unwrap();
    let first = parse_all_maps(&maps).find(|line| {
        let path = String::from_utf8_lossy(line.path);
        path.rsplit('/').next() == Some(library) && line.file_offset == 0
    })?;
    let path = String::from_utf8_lossy(first.path).into_owned();
    let elf = ElfFile::open(File::open(path).unwrap()).unwrap();
    let svma = elf.dynamic_symbol(symbol.as_bytes()).unwrap()?;
    let address = first.start + svma;
    parse_maps(&maps)
        .any(|line| (line.start..line.end).contains(&address))
        .then_some(address)
}

#[test]
fn may_be_shared_by_threads() {
    fn check<T: Send + Sync>() {}
    check::<Symbolizer>();
    check::<FileSymbolizer>();
    check::<ProcessSymbolizer<'_>>();
    check::<ElfFile>();
    check::<DebugInfo>();
    check::<SymbolTable>();
    check::<KernelSymbols>();
    check::<JitSymbols>();
}

#[test]
fn names_a_library_function_of_a_process() {
    let child = Command::new("sleep").arg("100").spawn().unwrap();
    let child = Running(child);
    let pid = child.0.id() as i32;
    let start = Instant::now();
    let address = loop {
        // The loader maps the library after the exec.
        match address_in(pid, "libc.so.6", "nanosleep") {
            Some(address) => break address,
            None => assert!(start.elapsed() < Duration::from_secs(20)),
        }
    };
    let symbolizer = Symbolizer::default();
    let process = symbolizer.process(pid as u32).unwrap();
    let frames = process.frames(address).unwrap();
    let [frame] = &frames[..] else {
        panic!("{frames:?}");
    };
    assert!(
        ["nanosleep", "__nanosleep"].contains(&&*frame.name()),
        "{frame:?}"
    );
    assert_eq!(frame.start, Some(address));
    assert!(
        frame
            .module
            .as_ref()
            .is_some_and(|path| path.ends_with("/libc.so.6"))
    );
    assert!(matches!(
        frame.evidence,
        Evidence::SymbolTable | Evidence::DebugFile
    ));
    assert_eq!(process.frames(8), Err(Unresolved::Unmapped));
}

#[test]
fn names_jit_code_of_a_process() {
    let script = "function busy(x) { let s = 0; for (let i = 0; i < x; i++) s ^= i * x; return s; }
        for (let i = 0; i < 20000; i++) busy(i % 1000);
        console.log('ready'); setTimeout(() => {}, 100000);";
    let directory = tempfile::tempdir().unwrap();
    let child = Command::new("node")
        .current_dir(&directory)
        .args(["--perf-basic-prof", "-e", script])
        .stdout(Stdio::piped())
        .spawn();
    let Ok(child) = child else {
        return skip(Missing::Command("node"));
    };
    let pid = child.id();
    let path = RemovedFile(format!("/tmp/perf-{pid}.map"));
    let mut child = Running(child);
    let mut ready = [0; 6];
    let output = child.0.stdout.as_mut().unwrap();
    std::io::Read::read_exact(output, &mut ready).unwrap();
    let map = fs::read_to_string(&path.0).unwrap();
    let line = map.lines().rfind(|line| line.contains("busy")).unwrap();
    let start = u64::from_str_radix(line.split(' ').next().unwrap(), 16).unwrap();

    let symbolizer = Symbolizer::default();
    let process = symbolizer.process(pid).unwrap();
    let frames = process.frames(start + 1).unwrap();
    let [frame] = &frames[..] else {
        panic!("{frames:?}");
    };
    assert!(frame.name().contains("busy"), "{frame:?}");
    assert_eq!(frame.evidence, Evidence::PerfMap);
    assert_eq!(frame.start, Some(start));
}

#[test]
fn uses_no_perf_map_of_another_user() {
    if !rustix::process::geteuid().is_root() {
        return skip(Missing::Root);
    }
    let child = Running(Command::new("sleep").arg("100").spawn().unwrap());
    let pid = child.0.id() as i32;
    let path = RemovedFile(format!("/tmp/perf-{pid}.map"));
    fs::write(&path.0, "1000 10 planted\n").unwrap();
    let source = || JitSource::of_process(pid, None).unwrap();
    let read = || JitSymbols::read(&source(), &JitQuery::default());
    assert!(read().lookup(0x1001).is_some());
    std::os::unix::fs::chown(&path.0, Some(65534), None).unwrap();
    let planted = read();
    assert!(planted.lookup(0x1001).is_none());
    let error = planted.map_error.unwrap().to_string();
    assert!(error.contains("belongs to user 65534"), "{error}");
}

#[test]
fn threads_get_the_frames_of_one_thread() {
    let (one, shared) = (Symbolizer::default(), Symbolizer::default());
    let (one, shared) = (own_file(&one), own_file(&shared));
    let table = ElfFile::open(File::open("/proc/self/exe").unwrap()).unwrap();
    let table = table.symbols().unwrap();
    let starts: Vec<u64> = table.iter().map(|symbol| symbol.start + 1).collect();
    let step = starts.len() / 2000 + 1;
    let addresses: Vec<u64> = starts.into_iter().step_by(step).collect();
    let expected: Vec<_> = addresses.iter().map(|&at| one.frames(at)).collect();
    assert!(expected.iter().flatten().any(|frames| frames.len() > 1));
    let mut frames = expected.iter().flatten().flatten();
    assert!(frames.any(|frame| frame.line.is_some()));
    std::thread::scope(|scope| {
        for turn in 0..4 {
            let (addresses, expected, shared) = (&addresses, &expected, &shared);
            scope.spawn(move || {
                // Each thread starts elsewhere, so that they read different units first.
                let from = turn * addresses.len() / 4;
                for at in (from..addresses.len()).chain(0..from) {
                    assert_eq!(shared.frames(addresses[at]), expected[at]);
                }
            });
        }
    });
    assert!(shared.take_problems().is_empty());
}

#[test]
fn reports_why_a_file_has_no_names() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("corrupt");
    let mut bytes = fs::read("/proc/self/exe").unwrap();
    // The section headers are outside the file.
    bytes[0x28..0x30].copy_from_slice(&u64::MAX.to_le_bytes());
    fs::write(&path, bytes).unwrap();
    let symbolizer = Symbolizer::default();
    let open = |path: &Path| {
        symbolizer.file(FileSource {
            content: FileContent::File(Arc::new(File::open(path).unwrap())),
            path: path.to_owned(),
            roots: Vec::new(),
        })
    };
    let corrupt = open(&path);
    assert!(corrupt.is_elf() && !corrupt.has_symbols());
    assert!(matches!(
        corrupt.frames(0x1000),
        Err(Unresolved::NoSymbol { .. })
    ));
    let problems = corrupt.take_problems();
    assert!(
        problems
            .iter()
            .any(|problem| problem.to_string().contains("section")),
        "{problems:?}"
    );
    let text = directory.path().join("text");
    fs::write(&text, "no code").unwrap();
    let text = open(&text);
    assert!(!text.is_elf() && text.take_problems().is_empty());
    assert_eq!(text.frames_at_offset(0), Err(Unresolved::Unmapped));

    let image = directory.path().join("image");
    fs::write(&image, "MZ no image").unwrap();
    let image = open(&image);
    for offset in [0, 4096] {
        let why = image.frames_at_offset(offset).unwrap_err();
        assert!(matches!(why, Unresolved::Image(_)), "{why:?}");
    }
    let problems = image.take_problems();
    let [problem] = &problems[..] else {
        panic!("{problems:?}");
    };
    assert_eq!(
        problem.to_string(),
        "the ReadyToRun image cannot be used: cannot read 4 bytes at 0x3c"
    );
}

#[test]
fn names_the_kernel_and_the_vdso() {
    let symbolizer = Symbolizer::default();
    let process = symbolizer.process(std::process::id()).unwrap();
    let maps = read_maps(std::process::id() as i32).unwrap();
    let vdso = parse_all_maps(&maps)
        .find(|line| line.path == b"[vdso]")
        .unwrap();
    let image = ElfFile::parse(&perfcollect_symbols::process::vdso_image().unwrap()).unwrap();
    let svma = image.dynamic_symbol(b"__vdso_time").unwrap().unwrap();
    let frames = process.frames(vdso.start + svma).unwrap();
    assert!(frames[0].name().ends_with("time"), "{frames:?}");
    assert_eq!(frames[0].start, Some(vdso.start + svma));

    let Ok(kernel) = symbolizer.kernel() else {
        return skip(Missing::KernelAddresses);
    };
    let first = kernel.iter().next().unwrap();
    let frames = process.frames(first.symbol.start).unwrap();
    assert_eq!(frames[0].symbol, first.symbol.name);
    assert_eq!(frames[0].evidence, Evidence::Kallsyms);
}

#[test]
fn processes_share_files() {
    let symbolizer = Symbolizer::default();
    let address = threads_get_the_frames_of_one_thread as fn() as usize as u64;
    let one = symbolizer.process(std::process::id()).unwrap();
    let two = symbolizer.process(std::process::id()).unwrap();
    let frames = [&one, &two].map(|process| process.frames(address).unwrap());
    assert_eq!(frames[0], frames[1]);
    let last = frames[0].last().unwrap();
    assert!(last.name().contains("threads_get_the_frames"), "{last:?}");
    // One name, of one table.
    let [one, two] = frames
        .each_ref()
        .map(|frames| frames.last().unwrap().symbol.as_ptr());
    assert_eq!(one, two);
}
