//! Names of precompiled methods, from the tables of the image they are in.
//!
//! ```text
//! COR header -> "RTR\0" u16 major, u16 minor, u32 flags, u32 n, (u32 type, u32 address, u32 size)[n]
//!   103 methods of the module: array by row of MethodDef -> position of the first function
//!   109 instances of generic methods: hash table of (signature, position of the first function)
//!   112 manifest: metadata that counts other assemblies on   118 their MVIDs
//!   115 assemblies of a composite image: (COR header, RTR header without mark), as the manifest counts them
//! signature of an instance: flags, [0x80 module], [0x40 type], row of MethodDef or, 0x10, MemberRef, [0x04 n, type[n]]
//! ```
//! A method has the functions up to the next method's: itself and its handlers.

use std::sync::Arc;

use super::metadata::Metadata;
use super::native_format::{Array, number, table_entries};
use super::pe::{Directory, PeImage};
use super::runtime_functions::RuntimeFunctions;
use super::signature;
use super::type_name::{self, arity, push_arguments};
use crate::memory::Memory;
use instance::Instance;
use sections::Sections;

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

/// What an assembly that an image refers to is known by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AssemblyId {
    /// Its simple name.
    pub name: String,
    /// The MVID of its module.
    pub mvid: [u8; 16],
}

/// The name of a precompiled method.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrecompiledName {
    /// The assembly's simple name.
    pub assembly: String,
    /// `Namespace.Type.Method<arguments>(parameters)`, types as in C#.
    pub method: String,
}

/// A precompiled image.
pub struct ReadyToRun {
    image: PeImage,
    functions: RuntimeFunctions,
    own: Option<Arc<Metadata>>,
    /// Its methods by the position of their first function.
    methods: Vec<(u32, MethodEntryPoint)>,
    instances: Vec<u8>,
    thunks: Directory,
    manifest: Option<Metadata>,
    mvids: Vec<[u8; 16]>,
    /// By row of the manifest.
    others: Vec<Option<Arc<Metadata>>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum MethodEntryPoint {
    /// A row of MethodDef, of the image's own module (0) or of one that the manifest counts.
    Method { module: u32, row: u32 },
    /// Where the signature of an instance is.
    Instance(u32),
}

impl ReadyToRun {
    /// The image in a file (its bytes by offset). `open` finds the assemblies that a composite image is made of.
    pub fn open(
        image: PeImage,
        file: &impl Memory,
        open: impl FnMut(&AssemblyId) -> Option<Metadata>,
    ) -> Option<Self> {
        let functions = RuntimeFunctions::of(&image, file)?;
        let bytes = image.by_address(file);
        let cor = image.cor_header(&bytes)?;
        let sections = Sections::read(&bytes, cor.native.address, true)?;
        let section = |kind| {
            let Directory { address, size } = sections.get(kind)?;
            bytes.vec(address.into(), size.into(), MAX_SECTION_BYTES)
        };
        let components = section(COMPONENTS).unwrap_or_default();
        let manifest = section(MANIFEST).and_then(Metadata::open);
        let mvids = section(MVIDS).unwrap_or_default();
        let is_composite = !components.is_empty();
        let mut ready = Self {
            own: match is_composite {
                true => None,
                false => Some(Arc::new(image.metadata(file)?)),
            },
            functions,
            methods: Vec::new(),
            instances: section(INSTANCES).unwrap_or_default(),
            thunks: sections.get(THUNKS).unwrap_or_default(),
            mvids: mvids.as_chunks().0.to_vec(),
            others: Vec::new(),
            manifest,
            image: image.clone(),
        };
        ready.find_others(open);
        if let Some(methods) = section(METHODS) {
            ready.add_methods(0, &methods);
        }
        let (components, _) = components.as_chunks::<16>();
        for (component, module) in components.iter().take(MAX_COMPONENTS).zip(1..) {
            let [.., a, b, c, d, _, _, _, _] = *component;
            let address = u32::from_le_bytes([a, b, c, d]);
            let methods = Sections::read(&bytes, address, false)
                .and_then(|sections| sections.get(METHODS))
                .and_then(|at| bytes.vec(at.address.into(), at.size.into(), MAX_SECTION_BYTES));
            ready.add_methods(module, &methods.unwrap_or_default());
        }
        ready.add_instances();
        ready.methods.sort_unstable();
        Some(ready)
    }

