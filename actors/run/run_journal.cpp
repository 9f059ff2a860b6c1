// SPDX-License-Identifier: Apache-2.0
#include "actors/run/run_journal.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <ctime>
#include <future>
#include <nlohmann/json.hpp>
#include <variant>

#include "runtime/core/json_text.hpp"
#include "runtime/core/random.hpp"

namespace maestro {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using std::chrono::system_clock;

namespace {

constexpr const char* began_event = "began";

/// "2026-11-24T12:30:00.123Z"
std::string text_of(system_clock::time_point time) {
  const std::time_t seconds = system_clock::to_time_t(time);
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(time.time_since_epoch()).count() % 1000;
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  std::array<char, 40> text{};
  const std::size_t length = std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%S", &utc);
  std::snprintf(text.data() + length, text.size() - length, ".%03dZ", static_cast<int>(ms));
  return text.data();
}

/// One line, whatever bytes texts have.
std::string line_of(const Json& object) {
  return object.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

std::string digest_of(const std::vector<SampleRef>& samples) {
  std::uint64_t digest = samples.size();
  for (const SampleRef& sample : samples) digest = mix64(digest, sample.id.value());
  std::array<char, 17> text{};
  std::snprintf(text.data(), text.size(), "%016llx", static_cast<unsigned long long>(digest));
  return text.data();
}

std::string line_of(const FinishedStep& step, system_clock::time_point now) {
  Json line;
  line["step"] = step.step.value();  // first: step_of_line()
  line["time"] = text_of(now);
  line["samples"] = step.counts.read;
  line["tokens"] = step.counts.tokens;
  line["samples_digest"] = step.samples_digest;
  line["makespan_ms"] = step.times.makespan_ms;
  line["lower_bound_ms"] = step.times.lower_bound_ms;
  line["utilization"] = step.times.utilization;
  line["sections"] = Json::object();
  for (const StepRow& row : step.sections) line["sections"][row.section] = row.metrics;
  return line_of(line);
}

std::string line_of(const std::string& event, const EventFields& fields, system_clock::time_point now) {
  Json line;
  line["event"] = event;
  line["time"] = text_of(now);
  for (const auto& [name, value] : fields) std::visit([&](const auto& held) { line[name] = held; }, value.held());
  return line_of(line);
}

std::string line_of(const RunStart& start, system_clock::time_point now) {
  return line_of(Json{{"event", began_event},
                      {"time", text_of(now)},
                      {"first_step", start.first_step},
                      {"resumed_from", start.resumed_from},
                      {"run_id", start.run_id},
                      {"maestro_version", start.maestro_version},
                      {"instruction_set", start.instruction_set},
                      {"lanes", start.lanes},
                      {"data", start.data},
                      {"cursor", start.cursor},
                      {"job_file", start.job_file}});
}

Result<RunStart> start_of_step(const fs::path& record, std::uint64_t step) {
  const fs::path file = record / events_file;
  const Result<std::vector<std::string>> lines = read_record(file);
  if (!lines) return lines.error();
  std::optional<RunStart> found;
  for (const std::string& text : *lines) {
    const Result<nlohmann::json> line = parse_json(text, file.string());
    if (!line) return line.error();
    try {
      if (line->at("event") != began_event || line->at("first_step") > step) continue;
      found = RunStart{line->at("first_step"),
                       line->at("resumed_from"),
                       line->at("run_id"),
                       line->at("maestro_version"),
                       line->at("instruction_set"),
                       line->at("lanes"),
                       line->at("data"),
                       line->value("cursor", std::vector<DataCursor::Segment>()),
                       line->at("job_file")};
    } catch (const nlohmann::json::exception&) {
      return Error{ErrorCode::corrupt, file.string() + ": an event lacks a member or has another of that name"};
    }
  }
  if (found) return *found;
  return Error{ErrorCode::not_found, file.string() + " has no start before step " + std::to_string(step)};
}

Result<std::string> recorded_digest(const fs::path& record, std::uint64_t step) {
  const fs::path file = record / steps_file;
  const Result<std::vector<std::string>> lines = read_record(file);
  if (!lines) return lines.error();
  const auto found = std::ranges::find(*lines, step, &step_of_line);
  if (found == lines->end()) {
    return Error{ErrorCode::not_found,
                 file.string() + " has no step " + std::to_string(step) +
                     (lines->empty() ? ": it is empty"
                                     : "; it has steps " + std::to_string(step_of_line(lines->front())) + " to " +
                                           std::to_string(step_of_line(lines->back())))};
  }
  const Result<nlohmann::json> line = parse_json(*found, file.string());
  if (!line) return line.error();
  return line->value("samples_digest", "");
}

RunJournal::RunJournal(RunLog log, std::optional<TensorBoardWriter> board, SnapshotWriter& writer, Console& console)
    : shared_(std::make_shared<Shared>(Shared{std::move(log), std::move(board), console})), writer_(writer) {}

void RunJournal::Shared::check(const Status& written) {
  if (written || failed) return;
  failed = true;
  console.warning("the record of the run ends here, the run goes on: " + written.error().message);
}

void RunJournal::Shared::draw(const std::vector<StepRow>& rows, const std::string& prefix,
                              system_clock::time_point now) {
  if (!board) return;
  const double seconds = std::chrono::duration<double>(now.time_since_epoch()).count();
  Status written;
  for (const StepRow& row : rows) {
    for (const auto& [name, value] : row.metrics) {
      const std::string tag = prefix + row.section + "/" + name;
      if (written) written = board->add({tag, static_cast<std::int64_t>(row.step.value()), value, seconds});
    }
  }
  if (written) written = board->flush();
  if (written) return;
  board.reset();
  console.warning("TensorBoard's curves end here, the run goes on: " + written.error().message);
}

void RunJournal::run(std::function<void(Shared&)> work) {
  const auto on_thread = [shared = shared_, work = std::move(work)]() -> SnapshotWriter::Report {
    work(*shared);
    return [] {};
  };
  const auto failed = [shared = shared_](const std::string& problem) {
    shared->check(Error{ErrorCode::internal, problem});
  };
  writer_.run(on_thread, failed);
}

void RunJournal::step(const FinishedStep& step) {
  const auto now = system_clock::now();
  run([line = line_of(step, now), rows = step.sections, now](Shared& shared) {
    if (!shared.failed) shared.check(shared.log.append_step(line));
    shared.draw(rows, "", now);
  });
}

void RunJournal::validated(const StepRow& row) {
  event("validation", {{"step", row.step.value()}, {"section", row.section}, {"metrics", row.metrics}});
  run([row, now = system_clock::now()](Shared& shared) { shared.draw({row}, "validation/", now); });
}

void RunJournal::began(const RunStart& start) {
  append_event(line_of(start, system_clock::now()));
}

void RunJournal::event(const std::string& event, const EventFields& fields) {
  append_event(line_of(event, fields, system_clock::now()));
}

void RunJournal::append_event(std::string line) {
  run([line = std::move(line)](Shared& shared) {
    if (!shared.failed) shared.check(shared.log.append_event(line));
  });
}

void RunJournal::flush(std::chrono::milliseconds patience) {
  const auto written = std::make_shared<std::promise<void>>();
  run([written](Shared&) { written->set_value(); });
  (void)written->get_future().wait_for(patience);
}

}  // namespace maestro
