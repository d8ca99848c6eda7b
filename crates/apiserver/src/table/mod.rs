//! Tables: what `kubectl get` shows.

use crate::types::Column;

/// The columns of a built-in resource.
pub(crate) fn builtin_columns(_group: &str, _plural: &str) -> Vec<Column> {
    Vec::new()
}
