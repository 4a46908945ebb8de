//! Names compiled methods from the runtime's data structures in the memory of the process.
//!
//! This needs no cooperation of the process, so the process may be stopped or have its diagnostic
//! port disabled. The assembly's metadata verifies every name: the type that declares the method
//! must be the type of the runtime's MethodTable. Inconsistent data gives no name.

use super::contract_error::TypeSystemError;
use super::memory::Memory;
use super::metadata_cache::{Images, MetadataCache};
use super::method::MethodKey;
use super::method_name::MethodName;
use super::method_name_error::{MethodNameError, NamingDisabled};
use super::runtime::Runtime;
use super::tier::Tiers;
use super::type_reader::TypeReader;
use super::type_system::TypeSystem;
use crate::machine::MappedFiles;
use crate::trace::ProcessId;

/// Number of attempts before failures disable naming. With an unexpected layout, nearly all fail.
const MIN_ATTEMPTS: u32 = 20;

/// Names the methods of one process.
#[derive(Debug)]
pub struct MethodNamer {
    types: Result<TypeSystem, TypeSystemError>,
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
        self.enabled().err()
    }

    /// Returns the layout of the runtime's types, or the reason if naming is disabled.
    fn enabled(&self) -> Result<TypeSystem, NamingDisabled> {
        let types = self.types.map_err(NamingDisabled::UnknownVersion)?;
        let attempts = self.named + self.failed;
        match attempts >= MIN_ATTEMPTS && self.failed > self.named {
            true => Err(NamingDisabled::Contradictory),
            false => Ok(types),
        }
    }

    /// Returns the name of a method.
    ///
    /// # Errors
    /// Naming is disabled, the method has been freed, or the data is inconsistent.
    pub fn name(
        &mut self,
        memory: &impl Memory,
        assemblies: &mut MetadataCache,
        method: MethodKey,
    ) -> Result<MethodName, MethodNameError> {
        let mut reader = TypeReader {
            memory,
            types: self.enabled()?,
            assemblies,
            images: &mut self.images,
        };
        let name = reader.name(method, &mut self.tiers);
        match &name {
            Ok(_) => self.named = self.named.saturating_add(1),
            // A freed method is not a failure.
            Err(MethodNameError::Dynamic(_)) => {}
            Err(_) => self.failed = self.failed.saturating_add(1),
        }
        name
    }
}
