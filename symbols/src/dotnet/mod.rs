//! Names of .NET methods: images (PE), their metadata (ECMA-335), signatures, how types are spelled.

mod element;
pub(crate) mod il_text;
pub mod metadata;
pub mod pe;
mod schema;
pub mod signature;
pub mod type_name;
