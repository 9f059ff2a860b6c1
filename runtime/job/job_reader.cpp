// SPDX-License-Identifier: Apache-2.0
#include "runtime/job/job_reader.hpp"

#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "runtime/core/hub_cache.hpp"
#include "runtime/core/printable.hpp"

namespace maestro {
namespace {

constexpr Range at_least_zero{.min = 0};
constexpr Range counts{.min = 1, .max = most_counted};
constexpr Range counts_or_zero{.min = 0, .max = most_counted};
constexpr NumberRange positive{.min = 0.0, .min_open = true};
constexpr NumberRange seconds{.min = 1e-3, .max = 1e6};  // a millisecond to 11 days: durations are kept in int64 ns

bool is_address(const std::string& text) {
  std::array<unsigned char, sizeof(in6_addr)> ignored{};
  return inet_pton(AF_INET, text.c_str(), ignored.data()) == 1 ||
         inet_pton(AF_INET6, text.c_str(), ignored.data()) == 1;
}

/// Returns whether the text is an interface such as "eth0", or "auto".
bool is_interface(const std::string& text) {
  constexpr std::size_t longest = 15;  // IFNAMSIZ - 1
  const auto in_name = [](unsigned char c) { return std::isalnum(c) != 0 || c == '.' || c == '_' || c == '-'; };
  return !text.empty() && text != "localhost" && text.size() <= longest &&
         std::isalpha(static_cast<unsigned char>(text[0])) != 0 && std::ranges::all_of(text, in_name);
}

std::string nonempty(const JobTable& table, std::string_view key, std::string value, const std::string& example) {
  if (value.empty()) table.fail(key, "must not be empty; give " + example);
  return value;
}

}  // namespace

std::string read_name(const JobTable& root) {
  return root.text("name", "job", {"the job's name, for messages and the report"});
}

std::string read_model(const JobTable& table, std::string_view key, std::string fallback, KeyHelp help) {
  auto found = find_model(table.text(key, std::move(fallback), help));
  if (!found) table.fail(key, found.error().message);
  return *std::move(found);
}

namespace {

ExportChoice read_export(const JobTable& train, const TrainConfig& read) {
  const ExportChoice chosen = train.choice(
      "export", read.export_dtype, export_choice_names,
      {"the dtype of the models that a finished run writes to `out`/models, a complete Hugging Face folder "
       "for each trained section; source: the dtype of `weights`, else f32; none: no models"});
  if (read.checkpoint_at_end || !train.has("export") || chosen == ExportChoice::none) return chosen;
  train.fail("export", "needs the checkpoint at the end; set checkpoint_at_end = true, or export = \"none\"");
}

void read_length(const JobTable& train, TrainConfig& out) {
  out.steps = train.integer("steps", out.steps, counts, {"optimizer steps of every trained section", "steps"});
  out.epochs = train.number("epochs", out.epochs, {.min = 0.0, .max = 1e9},
                            {"passes over the training samples, instead of `steps`; 0: `steps` counts", "epochs"});
  if (out.epochs > 0 && train.has("steps")) train.fail("epochs", "conflicts with steps; remove one of them");
  out.schedule_steps =
      train.integer("schedule_steps", out.schedule_steps, counts_or_zero,
                    {"steps over which each section's learning rate rises and decays; 0: the run's "
                     "steps. A longer run keeps an earlier run's schedule if it names that run's steps",
                     "steps"});
}

}  // namespace

TrainConfig read_train(const JobTable& train) {
  TrainConfig out;
  read_length(train, out);
  out.seed = train.integer("seed", out.seed, at_least_zero, {"the seed of initial values and sample order"});
  out.global_batch = train.integer("global_batch", out.global_batch, {.min = 1, .max = most_samples_of_a_step},
                                   {"samples of a step, over all replicas", "samples"});
  out.deterministic = train.flag("deterministic", out.deterministic,
                                 {"true: plans use FLOP models only, and two runs give bitwise equal losses; false: "
                                  "plans use measured times, and GPUs the fastest products and attention"});
  out.cuda_graphs = train.choice("cuda_graphs", out.cuda_graphs, cuda_graphs_names,
                                 {"replay of repeated GPU passes as CUDA graphs; auto: if the CPU issues a pass more "
                                  "slowly than the GPU computes it; results are the same"});
  out.checkpoint_every = train.integer("checkpoint_every", out.checkpoint_every, counts_or_zero,
                                       {"steps between checkpoints; 0: only at the end and on Ctrl-C", "steps"});
  out.shadow_every =
      train.integer("shadow_every", out.shadow_every, counts_or_zero,
                    {"steps between checkpoints in host memory, for a recovery after the loss of a process; "
                     "0: none",
                     "steps"});
  out.checkpoint_at_end = train.flag("checkpoint_at_end", out.checkpoint_at_end,
                                     {"a checkpoint and the trained weights are written at the end"});
  out.keep_checkpoints = train.integer("keep_checkpoints", out.keep_checkpoints, counts,
                                       {"checkpoints kept; older checkpoints are removed"});
  out.archive_every =
      train.integer("archive_every", out.archive_every, counts_or_zero,
                    {"steps between checkpoints that are also kept forever, in `out`/archive; 0: none", "steps"});
  out.archive =
      train.choice("archive", out.archive, archive_choice_names,
                   {"the archived part of a checkpoint: full: everything, so that a run can continue from it; "
                    "bf16: only the weights, a Hugging Face folder for each trained section"});
  if (out.archive_every == 0 && train.has("archive")) train.fail("archive", "applies only with archive_every");
  out.export_dtype = read_export(train, out);
  out.validate_every = train.integer("validate_every", out.validate_every, counts_or_zero,
                                     {"steps between validations; 0: only at the end", "steps"});
  out.validation_samples = train.integer("validation_samples", out.validation_samples, counts_or_zero,
                                         {"validation samples at most; 0: the complete validation part", "samples"});
  out.ahead = train.integer("ahead", out.ahead, {.min = 1, .max = 1024},
                            {"steps announced beyond the oldest unfinished step", "steps"});
  out.stall_timeout_s = train.number("stall_timeout_s", out.stall_timeout_s, {.min = 0, .max = 1e6},
                                     {"a run ends with an error after this time without progress, or after four times "
                                      "its longest gap so far if that is longer; 0: never",
                                      "s"});
  out.work_timeout_s =
      train.number("work_timeout_s", out.work_timeout_s, {.min = 0, .max = 1e6},
                   {"a run ends with an error that names the working sections if none finishes its work "
                    "within this time; 0: they are only reported",
                    "s"});
  if (out.work_timeout_s > 0 && out.stall_timeout_s == 0) {
    train.fail("work_timeout_s", "does not apply with stall_timeout_s = 0, which turns the checks of the run off");
  }
  out.peer_timeout_s = train.number("peer_timeout_s", out.peer_timeout_s, seconds,
                                    {"silence after which a process counts as lost", "s"});
  out.recover = train.choice(
      "recover", out.recover, recover_choice_names,
      {"when a process is lost: restart: others take its replicas of frozen sections, or the job continues from "
       "the state of other replicas, its newest checkpoint or its start; off: the run ends with an error"});
  out.max_recoveries = train.integer("max_recoveries", out.max_recoveries, counts_or_zero,
                                     {"lost processes after which a run continues; the next loss ends it"});
  out.clip = train.choice("clip", out.clip, clip_scope_names,
                          {"the gradient norm for clipping: of each section, or of all sections together"});
  out.out = nonempty(
      train, "out",
      train.text("out", out.out, {"the folder for checkpoints, weights, report and trace, of one run at a time"}),
      "a folder for the run's files");
  return out;
}

EmulationConfig read_emulation(const JobTable& emulation) {
  EmulationConfig out;
  out.gflops = emulation.number("gflops", out.gflops, positive,
                                {"the speed of an emulated device, for pass times from FLOP models", "GFLOP/s"});
  out.step_ms = emulation.number("step_ms", out.step_ms, {.min = 0, .max = 3.6e6},
                                 {"clipping and the optimizer's step, in each trained section at the end of a step; 0: "
                                  "they take no time",
                                  "ms"});
  out.reduce_gb_s =
      emulation.number("reduce_gb_s", out.reduce_gb_s, {.min = 0, .max = 1e9},
                       {"the bandwidth of an emulated device in the sum of gradients over the replicas of a section, a "
                        "ring that moves 2 (r - 1) / r of a rank's gradient bytes; 0: the sum takes no time",
                        "GB/s"});
  return out;
}

ScheduleConfig read_schedule(const JobTable& schedule, const std::vector<std::string>& policies) {
  ScheduleConfig out;
  out.policy =
      schedule.choice("policy", out.policy, policies,
                      {"the placement and order of micro-batches: wavefront (searched), arrival (as they arrive, "
                       "replicas in turn), bulk_synchronous (equal shares, then a barrier: the baseline)"});
  out.budget_ms = schedule.number("budget_ms", out.budget_ms, {.min = 0.0, .max = 3.6e6, .min_open = true},
                                  {"planning time of a step, with train.deterministic = false", "ms"});
  out.evaluations = schedule.integer(
      "evaluations", out.evaluations, counts_or_zero,
      {"plans tried for a step, with train.deterministic = true; 0: depends on the step's size", "plans"});
  return out;
}

GuardConfig read_guard(const JobTable& guard) {
  GuardConfig out;
  out.action = guard.choice("action", out.action, guard_action_names,
                            {"the reaction to spikes: note: an event in the record and a line; skip: no section "
                             "trains on a step with a gradient norm that is huge or not finite; rollback: the run goes "
                             "back to a checkpoint before a loss that rises and stays high, or is not finite, and "
                             "leaves out the samples around its start"});
  out.window = guard.integer("window", out.window, {.min = 8, .max = 65536},
                             {"steps that define the usual losses and gradient norms; judging begins after a "
                              "quarter of them",
                              "steps"});
  out.z = guard.number(
      "z", out.z, {.min = 1, .max = 1e6},
      {"a spike begins with a loss at least this many robust standard deviations above the window's median"});
  out.rise = guard.number("rise", out.rise, {.min = 0, .max = 1e6},
                          {"a spike also begins at least this far above the median", "nats"});
  out.patience = guard.integer("patience", out.patience, counts,
                               {"steps after which a spike counts as lasting, if the loss has not fallen back; skip: "
                                "skipped steps in a row after which the run fails",
                                "steps"});
  out.norm = guard.number("norm", out.norm, {.min = 1, .max = 1e9, .min_open = true},
                          {"a gradient norm is huge from this many times the window's median on"});
  out.skip_steps =
      guard.integer("skip_steps", out.skip_steps, {.min = 2, .max = 65536},
                    {"rollback: steps whose samples are left out, half of them before the spike's start", "steps"});
  out.max_rollbacks = guard.integer("max_rollbacks", out.max_rollbacks, counts_or_zero,
                                    {"rollbacks of a run; later spikes are only noted"});
  return out;
}

TransportConfig read_transport(const JobTable& transport) {
  TransportConfig out;
  out.provider = transport.choice("provider", out.provider, {"auto", "shm", "tcp", "verbs", "efa"},
                                  {"the libfabric provider; auto: shm if all processes are on one machine"});
  out.force_rma = transport.flag("force_rma", out.force_rma, {"RMA writes inside a process, too; for tests"});
  out.slots = transport.integer("slots", out.slots, {.min = 1, .max = most_slots},
                                {"micro-batches in transfer per edge and consumer replica; between hosts 8 if the "
                                 "key is absent",
                                 "slots"});
  out.chunk_kib = transport.integer("chunk_kib", out.chunk_kib, {.min = 1, .max = std::int64_t{1} << 20},
                                    {"the largest single RMA write", "KiB"});
  out.timeout_s = transport.number("timeout_s", out.timeout_s, seconds,
                                   {"the time within which a write must leave; else it fails", "s"});
  out.listen =
      transport.text("listen", out.listen,
                     {"the address that processes listen on: an address, an interface (\"eth0\"), or \"auto\": "
                      "the address that leads to process 0"});
  if (!is_address(out.listen) && !is_interface(out.listen)) {
    transport.fail("listen",
                   "expected an address such as 127.0.0.1 (this machine only), an interface such as eth0, or auto, "
                   "got \"" +
                       printable(out.listen) + '"');
  }
  out.port = transport.integer("port", out.port, {.min = 0, .max = 65535},
                               {"the port of process 0; 0: any free port, or the port of the cluster's launcher"});
  out.keys =
      transport.text("keys", out.keys, {"the key folder made by `maestro keys`, for addresses that other hosts reach"});
  out.start_timeout_s = transport.number("start_timeout_s", out.start_timeout_s, seconds,
                                         {"the time within which all processes must have joined", "s"});
  return out;
}

}  // namespace maestro
