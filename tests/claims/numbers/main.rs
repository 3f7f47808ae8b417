//! What a Prometheus exporter shows of the metrics. Tests differ by the names of their locks.

mod contended;
mod exported;

use std::sync::LazyLock;

use lockmacro_runtime::{Lock, LockManager};
use lockmacro_tests::times::LONG_TTL;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};

/// Installed as `docs/reference/metrics.md` tells users to do it, before the first manager is made.
static EXPORTER: LazyLock<PrometheusHandle> = LazyLock::new(|| {
    let seconds = Matcher::Suffix("_seconds".to_owned());
    let builder = PrometheusBuilder::new();
    let builder = builder.set_buckets_for_metric(seconds, &[0.001, 0.01, 0.1, 1.0, 10.0]);
    builder.expect("there are buckets").install_recorder().expect("nobody else counts")
});

/// The sum of a metric over all lines with these labels.
fn value(metric: &str, labels: &[(&str, &str)]) -> f64 {
    let text = EXPORTER.render();
    let lines = text.lines().filter_map(|line| line.strip_prefix(metric)?.strip_prefix('{'));
    let with = |line: &&str| labels.iter().all(|(l, v)| line.contains(&format!("{l}=\"{v}\"")));
    let values = lines.filter(with).filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok());
    values.sum()
}

fn lock(manager: &LockManager, key: &str, name: &'static str) -> Lock {
    LazyLock::force(&EXPORTER);
    Lock::new(key).ttl(LONG_TTL).name(name).manager(manager)
}
