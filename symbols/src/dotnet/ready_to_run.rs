//! Names of ReadyToRun methods, from the tables of their image.
//!
//! ```text
//! COR header -> "RTR\0" u16 major, u16 minor, u32 flags, u32 n, (u32 type, u32 address, u32 size)[n]
//!   103 methods of the module: array by row of MethodDef -> index of the first function
//!   109 instances of generic methods: hash table of (signature, index of the first function)
//!   112 manifest: metadata that references more assemblies   118 their MVIDs
//!   115 assemblies of a composite image: (COR header, RTR header without magic), in the manifest's order
//! signature of an instance: flags, [0x80 module], [0x40 type], row of MethodDef or, 0x10, MemberRef, [0x04 n, type[n]]
//! ```
//! A method owns the functions up to the first function of the next method: its body and funclets.

use std::collections::HashMap;
use std::sync::Arc;

use super::metadata::Metadata;
use super::native_format::{Array, read_unsigned, table_entries};
use super::pe::{Directory, PeImage};
use super::runtime_functions::RuntimeFunctions;
use super::signature;
use super::type_name::{self, arity, push_arguments};
use crate::memory::Memory;
use instance::Instance;
use sections::Sections;

pub use error::ReadyToRunError;

mod error;
mod instance;
mod sections;

const METHODS: u32 = 103;
const THUNKS: u32 = 106;
const INSTANCES: u32 = 109;
const MANIFEST: u32 = 112;
const COMPONENTS: u32 = 115;
const MVIDS: u32 = 118;
const MAX_SECTION_BYTES: usize = 64 << 20;
const MAX_COMPONENTS: usize = 4096;
/// Limit of the metadata of all referenced assemblies. Those of the framework have 40 MB.
const MAX_REFERENCES_BYTES: usize = 256 << 20;

/// Identity of an assembly that an image references.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AssemblyId {
    /// The assembly's simple name.
    pub name: String,
    /// The MVID of the assembly's module.
    pub mvid: [u8; 16],
}

/// The name of a ReadyToRun method.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadyToRunName {
    /// The assembly's simple name.
    pub assembly: String,
    /// `Namespace.Type.Method<arguments>(parameters)`, types as in C#.
    pub method: String,
}

/// First major version with resumption stubs of async methods.
///
/// They have no entry in the tables of methods, so a function that is not the first one of a method
/// may be such a stub instead of a part of the method, and has no name.
const RESUMPTION_STUBS: u16 = 25;

