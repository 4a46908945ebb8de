//! The ReadyToRun images of a file: one as a rule, many in a single-file program.

use std::ffi::OsStr;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use super::debug_files::DebugFiles;
use super::frame::{Evidence, Frame, Unresolved};
use crate::dotnet::metadata::Metadata;
use crate::dotnet::pe::{PeError, PeImage};
use crate::dotnet::ready_to_run::{AssemblyId, ReadyToRun, ReadyToRunError};

/// Limit of failed searches for an image in a file; each reads up to 64 MB.
const MAX_FAILURES: usize = 4;
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
    failures: Vec<ReadyToRunError>,
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
    /// # Errors
    /// No image is there, it cannot be used, or its tables name no method there.
    pub(super) fn frame(
        &self,
        offset: u64,
        debug_files: &DebugFiles,
    ) -> Result<Frame<'static>, Unresolved> {
        let image = self
            .image(offset, debug_files)
            .map_err(|error| match error {
                ReadyToRunError::Pe(PeError::NoImage(_)) => Unresolved::Unmapped,
                error => Unresolved::Image(error),
            })?;
        let address = image.address_of(offset).ok_or(Unresolved::Unmapped)?;
        let frame = |name: String, assembly: Option<String>| Frame {
            module: assembly.map(Into::into),
            ..Frame::new(name.into_bytes(), Evidence::ReadyToRun)
        };
        match image.name(address) {
            Ok(name) => Ok(frame(name.method, Some(name.assembly))),
            Err(_) if image.is_thunk(address) => Ok(frame(THUNK.to_owned(), None)),
            Err(error) => Err(Unresolved::NoMethod(error)),
        }
    }

    fn image(
        &self,
        offset: u64,
        debug_files: &DebugFiles,
    ) -> Result<Arc<ReadyToRun>, ReadyToRunError> {
        let opened = self.opened.lock();
        let mut opened = opened.unwrap_or_else(PoisonError::into_inner);
        let contains = |image: &&Arc<ReadyToRun>| image.address_of(offset).is_some();
        if let Some(image) = opened.images.iter().find(contains) {
            return Ok(image.clone());
        }
        if let Some(last) = opened.failures.get(MAX_FAILURES - 1) {
            return Err(*last);
        }
        match self.open(offset, debug_files) {
            Ok(image) => {
                let image = Arc::new(image);
                opened.images.push(image.clone());
                Ok(image)
            }
            Err(error) => {
                opened.failures.push(error);
                Err(error)
            }
        }
    }

    fn open(&self, offset: u64, debug_files: &DebugFiles) -> Result<ReadyToRun, ReadyToRunError> {
        let image = PeImage::around(&*self.file, offset)?;
        ReadyToRun::open(image, &*self.file, |id| self.component(id, debug_files))
    }

    /// Opens a component assembly of a composite image, which is in the same directory.
    fn component(&self, id: &AssemblyId, debug_files: &DebugFiles) -> Option<Metadata> {
        let name = format!("{}.dll", id.name);
        if Path::new(&name).file_name() != Some(OsStr::new(&name)) {
            return None;
        }
        let path = self.path.with_file_name(&name);
        debug_files.roots.iter().find_map(|root| {
            let file = debug_files.open(root, &path).ok()?;
            PeImage::parse(&file, 0).ok()?.metadata(&file).ok()
        })
    }
}
