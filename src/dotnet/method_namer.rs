//! Names compiled methods from the runtime's data structures in the memory of the process.
//!
//! This needs no cooperation of the process, so the process may be stopped or have its diagnostic
//! port disabled. The assembly's metadata verifies every name: the type that declares the method
//! must be the type of the runtime's MethodTable. Inconsistent data gives no name.

use std::fmt;

use super::memory::Memory;
use super::metadata_cache::{Images, MetadataCache};
use super::method::MethodKey;
use super::method_name::MethodName;
use super::method_reader::NamedMethod;
use super::runtime::Runtime;
use super::tier::Tiers;
use super::type_reader::TypeReader;
use super::type_system::TypeSystem;
use crate::machine::MappedFiles;
use crate::trace::ProcessId;

/// Number of attempts before failures disable naming. With an unexpected layout, nearly all fail.
const MIN_ATTEMPTS: u32 = 20;

/// The reason why perfcollect does not name a process's methods from its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NamingDisabled {
    /// The version of the runtime's type system is not supported.
    UnknownVersion,
    /// The runtime's data structures are inconsistent.
    Contradictory,
}

impl fmt::Display for NamingDisabled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::UnknownVersion => "the data structures of this .NET version are not supported",
            Self::Contradictory => "the runtime's data structures are inconsistent",
        })
    }
}

/// Names the methods of one process.
#[derive(Debug)]
pub struct MethodNamer {
    types: Option<TypeSystem>,
    tiers: Tiers,
    images: Images,
    named: u32,
    failed: u32,
}

impl MethodNamer {
    /// Creates a namer for a process with this runtime.
    #[must_use]
    pub fn of<M: Memory>(process: ProcessId, files: MappedFiles, runtime: &Runtime<M>) -> Self {
        Self {
            types: runtime.types(),
            tiers: Tiers::new(runtime.dac_table()),
            images: Images::new(process, files),
            named: 0,
            failed: 0,
        }
    }

    /// Returns the reason if naming is disabled.
    #[must_use]
    pub fn off(&self) -> Option<NamingDisabled> {
        if self.types.is_none() {
            return Some(NamingDisabled::UnknownVersion);
        }
        let attempts = self.named + self.failed;
        (attempts >= MIN_ATTEMPTS && self.failed > self.named)
            .then_some(NamingDisabled::Contradictory)
    }

    /// Returns the name of a method, or `None` if it has been freed or the data is inconsistent.
    pub fn name(
        &mut self,
        memory: &impl Memory,
        assemblies: &mut MetadataCache,
        method: MethodKey,
    ) -> Option<MethodName> {
        if self.off().is_some() {
            return None;
        }
        let mut reader = TypeReader {
            memory,
            types: self.types?,
            assemblies,
            images: &mut self.images,
        };
        let name = reader.name(method, &mut self.tiers);
        match &name {
            Some(NamedMethod { name: Some(_), .. }) => self.named = self.named.saturating_add(1),
            // A freed method is not a failure.
            Some(NamedMethod {
                is_dynamic: true, ..
            }) => {}
            _ => self.failed = self.failed.saturating_add(1),
        }
        name?.name
    }
}