/// A ReadyToRun image.
pub struct ReadyToRun {
    image: PeImage,
    major: u16,
    functions: RuntimeFunctions,
    /// The metadata of the image's module. `None` for a composite image.
    module: Option<Arc<Metadata>>,
    /// The methods, sorted by the index of their first function.
    methods: Vec<(u32, MethodEntryPoint)>,
    instances: Vec<u8>,
    thunks: Directory,
    manifest: Option<Metadata>,
    mvids: Vec<[u8; 16]>,
    /// The metadata of referenced assemblies, by row of the manifest.
    references: Vec<Option<Arc<Metadata>>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum MethodEntryPoint {
    /// A row of MethodDef, in the image's module (0) or in an assembly of the manifest (row).
    Method { module: u32, row: u32 },
    /// Offset of the signature of an instance.
    Instance(u32),
}

impl ReadyToRun {
    /// Opens the image of a file. `file` provides the file's bytes by offset.
    ///
    /// `open` finds the component assemblies of a composite image. Methods of assemblies that it
    /// does not find, and of corrupt tables, have no name.
    ///
    /// # Errors
    /// The image is for another machine, or its functions, its ReadyToRun header or the metadata of
    /// its module are corrupt.
    pub fn open(
        image: PeImage,
        file: &impl Memory,
        open: impl FnMut(&AssemblyId) -> Option<Metadata>,
    ) -> Result<Self, ReadyToRunError> {
        let functions = RuntimeFunctions::of(&image, file)?;
        let bytes = image.by_address(file);
        let cor = image.cor_header(&bytes)?;
        let major = sections::major_version(&bytes, cor.native.address)?;
        let sections = Sections::read(&bytes, cor.native.address, true)?;
        let section_of = |sections: &Sections, kind| {
            let Directory { address, size } = sections.get(kind)?;
            let section = bytes.vec(address.into(), size.into(), MAX_SECTION_BYTES);
            section.ok()
        };
        let section = |kind| section_of(&sections, kind);
        let components = section(COMPONENTS).unwrap_or_default();
        let manifest = section(MANIFEST).and_then(|bytes| Metadata::open(bytes).ok());
        let mvids = section(MVIDS).unwrap_or_default();
        let is_composite = !components.is_empty();
        let mut ready = Self {
            module: match is_composite {
                true => None,
                false => Some(Arc::new(image.metadata(file)?)),
            },
            major,
            functions,
            methods: Vec::new(),
            instances: section(INSTANCES).unwrap_or_default(),
            thunks: sections.get(THUNKS).unwrap_or_default(),
            mvids: mvids.as_chunks().0.to_vec(),
            references: Vec::new(),
            manifest,
            image: image.clone(),
        };
        ready.open_references(open);
        if let Some(methods) = section(METHODS) {
            ready.add_methods(0, &methods);
        }
        let (components, _) = components.as_chunks::<16>();
        for (component, module) in components.iter().take(MAX_COMPONENTS).zip(1..) {
            let [.., a, b, c, d, _, _, _, _] = *component;
            let address = u32::from_le_bytes([a, b, c, d]);
            let methods = Sections::read(&bytes, address, false)
                .ok()
                .and_then(|sections| section_of(&sections, METHODS));
            ready.add_methods(module, &methods.unwrap_or_default());
        }
        ready.add_instances();
        ready.methods.sort_unstable();
        Ok(ready)
    }

    fn open_references(&mut self, mut open: impl FnMut(&AssemblyId) -> Option<Metadata>) {
        let Some(manifest) = &self.manifest else {
            return;
        };
        let count = manifest.assembly_refs().min(MAX_COMPONENTS as u32);
        let mut opened: HashMap<AssemblyId, Option<Arc<Metadata>>> = HashMap::new();
        let mut left_bytes = MAX_REFERENCES_BYTES;
        let references = (1..=count).zip(&self.mvids).map(|(row, mvid)| {
            let id = AssemblyId {
                name: manifest.assembly_ref(row).ok()?.into_owned(),
                mvid: *mvid,
            };
            if let Some(opened) = opened.get(&id) {
                return opened.clone();
            }
            // An assembly whose MVID does not match is another build and would give wrong names.
            let metadata = (left_bytes > 0).then(|| open(&id)).flatten();
            let metadata = metadata.filter(|metadata| metadata.mvid() == Some(id.mvid));
            let metadata = metadata.map(Arc::new);
            let bytes = metadata
                .as_ref()
                .map_or(0, |metadata| metadata.size_bytes());
            left_bytes = left_bytes.saturating_sub(bytes);
            opened.insert(id, metadata.clone());
            metadata
        });
        self.references = references.collect();
    }

    fn add_methods(&mut self, module: u32, table: &[u8]) {
        let Some(array) = Array::open(table) else {
            return;
        };
        let count = array.len.min(table.len() as u32);
        self.methods.extend((0..count).filter_map(|index| {
            let (function, _) = first_function(table, array.at(index)?)?;
            let row = index + 1;
            Some((function, MethodEntryPoint::Method { module, row }))
        }));
    }

    fn add_instances(&mut self) {
        let instances = table_entries(&self.instances).into_iter();
        let instances: Vec<_> = instances
            .filter_map(|at| {
                let bytes = Instance::read(self, at, false).ok()?.bytes;
                let (function, _) = first_function(&self.instances, at.checked_add(bytes)?)?;
                Some((
                    function,
                    MethodEntryPoint::Instance(u32::try_from(at).ok()?),
                ))
            })
            .collect();
        self.methods.extend(instances);
    }

