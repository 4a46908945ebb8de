//! From a compiled method to its name, by the runtime's own records in the memory of the process.
//!
//! Nothing is asked of the process, so this works whether it runs or not, and with its diagnostics off. Every name is
//! proved by the assembly's metadata: the type that owns the method there must be the type the runtime has it on. Where
//! something does not fit there is no name.

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

/// Refusals are judged from this many names on: by chance, or where the layout is another, nearly all fail.
const TRIAL: u32 = 20;

/// Why a process's methods are no longer named from its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NamingDisabled {
    /// The runtime's records follow rules that are not known here.
    UnknownVersion,
    /// What was read did not fit together.
    Contradictory,
}

impl fmt::Display for NamingDisabled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::UnknownVersion => "this version of .NET keeps them in a way that is not known",
            Self::Contradictory => "the runtime's records do not fit together",
        })
    }
}

/// The names of the methods of one process.
#[derive(Debug)]
pub struct MethodNamer {
    types: Option<TypeSystem>,
    tiers: Tiers,
    images: Images,
    found: u32,
    refused: u32,
}

impl MethodNamer {
    /// Those of a process with this runtime.
    #[must_use]
    pub fn of<M: Memory>(process: ProcessId, files: MappedFiles, runtime: &Runtime<M>) -> Self {
        Self {
            types: runtime.types(),
            tiers: Tiers::new(runtime.dac_table()),
            images: Images::of(process, files),
            found: 0,
            refused: 0,
        }
    }

    /// Why there are none, if there are none.
    #[must_use]
    pub fn off(&self) -> Option<NamingDisabled> {
        if self.types.is_none() {
            return Some(NamingDisabled::UnknownVersion);
        }
        let tried = self.found + self.refused;
        (tried >= TRIAL && self.refused > self.found).then_some(NamingDisabled::Contradictory)
    }

    /// The name of a method. `None`: it is gone, or what is there does not fit together.
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
            Some(NamedMethod { name: Some(_), .. }) => self.found = self.found.saturating_add(1),
            // A method that was freed is no contradiction.
            Some(NamedMethod {
                is_dynamic: true, ..
            }) => {}
            _ => self.refused = self.refused.saturating_add(1),
        }
        name?.name
    }
}
