//! Names of .NET methods: images (PE), their metadata (ECMA-335), signatures, how types are spelled.

mod element;
pub mod metadata;
pub mod pe;
mod schema;
pub mod signature;
pub mod type_name;
