//! The server that has a key: a single one, the primary that sentinels name, or a node of a
//! cluster.

pub(crate) mod cluster;
pub(crate) mod route;
