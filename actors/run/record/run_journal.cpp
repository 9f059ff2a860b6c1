// SPDX-License-Identifier: Apache-2.0
#include "actors/run/record/run_journal.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <future>
#include <nlohmann/json.hpp>
#include <utility>
#include <variant>

#include "actors/run/record/made_figures.hpp"
#include "runtime/core/iso_time.hpp"
#include "runtime/core/json_text.hpp"
#include "runtime/core/printable.hpp"
#include "runtime/core/random.hpp"

namespace maestro {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using std::chrono::system_clock;

namespace {

constexpr const char* began_event = "began";

/// Calls `add` with each member of a SchedulingRow and the member's name in JSON.
template <class Row, class Add>
void for_members(Row& times, const Add& add) {
  add("begin_ms", times.begin_ms);
  add("step_ms", times.step_ms);
  add("makespan_ms", times.makespan_ms);
  add("lower_bound_ms", times.lower_bound_ms);
  add("planned_ms", times.planned_ms);
  add("planning_ms", times.planning_ms);
  add("utilization", times.utilization);
  add("planned_utilization", times.planned_utilization);
}

/// Returns milliseconds with three decimals.
double to_microseconds(double ms) {
  return std::round(ms * 1000) / 1000;
}

/// Returns the object as a single line, also if texts are not UTF-8.
std::string line_of(const Json& object) {
  return object.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

std::string digest_of(const std::vector<SampleRef>& samples, std::uint64_t made) {
  std::uint64_t digest = samples.size();
  for (const SampleRef& sample : samples) digest = mix64(digest, sample.id.value());
  if (made != 0) digest = mix64(digest, made);
  std::array<char, 17> text{};
  std::snprintf(text.data(), text.size(), "%016llx", static_cast<unsigned long long>(digest));
  return text.data();
}

std::string line_of(const FinishedStep& step, system_clock::time_point now) {
  Json line;
  line["step"] = step.step.value();  // first: step_of_line()
  line["time"] = iso_time(now);
  line["samples"] = step.counts.read;
  line["tokens"] = step.counts.tokens;
  line["samples_digest"] = step.samples_digest;
  for_members(step.times, [&](const char* name, const auto& value) { line[name] = value; });
  if (const MadeSamples& made = step.made; !made.lengths.empty()) {
    line["made"] = {{"most_tokens", made.most_tokens}, {"lengths", length_histogram(made)}};
  }
  for (const auto& [lane, times] : step.lanes) {
    Json& of_lane = line["lanes"][lane];
    of_lane = {{"busy_ms", to_microseconds(times.busy_ms)}, {"step_end_ms", to_microseconds(times.step_end_ms)}};
    for (const auto& [on, ms] : times.wait_ms) {
      if (const double waited = to_microseconds(ms); waited > 0) of_lane["wait_ms"][on] = waited;
    }
  }
  line["sections"] = Json::object();
  for (const StepRow& row : step.sections) line["sections"][row.section] = row.metrics;
  return line_of(line);
}

std::string line_of(const std::string& event, const EventFields& fields, system_clock::time_point now) {
  Json line;
  line["event"] = event;
  line["time"] = iso_time(now);
  for (const auto& [name, value] : fields)
    std::visit([&, &key = name](const auto& held) { line[key] = held; }, value.held());
  return line_of(line);
}

std::string line_of(const RunStart& start, system_clock::time_point now) {
  return line_of(Json{{"event", began_event},
                      {"time", iso_time(now)},
                      {"first_step", start.first_step},
                      {"resumed_from", start.resumed_from},
                      {"run_id", start.run_id},
                      {"maestro_version", start.maestro_version},
                      {"build", start.build},
                      {"instruction_set", start.instruction_set},
                      {"processes", start.processes},
                      {"cpu_devices", start.cpu_devices},
                      {"lanes", start.lanes},
                      {"data", start.data},
                      {"cursor", start.cursor},
                      {"job_file", start.job_file}});
}

Result<std::vector<RunStart>> recorded_starts(const fs::path& record) {
  const fs::path file = record / events_file;
  const Result<std::vector<std::string>> lines = read_record(file);
  if (!lines) return lines.error();
  std::vector<RunStart> starts;
  for (const std::string& text : *lines) {
    const Result<nlohmann::json> line = parse_json(text, file.string());
    if (!line) return line.error();
    try {
      if (line->at("event") != began_event) continue;
      starts.push_back({line->at("first_step"), line->at("resumed_from"), line->at("run_id"),
                        line->at("maestro_version"), line->value("build", ""), line->at("instruction_set"),
                        line->value("processes", std::int64_t{1}), line->value("cpu_devices", std::int64_t{0}),
                        line->at("lanes"), line->at("data"), line->value("cursor", std::vector<DataCursor::Segment>()),
                        line->at("job_file")});
    } catch (const nlohmann::json::exception&) {
      return Error{ErrorCode::corrupt, file.string() + ": an event lacks a member, or a member has another type"};
    }
  }
  return starts;
}

const RunStart* start_of(const std::vector<RunStart>& starts, std::uint64_t step) {
  const auto found =
      std::find_if(starts.rbegin(), starts.rend(), [step](const RunStart& start) { return start.first_step <= step; });
  return found == starts.rend() ? nullptr : &*found;
}

Result<RunStart> start_of_step(const fs::path& record, std::uint64_t step) {
  const Result<std::vector<RunStart>> starts = recorded_starts(record);
  if (!starts) return starts.error();
  if (const RunStart* found = start_of(*starts, step)) return *found;
  return Error{ErrorCode::not_found,
               (record / events_file).string() + " has no start before step " + std::to_string(step)};
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

namespace {

using AddRow = std::function<Status(std::string_view)>;

/// Calls `add` with the rows that `rows_of` returns for each line.
Status for_recorded(const fs::path& file, std::uint64_t after, std::uint64_t last, const AddRow& add,
                    const std::function<std::vector<std::string>(const Json& line)>& rows_of) {
  Status result;
  const Status read = for_whole_lines(file, [&](std::string_view text, std::uint64_t) {
    const std::uint64_t step = step_of_line(text);
    if (step <= after) return true;
    if (step > last) return false;
    const Json line = Json::parse(text, nullptr, false);
    if (line.is_discarded()) {
      result = Error{ErrorCode::corrupt, file.string() + ": the line of step " + std::to_string(step) + " is not JSON"};
      return false;
    }
    for (const std::string& row : rows_of(line)) {
      if (result) result = add(row);
    }
    return result.ok();
  });
  return read ? result : read;
}

std::string scheduling_row(const SchedulingRow& times) {
  Json row{{"step", times.step.value()}};
  for_members(times, [&](const char* name, const auto& value) { row[name] = value; });
  return line_of(row);
}

}  // namespace

ReportRows recorded_rows(const fs::path& record, std::uint64_t after, std::uint64_t last) {
  ReportRows rows;
  rows.steps = [file = record / steps_file, after, last](const AddRow& add) {
    return for_recorded(file, after, last, add, [](const Json& line) {
      std::vector<std::string> of_sections;
      const Json sections = line.value("sections", Json::object());
      for (const auto& [section, metrics] : sections.items()) {
        Json row{{"section", section}, {"step", line.at("step")}};
        row.update(metrics);
        of_sections.push_back(line_of(row));
      }
      return of_sections;
    });
  };
  rows.scheduling = [file = record / steps_file, after, last](const AddRow& add) {
    return for_recorded(file, after, last, add, [](const Json& line) {
      Json row{{"step", line.at("step")}};
      const SchedulingRow names;
      for_members(names, [&](const char* name, const auto&) { row[name] = line.value(name, Json()); });
      return std::vector<std::string>{line_of(row)};
    });
  };
  return rows;
}

ReportRows rows_in_memory(const RunRecord& record) {
  ReportRows rows;
  rows.steps = [&record](const AddRow& add) {
    Status added;
    for (const StepRow& row : record.steps.kept()) {
      if (added) added = add(row_of(row));
    }
    return added;
  };
  rows.scheduling = [&record](const AddRow& add) {
    Status added;
    for (const SchedulingRow& row : record.scheduling.kept()) {
      if (added) added = add(scheduling_row(row));
    }
    return added;
  };
  return rows;
}

RunJournal::RunJournal(RunLog log, std::optional<TensorBoardWriter> board, SnapshotWriter& writer, Console& console,
                       std::vector<NamedObserver> observers)
    : shared_(std::make_shared<Shared>(Shared{std::move(log), std::move(board), console, std::move(observers), {}})),
      writer_(writer) {}

/// Calls each observer. An observer is made at its first line, by the thread that calls it from then on.
void RunJournal::Shared::observe(const std::function<void(RunObserver&)>& call) {
  const auto ends = [this](const std::string& name, const std::string& problem) {
    console.warning("observer '" + name + "' ends here, the run goes on: " + printable(problem));
  };
  for (NamedObserver& observer : std::exchange(named, {})) {
    try {
      observers.emplace_back(observer.name, observer.make());
    } catch (const std::exception& problem) {
      ends(observer.name, problem.what());
    }
  }
  std::erase_if(observers, [&](const auto& observer) {
    try {
      call(*observer.second);
      return false;
    } catch (const std::exception& problem) {
      ends(observer.first, problem.what());
    } catch (...) {
      ends(observer.first, "an exception that is not a std::exception");
    }
    return true;
  });
}

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
    shared.observe([&](RunObserver& observer) { observer.step(line); });
    shared.draw(rows, "", now);
  });
}

void RunJournal::validated(const StepRow& row) {
  event("validation", {{"step", row.step.value()}, {"section", row.section}, {"metrics", row.metrics}});
  run([row, now = system_clock::now()](Shared& shared) { shared.draw({row}, "validation/", now); });
}

void RunJournal::made_samples(std::string line) {
  run([line = std::move(line)](Shared& shared) {
    if (!shared.failed) shared.check(shared.log.append_rollouts(line));
  });
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
    shared.observe([&](RunObserver& observer) { observer.event(line); });
  });
}

std::optional<bool> RunJournal::flush(std::chrono::milliseconds patience) {
  auto whole = std::make_shared<std::promise<bool>>();
  std::future<bool> written = whole->get_future();
  run([whole = std::move(whole)](const Shared& shared) { whole->set_value(!shared.failed); });
  if (written.wait_for(patience) != std::future_status::ready) return std::nullopt;
  try {
    return written.get();
  } catch (const std::future_error&) {
    return std::nullopt;  // the writer dropped the work
  }
}

}  // namespace maestro
