// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <random>

#include "runtime/observe/output_file.hpp"
#include "runtime/observe/trace.hpp"
#include "runtime/observe/trace_file.hpp"
#include "tests/observe/temporary_folder.hpp"

namespace maestro {
namespace {

using nlohmann::json;
using std::chrono::microseconds;
using std::chrono::nanoseconds;

TraceTime time_at(int microsecond) {
  return TraceTime{} + microseconds(microsecond);
}

class MergeTraces : public TemporaryFolder {
 protected:
  std::filesystem::path part(const TraceRecorder& trace, const std::string& name) {
    EXPECT_TRUE(trace.write_part(folder_ / name).ok());
    return folder_ / name;
  }
  json merged(const std::vector<std::filesystem::path>& parts) {
    const auto done = merge_traces(parts, folder_ / "trace.json");
    EXPECT_TRUE(done.ok()) << done.error().message;
    return json::parse(contents_of(folder_ / "trace.json"));
  }
  Error refused(const std::vector<std::filesystem::path>& parts) {
    const auto done = merge_traces(parts, folder_ / "trace.json");
    EXPECT_FALSE(done.ok());
    EXPECT_FALSE(std::filesystem::exists(folder_ / "trace.json"));
    return done.error();
  }
  static std::vector<json> events(const json& trace, const std::string& phase) {
    std::vector<json> out;
    for (const auto& event : trace.at("traceEvents")) {
      if (event.at("ph") == phase) out.push_back(event);
    }
    return out;
  }
};

TraceOptions on_host(const std::string& host, std::int64_t system_minus_steady_ns = 0) {
  return {.clock = TraceClock{host, nanoseconds(system_minus_steady_ns)}};
}

TEST_F(MergeTraces, names_processes_and_tracks_in_order) {
  TraceRecorder zero(ProcessId(0), "coordinator", on_host("h")), one(ProcessId(1), "worker", on_host("h"));
  (void)zero.track("teacher 0");
  (void)zero.track("transfer");
  (void)one.track("student 0");
  const auto trace = merged({part(one, "1"), part(zero, "0")});
  EXPECT_EQ(trace.at("traceEvents"), json::parse(R"([
    {"ph": "M", "name": "process_name", "pid": 0, "tid": 0, "args": {"name": "coordinator"}},
    {"ph": "M", "name": "process_sort_index", "pid": 0, "tid": 0, "args": {"sort_index": 0}},
    {"ph": "M", "name": "thread_name", "pid": 0, "tid": 1, "args": {"name": "teacher 0"}},
    {"ph": "M", "name": "thread_sort_index", "pid": 0, "tid": 1, "args": {"sort_index": 0}},
    {"ph": "M", "name": "thread_name", "pid": 0, "tid": 2, "args": {"name": "transfer"}},
    {"ph": "M", "name": "thread_sort_index", "pid": 0, "tid": 2, "args": {"sort_index": 1}},
    {"ph": "M", "name": "process_name", "pid": 1, "tid": 0, "args": {"name": "worker"}},
    {"ph": "M", "name": "process_sort_index", "pid": 1, "tid": 0, "args": {"sort_index": 1}},
    {"ph": "M", "name": "thread_name", "pid": 1, "tid": 1, "args": {"name": "student 0"}},
    {"ph": "M", "name": "thread_sort_index", "pid": 1, "tid": 1, "args": {"sort_index": 0}}])"));
}

TEST_F(MergeTraces, writes_events_as_chrome_and_perfetto_read_them) {
  TraceRecorder trace(ProcessId(3), "p", on_host("h"));
  (void)trace.track("other");
  const auto track = trace.track("student 0");
  trace.slice({track, "forward", TraceCategory::forward, time_at(100), time_at(150)}, {{"sample", 7}});
  trace.flow_start(track, 5, time_at(110), "logits");
  trace.flow_end(track, 5, time_at(120), "logits");
  trace.counter("queue", time_at(130), 2);
  const auto out = merged({part(trace, "p")});
  EXPECT_EQ(events(out, "X"), std::vector<json>{json::parse(R"({"ph": "X", "cat": "forward", "name": "forward",
                                  "pid": 3, "tid": 2, "ts": 0.0, "dur": 50.0, "args": {"sample": 7}})")});
  EXPECT_EQ(events(out, "s"), std::vector<json>{json::parse(R"({"ph": "s", "cat": "transfer", "name": "logits",
                                  "id": "5", "pid": 3, "tid": 2, "ts": 10.0})")});
  EXPECT_EQ(events(out, "f"), std::vector<json>{json::parse(R"({"ph": "f", "cat": "transfer", "name": "logits",
                                  "id": "5", "bp": "e", "pid": 3, "tid": 2, "ts": 20.0})")});
  EXPECT_EQ(events(out, "C"), std::vector<json>{json::parse(R"({"ph": "C", "name": "queue", "pid": 3, "tid": 0,
                                  "ts": 30.0, "args": {"value": 2.0}})")});
}

TEST_F(MergeTraces, sorts_by_time_with_slices_before_their_arrows_and_outer_before_inner) {
  TraceRecorder a(ProcessId(0), "a", on_host("h")), b(ProcessId(1), "b", on_host("h"));
  const auto ta = a.track("t"), tb = b.track("t");
  a.slice({ta, "late", TraceCategory::step, time_at(30), time_at(40)});
  a.flow_start(ta, 1, time_at(10), "arrow");
  a.slice({ta, "inner", TraceCategory::step, time_at(10), time_at(15)});
  a.slice({ta, "outer", TraceCategory::step, time_at(10), time_at(20)});
  b.slice({tb, "middle", TraceCategory::step, time_at(12), time_at(20)});
  const auto out = merged({part(a, "a"), part(b, "b")});
  std::vector<std::string> order;
  for (const auto& event : out.at("traceEvents")) {
    if (event.at("ph") != "M") order.push_back(event.at("name"));
  }
  EXPECT_EQ(order, (std::vector<std::string>{"outer", "inner", "arrow", "middle", "late"}));
}

TEST_F(MergeTraces, every_arrow_of_a_random_run_binds_to_a_slice_at_both_ends) {
  constexpr std::uint64_t seed = 5;
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  TraceRecorder a(ProcessId(0), "a", on_host("h", 17)), b(ProcessId(1), "b", on_host("g", -1234567891));
  // Nanoseconds after a long uptime: a double of microseconds cannot hold these times exactly.
  const auto when = [&](std::uint64_t ns) { return TraceTime{} + nanoseconds(987654321012345 + std::int64_t(ns)); };
  constexpr int arrows = 300;
  for (std::uint64_t flow = 0; flow < arrows; ++flow) {
    const auto start = flow * 1000 + random() % 300, length = 1 + random() % 500;
    a.slice({a.track("send"), "write", TraceCategory::transfer, when(start), when(start + length)});
    a.flow_start(a.track("send"), flow, when(start + random() % length), "edge");
    b.slice({b.track("receive"), "read", TraceCategory::transfer, when(start), when(start + length)});
    b.flow_end(b.track("receive"), flow, when(start + random() % length), "edge");
  }
  const auto out = merged({part(a, "a"), part(b, "b")});
  const auto ns = [](const json& us) { return std::llround(us.get<double>() * 1000.0); };
  const auto slices = events(out, "X");
  for (const std::string phase : {"s", "f"}) {
    const auto ends = events(out, phase);
    ASSERT_EQ(ends.size(), std::size_t{arrows});
    for (const auto& end : ends) {
      const auto enclosing = std::count_if(slices.begin(), slices.end(), [&](const json& slice) {
        const auto begin = ns(slice["ts"]);
        return slice["pid"] == end["pid"] && slice["tid"] == end["tid"] && begin <= ns(end["ts"]) &&
               ns(end["ts"]) < begin + ns(slice["dur"]);
      });
      ASSERT_EQ(enclosing, 1) << end;
    }
  }
}

TEST_F(MergeTraces, parts_of_one_host_keep_their_common_clock_and_other_hosts_are_moved_to_it) {
  TraceRecorder a(ProcessId(0), "a", on_host("h", 1000)), b(ProcessId(1), "b", on_host("h", 3000)),
      c(ProcessId(2), "c", on_host("far", 51000)), d(ProcessId(3), "d", on_host("far", 52000));
  for (auto* trace : {&a, &b, &c, &d}) {
    trace->slice({trace->track("t"), "s", TraceCategory::step, time_at(100), time_at(101)});
  }
  const auto slices = events(merged({part(a, "a"), part(b, "b"), part(c, "c"), part(d, "d")}), "X");
  ASSERT_EQ(slices.size(), 4u);
  EXPECT_EQ(slices[0]["ts"], 0.0);
  EXPECT_EQ(slices[1]["ts"], 0.0);
  EXPECT_EQ(slices[2]["ts"], 50.0);
  EXPECT_EQ(slices[3]["ts"], 50.0);
}

TEST_F(MergeTraces, tells_how_many_events_are_missing) {
  TraceRecorder a(ProcessId(0), "a", {.max_events = 1}), b(ProcessId(1), "b", {.max_events = 0});
  for (int i = 0; i < 3; ++i) {
    a.counter("c", time_at(i), 1);
    b.counter("c", time_at(i), 1);
  }
  EXPECT_EQ(merged({part(a, "a"), part(b, "b")})["otherData"]["dropped_events"], 5);
}

TEST_F(MergeTraces, odd_names_stay_valid_json) {
  TraceRecorder trace(ProcessId(0), "\xff\"", on_host("h"));
  trace.slice({trace.track("a\nb\xc3"), "\"\\\x01", TraceCategory::step, time_at(0), time_at(1)}, {{"k\"", "v\xff"}});
  const auto out = merged({part(trace, "p")});
  EXPECT_EQ(events(out, "X").at(0)["name"], "\"\\\x01");
}

TEST_F(MergeTraces, no_parts_give_an_empty_trace) {
  EXPECT_TRUE(merged({}).at("traceEvents").empty());
}

TEST_F(MergeTraces, a_missing_part_is_named) {
  const auto error = refused({folder_ / "nowhere"});
  EXPECT_EQ(error.code, ErrorCode::not_found);
  EXPECT_THAT(error.message, testing::HasSubstr((folder_ / "nowhere").string()));
}

TEST_F(MergeTraces, two_parts_of_one_rank_are_refused) {
  TraceRecorder a(ProcessId(4), "a"), b(ProcessId(4), "b");
  const auto error = refused({part(a, "a"), part(b, "b")});
  EXPECT_EQ(error.message,
            "two trace parts are of rank 4: " + (folder_ / "a").string() + " and " + (folder_ / "b").string());
}

TEST_F(MergeTraces, a_damaged_part_is_named_with_its_line) {
  TraceRecorder trace(ProcessId(0), "p");
  trace.slice({trace.track("t"), "one", TraceCategory::step, time_at(0), time_at(1)});
  trace.slice({trace.track("t"), "two", TraceCategory::step, time_at(2), time_at(3)});
  const auto whole = contents_of(part(trace, "p"));
  const auto second_line = whole.find('\n') + 1, third_line = whole.find('\n', second_line) + 1;
  const std::vector<std::pair<std::string, std::string>> damages{
      {"", ":1:"},
      {"[]\n", ":1:"},
      {"{}\n", ":1:"},
      {whole.substr(0, second_line), ":2:"},
      {whole.substr(0, third_line - 4), ":2:"},
      {whole.substr(0, third_line) + "{}\n", ":3:"},
      {whole.substr(0, third_line) + R"({"ph":"X","track":9,"ts_ns":1,"dur_ns":1})"
                                     "\n",
       ":3:"}};
  for (const auto& [bytes, line] : damages) {
    std::ofstream(folder_ / "damaged", std::ios::binary | std::ios::trunc) << bytes;
    const auto error = refused({folder_ / "damaged"});
    EXPECT_EQ(error.code, ErrorCode::corrupt) << bytes;
    EXPECT_THAT(error.message, testing::HasSubstr((folder_ / "damaged").string() + line)) << bytes;
  }
}

TEST_F(MergeTraces, facts_are_those_of_the_first_rank_that_states_them) {
  TraceRecorder first(ProcessId(0), "process 0"), second(ProcessId(1), "process 1");
  first.describe("job", "name = 'x'");
  second.describe("job", "name = 'y'");
  second.describe("host", "b");
  const json about = merged({part(second, "b"), part(first, "a")})["otherData"];
  EXPECT_EQ(about["job"], "name = 'x'");
  EXPECT_EQ(about["host"], "b");
}

TEST_F(MergeTraces, slices_and_facts_are_read_back) {
  TraceRecorder trace(ProcessId(0), "process 0");
  trace.describe("job", "name = 'x'");
  trace.slice({trace.track("student/0"), "forward", TraceCategory::forward, time_at(1000), time_at(3500)},
              {{"step", 3}, {"pass", "evaluate"}});
  trace.slice({trace.track("student/0"), "wait", TraceCategory::wait, time_at(3500), time_at(4000)});
  trace.counter("bytes", time_at(4000), 1);
  merged({part(trace, "a")});
  std::vector<TraceFileSlice> slices;
  const auto about = for_trace_slices(folder_ / "trace.json", [&](const auto& slice) { slices.push_back(slice); });
  ASSERT_TRUE(about) << about.error().message;
  EXPECT_EQ(about->facts.at("job"), "name = 'x'");
  EXPECT_EQ(about->dropped, 0u);
  ASSERT_EQ(slices.size(), 2u);
  EXPECT_EQ(slices[0].track, "student/0");
  EXPECT_EQ(slices[0].category, "forward");
  EXPECT_NEAR(slices[0].end_ms() - slices[0].start_ms, 2.5, 1e-9);
  EXPECT_EQ(slices[0].number("step"), 3);
  EXPECT_EQ(slices[0].text("pass"), "evaluate");
  EXPECT_EQ(slices[1].number("step", -1), -1);
  EXPECT_EQ(slices[1].text("pass"), "");
}

TEST_F(MergeTraces, a_file_that_is_no_trace_is_not_read) {
  const auto none = [](const TraceFileSlice&) {};
  EXPECT_THAT(for_trace_slices(folder_ / "none.json", none).error().message,
              testing::HasSubstr("cannot read the trace"));
  write_output(folder_ / "other.json", "{}").or_throw();
  EXPECT_THAT(for_trace_slices(folder_ / "other.json", none).error().message, testing::HasSubstr("has no traceEvents"));
}

}  // namespace
}  // namespace maestro
