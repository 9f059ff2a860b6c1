// SPDX-License-Identifier: Apache-2.0
#include "actors/run/record/run_report.hpp"

#include <algorithm>

#include "actors/job/lane_text.hpp"
#include "actors/job/memory_table.hpp"

namespace maestro {

namespace {

constexpr double bytes_per_mb = 1e6;

double per_second(std::uint64_t count, double seconds) {
  return seconds > 0 ? static_cast<double>(count) / seconds : 0.0;
}

void describe_plan(const ResolvedJob& plan, Report& report) {
  report.set("plan.job", plan.name);
  report.set("plan.steps", all_steps(plan));
  report.set("plan.seed", plan.train.seed);
  report.set("plan.global_batch", plan.train.global_batch);
  report.set("plan.processes", plan.options.processes);
  report.set("plan.policy", plan.schedule.policy);
  report.set("plan.corpus", plan.corpus->describe());
  report.set("plan.job_file", plan.effective_job);
  for (const ReplicaPlacement& place : plan.places) {
    const GraphNode& node = plan.graph.node(place.section);
    const SectionConfig& config = plan.sections[place.section.value()].config;
    const Layout layout = node.layout_of(place.replica);
    // FLOPs of a rank of the widest replica: a narrower replica's ranks have more rows each.
    const double share = static_cast<double>(node.layout.ranks()) / static_cast<double>(layout.ranks());
    report.add_row("plan.lanes", {{"section", node.name},
                                  {"mode", std::string(mode_name(node.role))},
                                  {"replica", place.replica.value()},
                                  {"process", place.process.value()},
                                  {"device", text_of(place.devices.front())},
                                  {"devices", texts_of(place.devices)},
                                  {"tensor", layout.tensor},
                                  {"context", layout.context},
                                  {"precision", std::string(name_of(config.precision))},
                                  {"micro_batch", node.micro_batch},
                                  {"flops_per_token", share * plan.flops_per_token[place.section.value()]}});
  }
  for (const GraphEdge& edge : plan.graph.edges()) {
    report.add_row("plan.edges", {{"from", plan.graph.node(edge.from).name + "." + edge.from_port},
                                  {"to", plan.graph.node(edge.to).name + "." + edge.to_port},
                                  {"row_bytes", static_cast<std::int64_t>(edge.row_bytes())},
                                  {"gradient", edge.gradient}});
  }
}

/// Returns the GPU memory used by all processes of the host.
double used_of(const ResolvedJob& plan, const ProcessTotals& totals, std::uint32_t host, const std::string& device) {
  const std::vector<std::uint32_t>& hosts = plan.options.launch_info.place.hosts;
  double mb = 0;
  for (const auto& [at, used] : totals.device_mb) {
    const std::size_t process = at.first.value();
    const bool here = process >= hosts.size() || hosts[process] == host;
    if (here && at.second == device) mb += used;
  }
  return mb;
}

/// Returns the peak size of the rank's arenas in any process; 0 for emulated sections.
double arenas_of(const ResolvedJob& plan, const ProcessTotals& totals, const RankMemory& rank) {
  const std::string name = rank_text(plan.graph, rank.section, rank.replica, rank.rank);
  double mb = 0;
  for (const auto& [at, used] : totals.device_mb) {
    if (at.second == name) mb = std::max(mb, used);
  }
  return mb;
}

void describe_memory(const ResolvedJob& plan, const ProcessTotals& totals, Report& report) {
  const MemoryEstimate estimate = estimate_memory(plan);
  report.set("memory.estimated_mb", host_bytes(estimate) / bytes_per_mb);
  report.set("memory.used_mb", totals.max_rss_mb);
  for (const RankMemory& rank : estimate.ranks) {
    report.add_row("memory.ranks", {{"section", plan.graph.node(rank.section).name},
                                    {"replica", rank.replica.value()},
                                    {"rank", rank.rank.value()},
                                    {"parameters_mb", rank.use.parameters / bytes_per_mb},
                                    {"gradients_mb", rank.use.gradients / bytes_per_mb},
                                    {"optimizer_mb", rank.use.optimizer / bytes_per_mb},
                                    {"activations_mb", rank.use.activations / bytes_per_mb},
                                    {"arenas_mb", arenas_of(plan, totals, rank)},
                                    {"edges_mb", rank.use.edges / bytes_per_mb},
                                    {"checkpoint_mb", rank.use.checkpoint / bytes_per_mb}});
  }
  for (const auto& [process, mb] : totals.rss_mb) {  // the plan lacks processes that joined later
    const bool planned = process.value() < estimate.processes.size();
    report.add_row("memory.processes",
                   {{"process", process.value()},
                    {"estimated_mb", planned ? estimate.processes[process.value()] / bytes_per_mb : 0.0},
                    {"used_mb", mb}});
  }
  for (const auto& [planned, bytes] : estimate.devices) {
    const std::string device = text_of(planned.second);
    report.add_row("memory.devices", {{"host", planned.first},
                                      {"device", device},
                                      {"estimated_mb", bytes / bytes_per_mb},
                                      {"used_mb", used_of(plan, totals, planned.first, device)}});
  }
}

void describe_validation(const RunRecord& record, Report& report) {
  for (const auto& [section, metrics] : record.validation) {
    for (const auto& [name, value] : metrics) report.set("validation.sections." + section + "." + name, value);
    const auto exact = metrics.find("exact_match");
    if (exact != metrics.end()) report.set("validation.exact_match", exact->second);
    const auto ce = metrics.find("ce");
    if (exact != metrics.end() && ce != metrics.end()) report.set("validation.ce", ce->second);
    const auto teacher = metrics.find("teacher_ce");
    if (teacher != metrics.end()) report.set("validation.teacher_ce", teacher->second);
    if (ce == metrics.end()) continue;
    // A section with a teacher is the distilled student; a section without one is the plain student or a trained
    // teacher.
    if (metrics.contains("kl") || teacher != metrics.end())
      report.set("validation.distilled_ce", ce->second);
    else
      report.set("validation." + section + "_ce", ce->second);
  }
}

}  // namespace

ProcessTotals total_of(const std::vector<ProcessSummary>& processes) {
  ProcessTotals totals;
  for (const ProcessSummary& process : processes) {
    totals.max_rss_mb += process.max_rss_mb;
    totals.bytes += process.bytes;
    totals.writes += process.writes;
    totals.rss_mb[process.process] = process.max_rss_mb;
    for (const auto& [device, mb] : process.device_mb) totals.device_mb[{process.process, device}] = mb;
    if (totals.provider.empty()) totals.provider = process.provider;
  }
  return totals;
}

Report make_report(const ResolvedJob& plan, const RunRecord& record, const ProcessTotals& totals, ReportRows rows) {
  Report report;
  describe_plan(plan, report);
  report.set_rows("steps", std::move(rows.steps));
  report.set_rows("scheduling", std::move(rows.scheduling));
  describe_validation(record, report);
  const StepSamples counts = record.totals();
  report.set("samples.read", counts.read);
  report.set("samples.trained", counts.trained);
  report.set("samples.distinct", record.distinct.size());
  if (!record.left_out.empty()) report.set("samples.left_out", record.left_out);
  report.set("transfers.provider", totals.provider);
  report.set("transfers.bytes", totals.bytes);
  report.set("transfers.writes", totals.writes);
  report.set("throughput.samples_per_s", per_second(counts.trained, record.train_seconds));
  report.set("throughput.tokens_per_s", per_second(counts.tokens, record.train_seconds));
  report.set("throughput.train_seconds", record.train_seconds);
  if (const auto steady = record.steady_step()) {
    report.set("throughput.step_ms", steady->step_ms);
    report.set("throughput.lower_bound_ms", steady->lower_bound_ms);
    report.set("throughput.step_time_over_bound", steady->over_bound());
  }
  report.set("max_rss_mb", totals.max_rss_mb);
  describe_memory(plan, totals, report);
  report.set("resumed_from", record.resumed_from);
  report.set("last_step", record.last_step);
  report.set("interrupted", record.interrupted);
  std::vector<std::string> recoveries;
  for (const Recovery& recovery : record.recoveries) recoveries.push_back(line_of(recovery));
  if (!recoveries.empty()) report.set("recoveries", recoveries);
  report.set("checkpoint", record.checkpoint);
  if (record.drift) {
    report.set("prediction.step_ms", record.drift->predicted_ms);
    report.set("prediction.measured_step_ms", record.drift->measured_ms);
    if (record.drift->is_off()) report.set("prediction.text", text_of(*record.drift));
  }
  return report;
}

EventFields fields_of(const Result<RunRehearsal>& rehearsal) {
  if (!rehearsal) return {{"reason", rehearsal.error().message}};
  std::map<std::string, double> passes, measured_passes, step_ends, measured_step_ends;
  for (const auto& [name, use] : rehearsal->sections) {
    passes[name] = use.passes;
    measured_passes[name] = use.measured_passes;
    step_ends[name] = use.step_ends;
    measured_step_ends[name] = use.measured_step_ends;
  }
  return {{"steps", rehearsal->steps},
          {"step_ms", rehearsal->step_ms},
          {"measured_step_ms", rehearsal->measured_step_ms},
          {"passes", passes},
          {"measured_passes", measured_passes},
          {"step_ends", step_ends},
          {"measured_step_ends", measured_step_ends}};
}

void add_rehearsal(const Result<RunRehearsal>& rehearsal, Report& report) {
  for (const auto& [name, value] : fields_of(rehearsal)) report.set("rehearsal." + name, value);
}

RunResult make_result(const RunRecord& record, const ProcessTotals& totals) {
  const StepSamples counts = record.totals();
  RunResult result;
  result.status = 0;
  result.interrupted = record.interrupted;
  result.validation = record.validation;
  result.samples_per_s = per_second(counts.trained, record.train_seconds);
  result.tokens_per_s = per_second(counts.tokens, record.train_seconds);
  result.train_seconds = record.train_seconds;
  result.max_rss_mb = totals.max_rss_mb;
  result.provider = totals.provider;
  result.bytes = totals.bytes;
  result.writes = totals.writes;
  result.last_step = record.last_step;
  result.checkpoint = record.checkpoint;
  result.scheduling.assign(record.scheduling.kept().begin(), record.scheduling.kept().end());
  return result;
}

}  // namespace maestro
