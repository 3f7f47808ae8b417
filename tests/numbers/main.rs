//! What a Prometheus exporter shows of the metrics.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use lockmacro_runtime::{Lock, LockManager};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};

/// As [`docs/metrics.md`](../../docs/metrics.md) tells users to install it.
fn exporter() -> PrometheusHandle {
    let seconds = Matcher::Suffix("_seconds".to_owned());
    let builder = PrometheusBuilder::new();
    let builder = builder.set_buckets_for_metric(seconds, &[0.001, 0.01, 0.1, 1.0, 10.0]);
    builder.expect("there are buckets").install_recorder().expect("nobody else counts")
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The metrics that a file names.
fn named_in(file: &str) -> BTreeSet<String> {
    let text = std::fs::read_to_string(root().join(file)).expect(file);
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("lockmacro_")).map(str::to_owned).collect()
}

#[tokio::test]
async fn a_metric_has_its_sentence() {
    let shown = exporter();
    let locks = LockManager::isolated_memory();
    Lock::new("order:42").manager(&locks).skip_when_busy().run(async {}).await;
    let text = shown.render();
    let all = named_in("lockmacro-runtime/src/value/metrics.rs");
    assert!(all.contains("lockmacro_wait_seconds"), "{all:?}");
    let sentence = "# HELP lockmacro_wait_seconds Time from the request for a lock to the answer.";
    assert!(text.contains(sentence), "{text}");
}
