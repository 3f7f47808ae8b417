//! Which server has a key: one server, the primary that sentinels name, or the nodes of a cluster.

pub(crate) mod cluster;
pub(crate) mod redirect;
pub(crate) mod route;
pub(crate) mod slot_map;
