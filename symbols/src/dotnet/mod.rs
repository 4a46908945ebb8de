//! Names of .NET methods: PE images, metadata (ECMA-335), signatures and C# type names.

mod element;
pub(crate) mod il_text;
pub mod metadata;
mod native_format;
pub mod pe;
pub mod ready_to_run;
pub mod runtime_functions;
mod schema;
pub mod signature;
pub mod type_name;
