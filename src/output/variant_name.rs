//! Names of the variants of enums, as in JSON.

use serde::Serialize;

/// Returns the name that a variant without fields has in JSON. Empty for anything else.
pub(crate) fn variant_name(variant: impl Serialize) -> String {
    let name = serde_json::to_value(variant).unwrap_or_default();
    name.as_str().unwrap_or_default().to_owned()
}
