// SPDX-License-Identifier: Apache-2.0
#include "actors/process/run_services.hpp"

#include <chrono>
#include <filesystem>
#include <set>
#include <string_view>
#include <system_error>

#include "actors/control/control_place.hpp"
#include "actors/messages/wait_text.hpp"
#include "runtime/ops/cpu/cpu_operator_table.hpp"

namespace maestro {

namespace {
namespace fs = std::filesystem;
using std::chrono::milliseconds;
}  // namespace

std::shared_ptr<const KeySet> RunServices::keys() const {
  if (part_.job_start && part_.job_start->access().keys()) return part_.job_start->access().keys();
  const fs::path folder =
      part_.plan.options.keys.empty() ? fs::path(part_.plan.transport.keys) : part_.plan.options.keys;
  return folder.empty() ? nullptr : std::make_shared<const KeySet>(load_key_set(folder));
}

void RunServices::open(std::function<void()> stop_run, bool keeps_record) {
  if (!part_.is_root()) return;
  open_control(std::move(stop_run));
  open_http(keeps_record);
}

void RunServices::open_control(std::function<void()> stop_run) {
  if (part_.plan.options.control == "none") return;
  if (!part_.several()) sweep_runtime_folder();  // with several processes JobStart has swept it
  ControlServiceOptions options;
  options.address = part_.plan.options.control;
  options.keys = keys();
  options.job = &part_.plan;
  options.system = &built_.actors().system();
  options.coordinator = built_.coordinator();
  // Answers from other hosts take a round trip. The wait ends when all answers are present.
  if (part_.plan.options.launch_info.several_hosts()) options.status_patience = milliseconds(200);
  options.stop_run = std::move(stop_run);
  options.let_join = [this](const ElasticJoin& request) { return placements_.let_join(request); };
  options.let_leave = [this](ProcessId leaver) { return placements_.let_leave(leaver); };
  options.console = &part_.console;
  try {
    control_ = std::make_unique<ControlService>(std::move(options));
  } catch (const JobError& problem) {
    if (!part_.plan.options.control.empty() || part_.plan.options.pause_after) throw;
    return part_.console.note(std::string("  note: this run lacks a control service: ") + problem.what());
  }
  part_.claim.lock.note_address(control_->address());
  constexpr std::string_view local = "unix:";
  if (control_->address().starts_with(local)) control_socket_ = control_->address().substr(local.size());
  if (!part_.plan.options.quiet && !part_.plan.options.control.empty())
    part_.console.note("  control at " + control_->address());
}

void RunServices::open_http(bool keeps_record) {
  if (part_.plan.options.http.empty()) return;
  HttpServiceOptions options;
  options.address =
      part_.memory.http.empty() ? part_.plan.options.http : part_.memory.http;  // a recovered run keeps its port
  options.keys = keys();
  options.job = &part_.plan;
  options.system = &built_.actors().system();
  options.coordinator = built_.coordinator();
  options.events = &events_;
  options.summary = [this] { return built_.summary(); };
  options.version = MAESTRO_VERSION;
  options.instruction_set = cpu::name_of(cpu::best_isa());
  options.keeps_record = keeps_record;
  http_ = std::make_unique<HttpService>(std::move(options));
  if (part_.memory.http.empty() && !part_.plan.options.quiet)
    part_.console.note("  live page: http://" + http_->address() + "/");
  part_.memory.http = http_->address();
}

void RunServices::watch_progress(std::function<void(const std::string& line)> stalled) {
  questions_ = std::make_unique<RunQuestions>(built_.actors().system(), built_.coordinator());
  Watchdog::Progress progress;
  progress.events = &events_;
  progress.limit = milliseconds(static_cast<std::int64_t>(part_.plan.train.stall_timeout_s * 1000));
  progress.work_limit = milliseconds(static_cast<std::int64_t>(part_.plan.train.work_timeout_s * 1000));
  progress.look = [this] { return look(); };
  progress.report = [this](const std::string& line) { part_.note(line); };
  progress.stalled = std::move(stalled);
  if (progress.limit.count() > 0) part_.watchdog->watch(std::move(progress));
}

StallLook RunServices::look() {
  constexpr milliseconds patience(2000);
  const RunQuestions::View view = questions_->view(patience);
  StallLook look;
  look.announced = view.run.announced;
  look.events = view.run.events;
  if (!view.fresh) look.silent.emplace_back("the coordinator");
  if (!view.run.working.empty()) look.working.push_back(view.run.working);
  if (!view.run.waiting.empty()) look.waiting.push_back(view.run.waiting);
  std::set<std::pair<SectionId, ReplicaIndex>> answered;
  for (const WaitingFor& replica : view.replicas) {
    answered.emplace(replica.section, replica.replica);
    look.events += replica.events;
    const std::string name = part_.label_of(replica.section, replica.replica);
    const std::string wait = wait_text(replica, part_.plan.graph);
    if (!wait.empty()) look.waiting.push_back(name + " waits for " + wait);
    if (replica.kind == WaitKind::nothing) {
      look.working.push_back(name + " has been in " + replica.doing + " of step " +
                             std::to_string(replica.step.value()));
    }
  }
  if (!view.run.directory) return look;
  for (const ReplicaAddress& replica : view.run.directory->replicas()) {
    if (answered.contains({replica.section, replica.replica})) continue;
    look.silent.push_back(part_.label_of(replica.section, replica.replica) + " on process " +
                          std::to_string(replica.process.value()));
  }
  return look;
}

void RunServices::stop() {
  if (control_) control_->stop();  // removes its socket
  if (http_) http_->stop();
}

void RunServices::close() {
  if (questions_) questions_->close();
  control_.reset();
  http_.reset();
}

void RunServices::remove_socket() const {
  std::error_code gone_already;
  if (!control_socket_.empty()) std::filesystem::remove(control_socket_, gone_already);
}

}  // namespace maestro
