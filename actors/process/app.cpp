// SPDX-License-Identifier: Apache-2.0
#include "actors/process/app.hpp"

#include <algorithm>
#include <exception>
#include <optional>
#include <system_error>

#include "actors/job/pass_memory.hpp"
#include "actors/messages/caf_compat.hpp"
#include "actors/process/job_resolver.hpp"
#include "actors/process/job_start.hpp"
#include "actors/process/process_run.hpp"
#include "actors/process/start_point.hpp"
#include "actors/served/served_type.hpp"
#include "runtime/observe/max_rss.hpp"
#include "sections/plug_in/plug_in_library.hpp"

namespace maestro {

namespace {

/// Sets the options of a run that starts again: from a checkpoint, or from the beginning if there is none.
void go_on_from(const std::string& checkpoint, RunOptions& options) {
  options.fresh = false;  // done at the first start
  if (checkpoint.empty()) return;
  options.resume = checkpoint;
  std::vector<std::string>& command = options.command;
  const auto given = std::ranges::find(command, "--resume");
  if (given != command.end()) command.erase(given, given + 2);
  command.insert(command.end(), {"--resume", checkpoint});
}

ServerWait wait_of(const LaunchInfo& launched, Console& console) {
  if (launched.place.launcher == JobLauncher::maestro) return {AbsentServer::returning};
  return {AbsentServer::awaited, [&console](const std::string& line) { console.note(line); }};
}

}  // namespace

App::App(JobDocument job, RunOptions options, Console& console)
    : composed_{std::move(job), std::move(options), program_sections(), {}, {}, {}, nullptr, nullptr, {}, 0, {}, {}},
      console_(&console) {
  RunOptions& run = composed_.options;
  PlaceRequest request;
  request.processes = run.processes > 1 ? run.processes : 0;
  request.hosts = run.hosts;
  request.joins = run.joins;
  // Checking a job never involves other processes.
  const Environment nothing = [](std::string_view) { return std::nullopt; };
  run.launch_info = find_run_place(request, run.check_only ? nothing : process_environment());
  run.processes = run.launch_info.place.processes;
  if (!run.check_only) composed_.registry = program_sections(wait_of(run.launch_info, console));
  add_plug_ins(composed_.document.root(), {composed_.registry, composed_.corpora, composed_.observers});
}

SectionBuilder& App::source(std::string name) {
  SectionBuilder& builder = composed_.builders.emplace_back();
  builder.name_ = std::move(name);
  builder.role_ = Role::source;
  return builder;
}

SectionBuilder& App::source(std::string name, std::shared_ptr<const Corpus> corpus) {
  composed_.corpus = std::move(corpus);
  return source(std::move(name));
}

SectionBuilder& App::section(std::string name, std::string type) {
  SectionBuilder& builder = composed_.builders.emplace_back();
  builder.name_ = std::move(name);
  builder.type_ = std::move(type);
  return builder;
}

SectionBuilder& App::section(std::string name, SectionFactory factory) {
  SectionBuilder& builder = composed_.builders.emplace_back();
  builder.name_ = std::move(name);
  builder.factory_ = std::move(factory);
  return builder;
}

std::vector<std::pair<std::string, std::string>> App::section_types() const {
  std::vector<std::pair<std::string, std::string>> types;
  for (const SectionBuilder& builder : composed_.builders) {
    if (!builder.type_.empty()) types.emplace_back(builder.name_, builder.type_);
  }
  return types;
}

std::int64_t App::cpu_devices() const {
  return cpu_devices_of(composed_.options);
}

App App::with(const std::vector<std::string>& settings, RunOptions options, Console& console) const {
  App changed = *this;
  changed.composed_.document = composed_.document.copy();
  options.launch_info = composed_.options.launch_info;
  options.processes = 1;
  changed.composed_.options = std::move(options);
  changed.composed_.own_observers.clear();
  changed.console_ = &console;
  for (const std::string& setting : settings) changed.set(setting);
  return changed;
}

ResolvedJob App::plan() {
  const TrainingStages stages = TrainingStages::read(composed_.document.root());
  const bool fresh = composed_.options.resume.empty();
  composed_.stage = stages.given() && fresh ? stages.count() - 1 : stage_of_start(stages, composed_.options.resume);
  return resolve_job(composed_);
}

RunResult App::run() {
  std::optional<ResolvedJob> plan;
  RunMemory memory;
  memory.record->pause_after = composed_.options.pause_after;
  begin_max_rss();
  while (true) {
    try {
      if (const std::optional<RunResult> result = run_once(plan, memory)) return *result;
    } catch (const JobError& problem) {
      if (memory.record->recoveries.empty() && !memory.again && memory.stages_done == 0) throw;
      console_->error(problem.what());  // not an input error: the run had begun
      return {};
    }
    if (!memory.enters_stage) {
      go_on_from(memory.record->newest, plan->options);
      continue;
    }
    go_on_from(memory.record->newest, composed_.options);
    composed_.opened = plan->corpus;
    ++composed_.stage;
    plan.reset();
  }
}

ResolvedJob App::resolve_stage(const RunMemory& memory) {
  if (memory.stages_done > 0) return resolve_job(composed_);
  const TrainingStages stages = TrainingStages::read(composed_.document.root());
  composed_.stage = stage_of_start(stages, composed_.options.resume);
  ResolvedJob first = resolve_job(composed_);
  const std::size_t begun = composed_.stage;
  const std::shared_ptr<const Corpus> opened = std::exchange(composed_.opened, first.corpus);
  while (composed_.stage + 1 < stages.count()) {  // so that a later stage does not end the run by an error of the job
    ++composed_.stage;
    (void)resolve_job(composed_);
  }
  composed_.stage = begun;
  composed_.opened = opened;
  return first;
}

std::optional<RunResult> App::run_once(std::optional<ResolvedJob>& plan, RunMemory& memory) {
  const RunOptions& run = plan ? plan->options : composed_.options;
  std::optional<ProcessRun> process;
  const auto refuse = [&memory](const JobError& problem, const std::exception_ptr& thrown) {
    RunResult refused;
    refused.status = memory.again ? 1 : 2;  // rank 0 starts another process
    if (memory.again) return refused;
    if (memory.start) memory.start->withdraw(problem.what());
    if (JobStart::is_first_to_refuse()) std::rethrow_exception(thrown);  // with all of its lines (ListedError)
    return refused;
  };
  try {
    if (memory.start) {
      memory.start->begin_again(run.command, memory.launcher->running());
    } else if (!run.check_only && run.processes > 1) {
      memory.start = std::make_unique<JobStart>(
          JobStartOptions{run.launch_info, resolve_transport(composed_), run.ssh, run.command}, *console_);
    }
    if (!plan) {
      plan = resolve_stage(memory);
      if (plan->options.launch_info.place.rank == 0) add_pass_bytes(*plan);  // for the run's header and report
    }
    process.emplace(*plan, *console_, memory);
    process->prepare();
  } catch (const JobError& problem) {
    return refuse(problem, std::current_exception());
  } catch (const std::system_error&) {  // a thread could not be started
    const JobError problem(describe(std::current_exception()), ErrorCode::unavailable);
    return refuse(problem, std::make_exception_ptr(problem));
  }
  if (plan->options.check_only) {
    for (const std::string& note : plan->notes) console_->note("note: " + note);
    RunResult result;
    result.status = 0;
    return result;
  }
  return process->run();
}

}  // namespace maestro
