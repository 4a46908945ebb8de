//! The ReadyToRun images of a file: one as a rule, many in a single-file program.

use std::ffi::OsStr;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use super::frame::{Evidence, Frame};
use crate::dotnet::metadata::Metadata;
use crate::dotnet::pe::PeImage;
use crate::dotnet::ready_to_run::{AssemblyId, ReadyToRun};
use crate::process::Root;

/// Limit of failed searches for an image in a file; each reads up to 64 MB.
const MAX_FAILURES: u32 = 4;
/// Name of the thunks through which precompiled code calls methods that may not be ready.
const THUNK: &str = "[stub] MethodCallThunk";

/// The images of a file.
pub(super) struct Images {
    file: Arc<File>,
    path: PathBuf,
    opened: Mutex<Opened>,
}

#[derive(Default)]
struct Opened {
    images: Vec<Arc<ReadyToRun>>,
    failures: u32,
}

impl Images {
    pub(super) fn new(file: Arc<File>, path: PathBuf) -> Self {
        Self {
            file,
            path,
            opened: Mutex::default(),
        }
    }

    /// Returns the method at an offset of the file.
    ///
    /// Returns `None` if no image is there, `Some(None)` if its tables have no method there.
    pub(super) fn frame(&self, offset: u64, roots: &[Arc<Root>]) -> Option<Option<Frame<'static>>> {
        let image = self.image(offset, roots)?;
        let address = image.address_of(offset)?;
        let frame = |name: String, assembly: Option<String>| Frame {
            module: assembly.map(Into::into),
            ..Frame::new(name.into_bytes(), Evidence::ReadyToRun)
        };
        Some(match image.name(address) {
            Some(name) => Some(frame(name.method, Some(name.assembly))),
            None if image.is_thunk(address) => Some(frame(THUNK.to_owned(), None)),
            None => None,
        })
    }

    fn image(&self, offset: u64, roots: &[Arc<Root>]) -> Option<Arc<ReadyToRun>> {
        let opened = self.opened.lock();
        let mut opened = opened.unwrap_or_else(PoisonError::into_inner);
        let contains = |image: &&Arc<ReadyToRun>| image.address_of(offset).is_some();
        if let Some(image) = opened.images.iter().find(contains) {
            return Some(image.clone());
        }
        if opened.failures >= MAX_FAILURES {
            return None;
        }
        let Some(image) = self.open(offset, roots).map(Arc::new) else {
            opened.failures += 1;
            return None;
        };
        opened.images.push(image.clone());
        Some(image)
    }

    fn open(&self, offset: u64, roots: &[Arc<Root>]) -> Option<ReadyToRun> {
        let image = PeImage::around(&*self.file, offset)?;
        ReadyToRun::open(image, &*self.file, |id| self.component(id, roots))
    }

    /// Opens a component assembly of a composite image, which is in the same directory.
    fn component(&self, id: &AssemblyId, roots: &[Arc<Root>]) -> Option<Metadata> {
        let name = format!("{}.dll", id.name);
        if Path::new(&name).file_name() != Some(OsStr::new(&name)) {
            return None;
        }
        let path = self.path.with_file_name(&name);
        roots.iter().find_map(|root| {
            let file = root.open(&path).ok()?;
            PeImage::parse(&file, 0)?.metadata(&file)
        })
    }
}