    fn find_others(&mut self, mut open: impl FnMut(&AssemblyId) -> Option<Metadata>) {
        let Some(manifest) = &self.manifest else {
            return;
        };
        let count = manifest.assembly_refs().min(MAX_COMPONENTS as u32);
        let others = (1..=count).zip(&self.mvids).map(|(row, mvid)| {
            let id = AssemblyId {
                name: manifest.assembly_ref(row)?.into_owned(),
                mvid: *mvid,
            };
            // What cannot be proved to be the right one is not used.
            let found = open(&id).filter(|found| found.mvid() == Some(id.mvid))?;
            Some(Arc::new(found))
        });
        self.others = others.collect();
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
                let bytes = Instance::read(self, at, false)?.bytes;
                let (function, _) = first_function(&self.instances, at.checked_add(bytes)?)?;
                Some((
                    function,
                    MethodEntryPoint::Instance(u32::try_from(at).ok()?),
                ))
            })
            .collect();
        self.methods.extend(instances);
    }

    /// The address of a byte of code by its place in the file.
    #[must_use]
    pub fn address_of(&self, file_offset: u64) -> Option<u64> {
        self.image.address_of(file_offset)
    }

    /// Whether an address is in a thunk, through which calls go until their target is known.
    #[must_use]
    pub fn is_thunk(&self, address: u64) -> bool {
        let Directory { address: at, size } = self.thunks;
        let within = address.checked_sub(at.into());
        within.is_some_and(|within| within < u64::from(size))
    }

    /// The name of the method that an address lies in.
    #[must_use]
    pub fn name(&self, address: u64) -> Option<PrecompiledName> {
        let (function, _) = self.functions.at(address)?;
        let behind = self
            .methods
            .partition_point(|(first, _)| *first <= function);
        let (_, entry) = self.methods.get(behind.checked_sub(1)?)?;
        match *entry {
            MethodEntryPoint::Method { module, row } => {
                let metadata = self.metadata(module)?;
                Self::method_name(metadata, row, &[], &[])
            }
            MethodEntryPoint::Instance(at) => Instance::read(self, at as usize, true)?.name,
        }
    }

    /// The image's own module (0), or one that the manifest counts.
    fn metadata(&self, module: u32) -> Option<&Metadata> {
        match module.checked_sub(1) {
            None => self.own.as_deref(),
            Some(index) => self.others.get(index as usize)?.as_deref(),
        }
    }

    fn method_name(
        metadata: &Metadata,
        row: u32,
        of_type: &[String],
        of_method: &[String],
    ) -> Option<PrecompiledName> {
        let definition = metadata.method(row)?;
        let owner = metadata.type_def_name(metadata.owner_of(row)?)?;
        if arity(&owner) != of_type.len() && !of_type.is_empty() {
            return None;
        }
        let mut method = format!("{}.{}", type_name::owner(&owner, of_type), definition.name);
        if !of_method.is_empty() {
            push_arguments(&mut method, of_method);
        }
        let in_module = signature::InModule {
            metadata,
            of_type,
            of_method,
        };
        let (parameters, _) = signature::parameters(definition.signature, &in_module)?;
        method.push_str(&parameters);
        Some(PrecompiledName {
            assembly: metadata.assembly()?.into_owned(),
            method,
        })
    }

    /// A module by the index in a signature. In a composite image the manifest counts from 2; elsewhere nothing is known
    /// to refer to other modules, and such signatures have no name.
    fn module_of_index(&self, index: u32) -> Option<u32> {
        match self.own {
            Some(_) => (index == 0).then_some(0),
            None => index.checked_sub(1).filter(|row| *row > 0),
        }
    }
}

/// The position of a method's first function, from its entry.
fn first_function(bytes: &[u8], at: usize) -> Option<(u32, usize)> {
    let (id, end) = number(bytes, at)?;
    // The rest tells what must be ready before the method may run.
    Some((if id & 1 != 0 { id >> 2 } else { id >> 1 }, end))
}
