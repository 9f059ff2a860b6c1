// SPDX-License-Identifier: Apache-2.0
#include "runtime/observe/trace.hpp"

#include <gmock/gmock.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "tests/observe/temporary_folder.hpp"

namespace maestro {
namespace {

using nlohmann::json;
using std::chrono::microseconds;
using TraceFile = TemporaryFolder;

TraceTime at(int microsecond) {
  return TraceTime{} + microseconds(microsecond);
}

std::vector<json> lines_of(const std::string& text) {
  std::vector<json> out;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) out.push_back(json::parse(line));
  return out;
}

TEST(TraceRecorder, one_name_has_one_track) {  // TR-3
  TraceRecorder trace(ProcessId(0), "p");
  const auto first = trace.track("student 0");
  const auto second = trace.track("student 1");
  EXPECT_NE(first, second);
  EXPECT_EQ(trace.track("student 0"), first);
}

TEST(TraceRecorder, keeps_the_beginning_and_counts_what_it_drops) {  // TR-2
  TraceRecorder trace(ProcessId(0), "p", {.max_events = 3});
  const auto track = trace.track("t");
  for (int i = 0; i < 10; ++i) trace.slice({track, "s", TraceCategory::step, at(i), at(i + 1)});
  EXPECT_EQ(trace.recorded(), 3u);
  EXPECT_EQ(trace.dropped(), 7u);
}

TEST(TraceRecorder, records_nothing_while_off) {
  TraceRecorder trace(ProcessId(0), "p", {.on = false});
  const auto track = trace.track("t");
  trace.slice({track, "s", TraceCategory::step, at(0), at(1)}, {{"k", 1}});
  trace.flow_start(track, 1, at(0), "f");
  trace.flow_end(track, 1, at(0), "f");
  trace.counter("c", at(0), 1);
  {
    TraceSpan span(trace, track, "s", TraceCategory::forward);
    span.annotate({"k", "v"});
  }
  EXPECT_EQ(trace.recorded() + trace.dropped(), 0u);
}

TEST(TraceRecorder, loses_no_event_of_many_threads) {  // TR-1
  constexpr int threads = 4, events = 1000;
  TraceRecorder trace(ProcessId(0), "p", {.max_events = 3000});
  std::vector<std::thread> workers;
  for (int t = 0; t < threads; ++t) {
    workers.emplace_back([&, t] {
      const auto track = trace.track("thread " + std::to_string(t));
      for (int i = 0; i < events; ++i) trace.slice({track, "s", TraceCategory::wait, at(i), at(i + 1)}, {{"i", i}});
    });
  }
  for (auto& worker : workers) worker.join();
  EXPECT_EQ(trace.recorded(), 3000u);
  EXPECT_EQ(trace.dropped(), 1000u);
}

TEST_F(TraceFile, a_part_holds_a_header_and_every_event) {
  TraceRecorder trace(ProcessId(2), "worker", {.clock = TraceClock{"host", std::chrono::nanoseconds(5)}});
  const auto track = trace.track("student 0");
  trace.slice({track, "forward", TraceCategory::forward, at(10), at(15)}, {{"sample", 12}, {"edge", "logits"}});
  trace.flow_start(track, 99, at(12), "logits");
  trace.counter("queue", at(13), 2.5);
  ASSERT_TRUE(trace.write_part(folder_ / "part").ok());
  const auto lines = lines_of(contents_of(folder_ / "part"));
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_EQ(lines[0], json::parse(R"({"rank": 2, "process": "worker", "host": "host", "system_minus_steady_ns": 5,
                                      "tracks": ["student 0"], "dropped": 0, "about": {}, "events": 3})"));
  EXPECT_EQ(lines[1], json::parse(R"({"ph": "X", "cat": "forward", "name": "forward", "track": 0, "ts_ns": 10000,
                                      "dur_ns": 5000, "args": {"sample": 12, "edge": "logits"}})"));
  EXPECT_EQ(lines[2], json::parse(R"({"ph": "s", "cat": "transfer", "id": "99", "name": "logits", "track": 0,
                                      "ts_ns": 12000})"));
  EXPECT_EQ(lines[3], json::parse(R"({"ph": "C", "name": "queue", "track": 0, "ts_ns": 13000,
                                      "args": {"value": 2.5}})"));
}

TEST_F(TraceFile, every_category_has_its_name) {
  TraceRecorder trace(ProcessId(0), "p");
  const auto track = trace.track("t");
  const std::vector<std::string> names{"forward", "backward", "step", "wait", "transfer", "source"};
  for (std::size_t i = 0; i < names.size(); ++i) {
    trace.slice({track, "s", static_cast<TraceCategory>(i), at(0), at(1)});
  }
  ASSERT_TRUE(trace.write_part(folder_ / "part").ok());
  const auto lines = lines_of(contents_of(folder_ / "part"));
  ASSERT_EQ(lines.size(), names.size() + 1);
  for (std::size_t i = 0; i < names.size(); ++i) EXPECT_EQ(lines[i + 1]["cat"], names[i]);
}

TEST_F(TraceFile, a_span_covers_its_scope) {
  TraceRecorder trace(ProcessId(0), "p");
  const auto track = trace.track("t");
  const auto before = std::chrono::steady_clock::now();
  {
    TraceSpan span(trace, track, "work", TraceCategory::backward, {{"step", 3}});
    span.annotate({"bytes", 64u});
  }
  const auto after = std::chrono::steady_clock::now();
  ASSERT_TRUE(trace.write_part(folder_ / "part").ok());
  const auto span = lines_of(contents_of(folder_ / "part")).at(1);
  const auto start = span["ts_ns"].get<std::int64_t>();
  EXPECT_GE(start, before.time_since_epoch().count());
  EXPECT_GE(span["dur_ns"].get<std::int64_t>(), 0);
  EXPECT_LE(start + span["dur_ns"].get<std::int64_t>(), after.time_since_epoch().count());
  EXPECT_EQ(span["args"], json::parse(R"({"step": 3, "bytes": 64})"));
}

TEST_F(TraceFile, a_slice_that_ends_before_it_starts_has_no_length_and_a_counter_that_is_not_finite_leaves_a_gap) {
  TraceRecorder trace(ProcessId(0), "p");
  trace.slice({trace.track("t"), "s", TraceCategory::step, at(9), at(4)});
  trace.counter("c", at(1), std::numeric_limits<double>::quiet_NaN());
  ASSERT_TRUE(trace.write_part(folder_ / "part").ok());
  const auto lines = lines_of(contents_of(folder_ / "part"));
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[1]["dur_ns"], 0);
}

TEST_F(TraceFile, an_error_names_the_path) {
  const auto written = TraceRecorder(ProcessId(0), "p").write_part("/proc/nowhere/part");
  ASSERT_FALSE(written.ok());
  EXPECT_THAT(written.error().message, testing::HasSubstr("/proc/nowhere/part"));
}

}  // namespace
}  // namespace maestro
