//! Names of ReadyToRun methods in the images of real frameworks.
#![allow(clippy::unwrap_used)]

#[macro_use]
mod support;

use std::collections::HashSet;
use std::fs::File;
use std::path::{Path, PathBuf};

use perfcollect_symbols::dotnet::pe::PeImage;
use perfcollect_symbols::dotnet::ready_to_run::{ReadyToRun, ReadyToRunError};
use perfcollect_symbols::dotnet::runtime_functions::RuntimeFunctions;
use perfcollect_symbols::memory::{Image, Memory};
use support::{Missing, runtimes, workloads};

/// Returns the names of all functions of an image, or `None` if it has no ReadyToRun code.
fn names(path: &Path) -> Option<Vec<Option<String>>> {
    let names = names_of(&&File::open(path).unwrap(), path)?;
    Some(names.unwrap())
}

/// Returns the names of all functions of an image with this content.
fn names_of(
    bytes: &impl Memory,
    path: &Path,
) -> Option<Result<Vec<Option<String>>, ReadyToRunError>> {
    let image = PeImage::parse(bytes, 0).ok()?;
    let functions = RuntimeFunctions::of(&image, bytes).ok()?;
    let ready = ReadyToRun::open(image, bytes, |id| {
        let file = File::open(path.with_file_name(format!("{}.dll", id.name))).unwrap();
        let bytes = &file;
        PeImage::parse(&bytes, 0).ok()?.metadata(&bytes).ok()
    });
    let ready = match ready {
        Ok(ready) => ready,
        Err(error) => return Some(Err(error)),
    };
    // The last entry is an end marker.
    let functions = functions.iter().filter(|function| function.end != u32::MAX);
    let name = |begin: u32| ready.name(begin.into());
    let names = functions.map(|function| name(function.begin).ok().map(|name| name.method));
    Some(Ok(names.collect()))
}

fn images(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let is_image = |path: &PathBuf| path.extension().is_some_and(|suffix| suffix == "dll");
    paths.filter(is_image).collect()
}

#[test]
#[ignore = "slow"]
fn names_functions_of_the_frameworks() {
    let mut runtimes = runtimes();
    runtimes.retain(|runtime| runtime.major() >= 8);
    if runtimes.is_empty() {
        skip!(Missing::Dotnet(8));
    }
    for runtime in runtimes {
        let shared = runtime.dotnet.canonicalize().unwrap();
        let shared = shared
            .parent()
            .unwrap()
            .join("shared/Microsoft.NETCore.App");
        let images = images(&shared.join(&runtime.version));
        let all: Vec<_> = images
            .iter()
            .filter_map(|path| names(path))
            .flatten()
            .collect();
        let unresolved = all.iter().filter(|name| name.is_none()).count();
        println!(
            "{}: {} functions, {unresolved} without name",
            runtime.version,
            all.len()
        );
        // Some images have only thunks, which are not methods.
        assert!(
            all.len() > 50_000 && unresolved <= 20,
            "{unresolved} of {}",
            all.len()
        );
        let all: HashSet<_> = all.into_iter().flatten().collect();
        for name in [
            "System.String.Concat(string,string)",
            "System.Collections.Generic.Dictionary<System.__Canon,System.__Canon>.FindValue(System.__Canon)",
            "System.Collections.Generic.List<System.__Canon>+Enumerator.MoveNext()",
            "System.Threading.PortableThreadPool+WorkerThread.WorkerThreadStart()",
        ] {
            assert!(all.contains(name), "{name}");
        }
    }
}

#[test]
fn names_functions_of_a_composite_image() {
    let image = need!(workloads::shared("split-composite/split.r2r.dll"));
    let all = names(&image).unwrap();
    let unresolved = all.iter().filter(|name| name.is_none()).count();
    assert!(
        all.len() > 40_000 && unresolved * 400 <= all.len(),
        "{unresolved} of {}",
        all.len()
    );
    for name in [
        "Split.Modes.Chain.ChainInner(ulong)",
        "Split.Modes.Generics+Box<System.__Canon>.GenericBurn<System.__Canon>(ulong)",
        "System.Collections.Generic.List<System.__Canon>+Enumerator.MoveNext()",
    ] {
        assert!(all.iter().flatten().any(|method| method == name), "{name}");
    }
}

/// An image of .NET 10 with the versions of .NET 11, of which no build was available.
#[test]
fn newer_images_have_fewer_names_but_no_others() {
    let path = need!(workloads::shared("split-composite/split.r2r.dll"));
    let mut bytes = std::fs::read(&path).unwrap();
    let header = bytes
        .windows(4)
        .position(|bytes| bytes == b"RTR\0")
        .unwrap();
    let mut names = |major: u16| {
        bytes[header + 4..][..2].copy_from_slice(&major.to_le_bytes());
        let image = Image {
            start: 0,
            bytes: &bytes,
        };
        names_of(&image, &path).unwrap()
    };
    let all = names(16).unwrap();
    for major in [25, 27] {
        let newer = names(major).unwrap();
        let pairs = all.iter().zip(&newer);
        assert!(pairs.clone().all(|(old, new)| new.is_none() || new == old));
        let kept = newer.iter().flatten().count();
        println!("version {major}: {kept} of {} names", all.len());
        assert!(kept * 10 > all.len() * 8, "{kept} of {}", all.len());
    }
    let error = names(28).unwrap_err();
    assert!(
        matches!(error, ReadyToRunError::Version { major: 28, .. }),
        "{error}"
    );
}