    /// Returns the address of the code at a file offset.
    #[must_use]
    pub fn address_of(&self, file_offset: u64) -> Option<u64> {
        self.image.address_of(file_offset)
    }

    /// Returns whether an address is in a delay-load thunk. Calls go through a thunk until their
    /// target is resolved.
    #[must_use]
    pub fn is_thunk(&self, address: u64) -> bool {
        let Directory {
            address: start,
            size,
        } = self.thunks;
        let delta = address.checked_sub(start.into());
        delta.is_some_and(|delta| delta < u64::from(size))
    }

    /// Returns the name of the method that contains an address.
    ///
    /// # Errors
    /// No method is there, its assembly is not available, or the tables are corrupt.
    pub fn name(&self, address: u64) -> Result<ReadyToRunName, ReadyToRunError> {
        let function = self.functions.at(address);
        let (function, _) = function.ok_or(ReadyToRunError::NoFunction(address))?;
        let next = self
            .methods
            .partition_point(|(first, _)| *first <= function);
        let entry = next.checked_sub(1).and_then(|last| self.methods.get(last));
        let no_method = ReadyToRunError::NoMethod(function);
        let (first, entry) = entry.ok_or(no_method)?;
        if self.major >= RESUMPTION_STUBS && *first != function {
            return Err(no_method);
        }
        match *entry {
            MethodEntryPoint::Method { module, row } => {
                Self::method_name(self.metadata(module)?, row, &[], &[])
            }
            MethodEntryPoint::Instance(at) => Instance::read(self, at as usize, true)?.name(self),
        }
    }

    /// Returns the metadata of the image's module (0) or of an assembly of the manifest (row).
    fn metadata(&self, module: u32) -> Result<&Metadata, ReadyToRunError> {
        let metadata = match module.checked_sub(1) {
            None => self.module.as_ref(),
            Some(index) => self.references.get(index as usize).and_then(Option::as_ref),
        };
        let metadata = metadata.ok_or(ReadyToRunError::NoAssembly(module))?;
        Ok(metadata)
    }

    fn method_name(
        metadata: &Metadata,
        row: u32,
        type_arguments: &[String],
        method_arguments: &[String],
    ) -> Result<ReadyToRunName, ReadyToRunError> {
        let definition = metadata.method(row)?;
        let owner = metadata.type_def_name(metadata.owner_of(row)?)?;
        let (found, expected) = (type_arguments.len(), arity(&owner));
        if found != expected && found > 0 {
            return Err(ReadyToRunError::Arity { found, expected });
        }
        let owner = type_name::owner(&owner, type_arguments);
        let mut method = format!("{owner}.{}", definition.name);
        if !method_arguments.is_empty() {
            push_arguments(&mut method, method_arguments);
        }
        let in_module = signature::InModule {
            metadata,
            of_type: type_arguments,
            of_method: method_arguments,
        };
        let (parameters, _) = signature::parameters(definition.signature, &in_module)?;
        method.push_str(&parameters);
        Ok(ReadyToRunName {
            assembly: metadata.assembly()?.into_owned(),
            method,
        })
    }

    /// Translates the module index of a signature to a row of the manifest.
    ///
    /// In a composite image the manifest's assemblies start at index 2. In other images no
    /// signature is known to reference another module: such signatures have no name.
    fn module_of_index(&self, index: u32) -> Result<u32, ReadyToRunError> {
        let module = match self.module {
            Some(_) => (index == 0).then_some(0),
            None => index.checked_sub(1).filter(|row| *row > 0),
        };
        module.ok_or(ReadyToRunError::NoModule(index))
    }
}

/// Reads the index of a method's first function from the method's entry.
fn first_function(bytes: &[u8], at: usize) -> Option<(u32, usize)> {
    let (id, end) = read_unsigned(bytes, at)?;
    // The low bits describe the fixups that must be resolved before the method may run.
    Some((if id & 1 != 0 { id >> 2 } else { id >> 1 }, end))
}
