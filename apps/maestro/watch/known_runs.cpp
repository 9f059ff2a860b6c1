// SPDX-License-Identifier: Apache-2.0
#include "apps/maestro/watch/known_runs.hpp"

#include <algorithm>
#include <cmath>
#include <system_error>
#include <utility>

#include "actors/control/control_place.hpp"
#include "runtime/core/listed_error.hpp"
#include "runtime/core/nearest_name.hpp"
#include "runtime/core/printable.hpp"
#include "runtime/page/run_progress.hpp"
#include "runtime/record/run_folder.hpp"
#include "runtime/record/run_list.hpp"

namespace maestro {

namespace fs = std::filesystem;

namespace {

KnownRun known(const ListedRun& listed) {
  KnownRun run{listed.folder, listed.job, listed.started, false, {}};
  const auto holder = RunFolder(listed.folder).holder();
  run.live = holder.has_value();
  if (holder) run.address = holder->address;
  return run;
}

std::string word_of(RecordedState state) {
  switch (state) {
    case RecordedState::under_way:
      return "running";
    case RecordedState::cut_off:
      return "lost";
    case RecordedState::finished:
      return "ended";
    case RecordedState::interrupted:
      return "interrupted";
    case RecordedState::failed:
      return "failed";
  }
  return "unknown";
}

/// Sets the state that a live run's control service has. A service that needs keys, or has just closed, changes
/// nothing.
void query(const KnownRun& run, RunState& state) {
  try {
    const RunGlance glance = ControlClient({run.address, {}, {}}).glance();
    state.word = glance.state;
    state.step = static_cast<std::uint64_t>(glance.step);
    state.steps = static_cast<std::uint64_t>(glance.steps);
  } catch (const JobError& problem) {
    if (problem.code() == ErrorCode::timeout) state.word = "no answer";
  }
}

std::string line_of(const KnownRun& run) {
  const std::string name = run.folder.empty() ? run.address : folder_text(run);
  return printable(name) + "  job '" + printable(run.job) + "', " + state_text(state_of(run));
}

/// Returns whether the word is an address; an existing folder is not.
bool is_address(const std::string& word) {
  std::error_code failure;
  return word.starts_with("unix:") || (word.find(':') != std::string::npos && !fs::exists(word, failure));
}

std::string address_in(const std::string& word) {
  const fs::path folder(word);
  std::error_code failure;
  if (!fs::is_directory(folder, failure)) {
    std::vector<std::string> folders;
    for (const ListedRun& run : listed_runs()) folders.push_back(folder_text({run.folder, {}, {}, false, {}}));
    throw JobError("no folder '" + printable(word) + "'" + nearest_text(word, folders));
  }
  const auto holder = RunFolder(folder).holder();
  if (holder && !holder->address.empty()) return holder->address;
  if (holder) throw JobError("the run in " + printable(word) + " has no control service", ErrorCode::not_found);
  const RunProgress past = read_run_progress(folder).value_or_throw();
  const RunState state{word_of(past.state), past.step, past.steps, {}, past.error};
  throw JobError("the run in " + printable(word) + " is not live: " + state_text(state), ErrorCode::not_found);
}

std::string address_of_the_one_run() {
  std::vector<KnownRun> live = known_runs();
  std::erase_if(live, [](const KnownRun& run) { return run.address.empty(); });
  if (live.size() == 1) return live.front().address;
  if (live.empty()) {
    throw JobError(
        "no run of this user on this host has a control service; name a run by its folder, or with --at ADDRESS "
        "(`maestro runs` lists the runs)",
        ErrorCode::not_found);
  }
  std::vector<std::string> lines;
  for (const KnownRun& run : live) lines.push_back(line_of(run));
  throw ListedError(std::to_string(live.size()) + " runs of this user are live; name one by its folder:", lines);
}

}  // namespace

std::vector<KnownRun> known_runs() {
  std::vector<KnownRun> runs;
  for (const ListedRun& listed : listed_runs()) runs.push_back(known(listed));
  for (const std::string& address : control_addresses()) {
    if (std::ranges::find(runs, address, &KnownRun::address) == runs.end()) runs.push_back({{}, {}, {}, true, address});
  }
  for (KnownRun& run : runs) {
    if (!run.job.empty() || run.address.empty()) continue;
    try {
      run.job = ControlClient({run.address, {}, {}}).glance().job;
    } catch (const JobError&) {  // state_of() shows that it does not answer
    }
  }
  std::ranges::stable_partition(runs, &KnownRun::live);
  return runs;
}

RunState state_of(const KnownRun& run) {
  RunState state{"unknown", 0, 0, {}, {}};
  if (!run.folder.empty()) {
    if (const auto progress = read_run_progress(run.folder)) {
      state = {word_of(progress->state), progress->step, progress->steps, progress->losses, progress->error};
    }
  }
  if (!run.address.empty()) query(run, state);
  return state;
}

std::string state_text(const RunState& state) {
  const std::string steps = state.steps > state.step ? " of " + std::to_string(state.steps) : "";
  const std::string step = "step " + std::to_string(state.step) + steps;
  const auto past = {"ended", "interrupted", "failed", "lost", "unknown"};
  if (std::ranges::find(past, state.word) == past.end()) return state.word + ", " + step;
  if (state.word == "unknown") return "without a record";
  return state.word + (state.step == 0 ? " before the first step" : " after " + step) +
         (state.reason.empty() ? "" : ": " + printable(state.reason));
}

std::string folder_text(const KnownRun& run) {
  std::error_code failure;
  const fs::path here = fs::current_path(failure);
  const fs::path relative = run.folder.lexically_relative(here);
  const bool inside = !failure && !relative.empty() && *relative.begin() != "..";
  return (inside ? relative : run.folder).string();
}

ControlTarget service_of(const RunChoice& choice) {
  ControlTarget target = choice.service;
  if (!target.address.empty()) return target;
  if (choice.run.empty()) {
    target.address = address_of_the_one_run();
  } else {
    target.address = is_address(choice.run) ? choice.run : address_in(choice.run);
  }
  return target;
}

}  // namespace maestro
