// SPDX-License-Identifier: Apache-2.0
#include "runtime/observe/metrics.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <thread>

#include "runtime/core/result.hpp"

namespace maestro {
namespace {

TEST(MetricRegistry, counts_by_section_and_replica) {
  MetricRegistry registry;
  const auto steps = registry.counter("maestro_steps_total", "Steps.");
  registry.add(steps, {"student", ReplicaIndex(0)});
  registry.add(steps, {"student", ReplicaIndex(1)}, 5);
  registry.add(steps, {"student", ReplicaIndex(0)}, 2);
  EXPECT_EQ(registry.value(steps, {"student", ReplicaIndex(0)}), 3);
  EXPECT_EQ(registry.value(steps, {"student", ReplicaIndex(1)}), 5);
  EXPECT_EQ(registry.value(steps, {"student", {}}), 0);
}

TEST(MetricRegistry, a_gauge_holds_the_last_value) {
  MetricRegistry registry;
  const auto loss = registry.gauge("maestro_loss", "Loss.");
  EXPECT_EQ(registry.value(loss, {"student", {}}), std::nullopt);
  registry.set(loss, {"student", {}}, 2.0);
  registry.set(loss, {"student", {}}, 1.5);
  EXPECT_EQ(registry.value(loss, {"student", {}}), 1.5);
}

TEST(MetricRegistry, a_name_registered_again_is_the_same_metric) {
  MetricRegistry registry;
  const auto first = registry.counter("a_total", "A.");
  const auto other = registry.counter("b_total", "B.");
  EXPECT_EQ(registry.counter("a_total", "A."), first);
  EXPECT_NE(first, other);
}

TEST(MetricRegistry, a_name_is_of_one_kind) {  // MR-2
  MetricRegistry registry;
  (void)registry.counter("a", "A.");
  EXPECT_THROW((void)registry.gauge("a", "A."), JobError);
  EXPECT_THROW((void)registry.histogram("a", "A."), JobError);
  (void)registry.histogram("b", "B.");
  EXPECT_THROW((void)registry.counter("b", "B."), JobError);
}

TEST(MetricRegistry, a_name_prometheus_would_refuse_is_refused) {
  MetricRegistry registry;
  for (const auto* name : {"", "1a", "a-b", "a b", "a\n"}) EXPECT_THROW((void)registry.gauge(name, ""), JobError);
  EXPECT_NO_THROW((void)registry.gauge("_a:b2", ""));
}

TEST(MetricRegistry, exposes_prometheus_text) {
  MetricRegistry registry;
  const auto bytes = registry.counter("maestro_bytes_total", "Bytes \\ sent\nby edge.");
  const auto lr = registry.gauge("maestro_lr", "Learning rate.");
  (void)registry.gauge("maestro_unused", "Never set.");
  registry.add(bytes, {"a\"b\\c\n", ReplicaIndex(1)}, 9007199254740991);
  registry.add(bytes, {}, 7);
  registry.add(bytes, {}, 0.25);
  registry.set(lr, {"student", {}}, 3e-4);
  registry.set(lr, {"teacher", {}}, std::numeric_limits<double>::quiet_NaN());
  registry.set(lr, {"x", {}}, std::numeric_limits<double>::infinity());
  registry.set(lr, {"y", {}}, -std::numeric_limits<double>::infinity());
  EXPECT_EQ(registry.prometheus_text(),
            "# HELP maestro_bytes_total Bytes \\\\ sent\\nby edge.\n"
            "# TYPE maestro_bytes_total counter\n"
            "maestro_bytes_total 7.25\n"
            "maestro_bytes_total{section=\"a\\\"b\\\\c\\n\",replica=\"1\"} 9007199254740991\n"
            "# HELP maestro_lr Learning rate.\n"
            "# TYPE maestro_lr gauge\n"
            "maestro_lr{section=\"student\"} 3e-04\n"
            "maestro_lr{section=\"teacher\"} NaN\n"
            "maestro_lr{section=\"x\"} +Inf\n"
            "maestro_lr{section=\"y\"} -Inf\n");
}

TEST(MetricRegistry, exposes_a_histogram_with_rising_counts) {
  MetricRegistry registry;
  Histogram seconds({0.5, 2});
  for (const double value : {0.1, 0.5, 1.0, 100.0}) seconds.observe(value);
  EXPECT_EQ(seconds.count(), 4u);
  registry.set(registry.histogram("maestro_step_seconds", "Steps."), {{}, {}, {{"kind", "a"}}}, seconds);
  EXPECT_EQ(registry.prometheus_text(),
            "# HELP maestro_step_seconds Steps.\n"
            "# TYPE maestro_step_seconds histogram\n"
            "maestro_step_seconds_bucket{kind=\"a\",le=\"0.5\"} 2\n"
            "maestro_step_seconds_bucket{kind=\"a\",le=\"2\"} 3\n"
            "maestro_step_seconds_bucket{kind=\"a\",le=\"+Inf\"} 4\n"
            "maestro_step_seconds_sum{kind=\"a\"} 101.6\n"
            "maestro_step_seconds_count{kind=\"a\"} 4\n");
}

TEST(MetricRegistry, counts_of_many_threads_all_arrive_and_none_falls) {  // MR-1
  MetricRegistry registry;
  const auto counter = registry.counter("c", "");
  constexpr int threads = 4, adds = 2000;
  std::vector<std::thread> workers;
  for (int t = 0; t < threads; ++t) {
    workers.emplace_back([&, t] {
      double last = 0;
      for (int i = 0; i < adds; ++i) {
        registry.add(counter, {"shared", {}});
        const double now = registry.value(counter, {"shared", {}});
        EXPECT_GT(now, last);
        last = now;
        registry.add(counter, {"own", ReplicaIndex(static_cast<std::uint32_t>(t))});
        if (i % 500 == 0) (void)registry.prometheus_text();
      }
    });
  }
  for (auto& worker : workers) worker.join();
  EXPECT_EQ(registry.value(counter, {"shared", {}}), threads * adds);
  EXPECT_EQ(registry.value(counter, {"own", ReplicaIndex(3)}), adds);
}

}  // namespace
}  // namespace maestro
