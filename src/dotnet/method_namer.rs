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
use super::method_name_error::{MethodDataError, MethodNameError, NamingDisabled};
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
    /// Error of the first failure.
    first_error: Option<MethodDataError>,
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
            first_error: None,
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
        let attempts = self.named.saturating_add(self.failed);
        match self.first_error {
            Some(error) if attempts >= MIN_ATTEMPTS && self.failed > self.named => {
                Err(NamingDisabled::Contradictory(error))
            }
            _ => Ok(types),
        }
    }

    /// Returns the name of a method. `is_collectible` is whether the runtime may free it.
    ///
    /// # Errors
    /// Naming is disabled, the method has been freed, or the data is inconsistent.
    pub fn name(
        &mut self,
        memory: &impl Memory,
        assemblies: &mut MetadataCache,
        method: MethodKey,
        is_collectible: bool,
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
            Err(MethodNameError::Dynamic(_) | MethodNameError::Disabled(_)) => {}
            // A freed method is not a failure.
            Err(MethodNameError::Method(_)) if is_collectible => {}
            Err(MethodNameError::Method(error)) => {
                self.failed = self.failed.saturating_add(1);
                self.first_error.get_or_insert(*error);
            }
        }
        name
    }
}

#[cfg(test)]
mod tests {
    use super::super::contract::DOTNET_8;
    use super::super::memory::{Image, ReadError};
    use super::*;
    use crate::trace::Pid;

    #[test]
    fn reports_the_first_error_when_most_methods_cannot_be_read() {
        let memory = Image {
            start: 0x1000,
            bytes: &[1; 8],
        };
        let runtime = Runtime::new(memory, DOTNET_8, 0x1000).unwrap();
        let mut namer = MethodNamer::of(ProcessId(0), MappedFiles::of(Pid(-1)), &runtime);
        let mut metadata = MetadataCache::default();
        for start in 0..u64::from(MIN_ATTEMPTS) {
            assert_eq!(namer.off(), None);
            let method_desc = 0x2000 + start;
            let method = MethodKey { start, method_desc };
            for is_collectible in [true, true, false] {
                let name = namer.name(&memory, &mut metadata, method, is_collectible);
                assert!(matches!(name, Err(MethodNameError::Method(_))), "{name:?}");
            }
        }
        let Some(NamingDisabled::Contradictory(MethodDataError::Read(error))) = namer.off() else {
            panic!("{:?}", namer.off());
        };
        let ReadError::Unreadable { address, .. } = error else {
            panic!("{error}");
        };
        assert!((0x2000..0x2010).contains(&address), "{error}");
    }
}
