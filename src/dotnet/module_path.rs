//! Paths of modules, from the memory of their process.

use super::memory::{Memory, Structure};
use super::method_name_error::{MethodDataError, MethodNameError, NamingDisabled};
use super::runtime::Runtime;
use super::type_reader::c_string;
use super::type_system::ModuleFields;
use crate::bytes::Bytes;

/// Size limit of a path.
const MAX_BYTES: usize = 8192;

impl<M: Memory> Runtime<M> {
    /// Returns the path of a module's file. Of a module without a file, and in .NET 8, this is the
    /// simple name with `.dll`.
    ///
    /// `module` is the id of the module in events, which is its address.
    ///
    /// # Errors
    /// The version is not supported, or no module is at the address.
    pub fn module_path(&self, module: u64) -> Result<String, MethodNameError> {
        let types = self.types().map_err(NamingDisabled::UnknownVersion)?;
        Ok(path_or_name(self.memory(), module, types.module)?)
    }
}

fn path_or_name(
    memory: &impl Memory,
    module: u64,
    fields: ModuleFields,
) -> Result<String, MethodDataError> {
    let module = Structure::new(memory, module);
    if let Some(offset) = fields.path {
        let mut bytes = [0; MAX_BYTES];
        let read = memory.read(module.u64(offset)?, &mut bytes);
        let path = Bytes(bytes.get(..read).unwrap_or_default()).utf16z();
        if let Some(path) = path.filter(|path| !path.is_empty()) {
            return Ok(path);
        }
    }
    let name = c_string(memory, module.u64(fields.name)?)?;
    Ok(format!("{name}.dll"))
}
