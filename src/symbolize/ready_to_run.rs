//! Functions of .NET code that was compiled ahead of time, by the tables of the image it is in.

use std::fs::File;
use std::path::Path;

use perfcollect_symbols::dotnet::metadata::Metadata;
use perfcollect_symbols::dotnet::pe::PeImage;
use perfcollect_symbols::dotnet::ready_to_run::{AssemblyId, ReadyToRun};

use crate::dotnet::FileBytes;
use crate::machine::{CodeFile, Content, Root};
use crate::trace::{Function, FunctionKind};

/// Searches of a file for an image that may fail; each reads up to 64 MB.
const MAX_FAILURES: u32 = 4;
/// What such code is called in place of a tier, in the runtime's word.
const TIER: &str = "ReadyToRun";
/// Through which precompiled code calls methods that may not be ready.
const THUNK: &str = "[stub] MethodCallThunk";

/// The images of a file: one as a rule, many in a single-file program.
pub(super) struct Images<'a> {
    file: &'a CodeFile,
    found: Vec<ReadyToRun>,
    failures: u32,
}

impl<'a> Images<'a> {
    pub(super) fn of(file: &'a CodeFile) -> Self {
        Self {
            file,
            found: Vec::new(),
            failures: 0,
        }
    }

    /// The function at an offset of the file; `None`: no image is there. `module` is for code whose assembly is not known.
    pub(super) fn function(&mut self, offset: u64, module: &str) -> Option<Function> {
        let image = self.image(offset)?;
        let address = image.address_of(offset)?;
        let (name, assembly) = match image.name(address) {
            Some(name) => (Some(name.method), name.assembly),
            None if image.is_thunk(address) => (Some(THUNK.to_owned()), module.to_owned()),
            None => (None, module.to_owned()),
        };
        Some(Function {
            name: name.map(Into::into),
            module: assembly.into(),
            tier: Some(TIER.into()),
            kind: FunctionKind::ReadyToRun,
            start: None,
            inlined: false,
        })
    }

    fn image(&mut self, offset: u64) -> Option<&ReadyToRun> {
        let known = self
            .found
            .iter()
            .position(|image| image.address_of(offset).is_some());
        let index = match known {
            Some(index) => index,
            None => {
                let found = self.open(offset);
                self.failures += u32::from(found.is_none());
                self.found.push(found?);
                self.found.len() - 1
            }
        };
        self.found.get(index)
    }

    fn open(&self, offset: u64) -> Option<ReadyToRun> {
        let Content::File(file) = &self.file.content else {
            return None;
        };
        if self.failures >= MAX_FAILURES {
            return None;
        }
        let bytes = FileBytes(file);
        let image = PeImage::around(&bytes, offset)?;
        ReadyToRun::open(image, &bytes, |id| self.beside(id))
    }

    /// An assembly that a composite image is made of: it lies in the same folder.
    fn beside(&self, id: &AssemblyId) -> Option<Metadata> {
        let name = format!("{}.dll", id.name);
        let is_plain = Path::new(&name).file_name() == Some(name.as_ref());
        let path = self.file.clean_path().with_file_name(&name);
        let roots = [Root::of(self.file.pid), Root::host()];
        roots
            .into_iter()
            .filter(|_| is_plain)
            .find_map(|root| metadata(&root.ok()?.open(&path).ok()?))
    }
}

fn metadata(file: &File) -> Option<Metadata> {
    let bytes = FileBytes(file);
    PeImage::parse(&bytes, 0)?.metadata(&bytes)
}
