//! The helpers of the end-to-end tests.
//!
//! * [`Server`] – a redis-server of the test's own, which can be paused, killed and restarted
//! * [`Postgres`] – a PostgreSQL server of the test's own
//! * [`Pooler`] – a transaction pooler in front of it
//! * [`Etcd`] – an etcd cluster of the test's own, whose nodes can be cut off
//! * [`Clock`] – what a server reads the time from, set by the test
//! * [`Cluster`] – several of them that share the slots of a Redis Cluster, with replicas
//! * [`Admin`] – a plain connection that looks at the server from outside
//! * [`with_replicas`], [`Group`] – a primary with replicas, and with sentinels that watch over
//!   them
//! * [`Certificates`] – for servers that speak TLS
//! * [`Process`] – a program of the tests, in a process of its own
//! * [`Proxy`] – a network that delays, loses and cuts, by order
//! * [`Backend`] and [`on`] – one claim, and the stores it holds on
//! * [`Queue`](queue::Queue) – the waiters of a key, seen from outside
//! * [`log`] – what this process logs
//! * [`times`] – how long a test waits, and the ttls of its locks
//! * [`judged`] – the verdict on the history of a run
//! * [`eventually`], [`drop_after_polls`] – bounded waiting, and a future that goes at its k-th
//!   poll
//!
//! The servers are started by our own code and not by `redis-test`, because that crate does not
//! wait until a server answers, cannot pause it or start it again on its port, and leaves it
//! running when the test process is killed.

mod admin;
mod backend;
mod call;
mod certificates;
mod clock;
mod cluster;
mod errors;
mod etcd;
mod fenced;
mod group;
mod histories;
pub mod log;
mod managers;
mod names;
mod partition;
mod polls;
mod pooler;
mod port;
mod postgres;
mod process;
mod proxy;
pub mod queue;
mod server;
pub mod times;
mod wait;

pub use admin::Admin;
pub use backend::Backend;
pub use call::Call;
pub use certificates::Certificates;
pub use clock::Clock;
pub use cluster::{Cluster, Move};
pub use errors::is_no_runtime;
pub use etcd::Etcd;
pub use fenced::{AcquireFenced, is_in_time, is_not_late};
pub use group::{Group, with_replicas};
pub use histories::judged;
pub use lockmacro_tests_stores::on;
pub use managers::{through, within};
pub use names::{is_fence, queue_of};
pub use polls::{Polled, drop_after_polls, spawn_polled};
pub use pooler::Pooler;
pub use postgres::Postgres;
pub use process::Process;
pub use proxy::{Fault, Proxy};
pub use server::Server;
pub use wait::{block_until_lost, eventually, in_time, on_a_plain_thread, until_lost, watched};
