// SPDX-License-Identifier: Apache-2.0
#include "actors/live/run_metrics.hpp"

#include <charconv>
#include <filesystem>

#include "actors/control/control_types.h"
#include "actors/live/health.hpp"
#include "runtime/observe/metrics.hpp"

namespace maestro {
namespace {

void gauge(MetricRegistry& registry, const char* name, const char* help, double value,
           const MetricLabels& labels = {}) {
  registry.set(registry.gauge(name, help), labels, value);
}

void count(MetricRegistry& registry, const char* name, const char* help, double value) {
  registry.add(registry.counter(name, help), {}, value);
}

void add_sections(MetricRegistry& registry, const control::Status& status) {
  struct Shown {
    const char* metric;
    const char* name;
    const char* help;
    double scale = 1;
  };
  static constexpr Shown shown[] = {
      {"loss", "maestro_loss", "Training loss of the last step that the section has finished."},
      {"grad_norm", "maestro_grad_norm", "Norm of the section's gradient in the last step that it has finished."},
      {"lr", "maestro_learning_rate", "Learning rate of the last step that the section has finished."},
      {"generated_tokens", "maestro_generated_tokens", "Tokens that the generator made for the last step."},
      {"tokens_per_s", "maestro_generated_tokens_per_second", "Tokens that the generator made a second, at work."},
      {"length_mean", "maestro_generated_length_mean", "Mean length in tokens of the last step's made samples."},
      {"stop_share", "maestro_generated_stop_ratio", "Share of the last step's made samples that a stop token ended."},
      {"staleness", "maestro_generated_staleness_steps", "Age of the weights that made the last step's samples."},
      {"rollout_ms", "maestro_rollout_seconds", "Time from the last step's request to its last made sample.", 1e-3},
      {"rollout_wait_ms", "maestro_rollout_wait_seconds", "Time without training, as the last batch was late.", 1e-3}};
  for (const control::SectionFigures& section : status.sections) {
    const MetricLabels labels{section.name, {}};
    for (const Shown& one : shown) {
      const auto found = section.metrics.find(one.metric);
      if (found != section.metrics.end()) gauge(registry, one.name, one.help, found->second * one.scale, labels);
    }
  }
}

void add_devices(MetricRegistry& registry, const control::Status& status) {
  for (const control::DeviceFigures& device : status.devices) {
    gauge(registry, "maestro_device_busy_ratio",
          "Share of the last steps' time that replicas on the device spent in passes and at step ends.", device.busy,
          {{}, {}, {{"process", std::to_string(device.process)}, {"device", device.device}}});
  }
}

std::string edge_label(const GraphEdge& edge, const SectionGraph& graph) {
  return graph.node(edge.from).name + "." + edge.from_port + " -> " + graph.node(edge.to).name + "." + edge.to_port;
}

void add_lanes(MetricRegistry& registry, const StepTotals& figures, const SectionGraph& graph) {
  constexpr double seconds_of_ms = 1e-3;
  const auto ratio =
      registry.gauge("maestro_busy_ratio", "Share of the last steps' time that the replica spent in passes.");
  const auto busy = registry.counter("maestro_busy_seconds_total", "Time that the replica spent in passes.");
  const auto ending = registry.counter("maestro_step_end_seconds_total",
                                       "Time that the replica spent in gradient sums and the optimizer.");
  const auto waiting =
      registry.counter("maestro_wait_seconds_total",
                       "Time that the replica waited, by the section that it waited for, or by reason; device: the "
                       "device worked for other replicas.");
  const auto sent =
      registry.counter("maestro_transfer_bytes_total", "Bytes of tensors that replicas have sent along an edge.");
  const auto transferring = registry.counter("maestro_transfer_seconds_total",
                                             "Time from sending pieces of tensors until other processes had received "
                                             "them, without waits for credits.");
  const auto labels_of = [&](const Lane& lane) { return MetricLabels{graph.node(lane.first).name, lane.second}; };
  for (const auto& [lane, use] : figures.recent_use) {
    if (use.whole_ms > 0) registry.set(ratio, labels_of(lane), use.busy_share());
  }
  SentBytes by_channel;
  ChannelTimes times;
  for (const auto& [lane, report] : figures.lanes) {
    MetricLabels labels = labels_of(lane);
    registry.add(busy, labels, report.times.busy_ms * seconds_of_ms);
    registry.add(ending, labels, report.times.step_end_ms * seconds_of_ms);
    for (const auto& [on, ms] : report.times.wait_ms) {
      labels.others = {{"on", on}};
      registry.add(waiting, labels, ms * seconds_of_ms);
    }
    for (const auto& [channel, bytes] : report.sent) by_channel[channel] += bytes;
    for (const auto& [channel, more] : report.transfers) times[channel] += more;
  }
  const auto labels_on = [&](Channel channel) {
    const char* direction = channel.gradient() ? "gradient" : "value";
    return MetricLabels{{}, {}, {{"edge", edge_label(graph.edge(channel.edge), graph)}, {"direction", direction}}};
  };
  for (const auto& [channel, bytes] : by_channel) registry.add(sent, labels_on(channel), static_cast<double>(bytes));
  for (const auto& [channel, sum] : times) registry.add(transferring, labels_on(channel), sum.sum_ms * seconds_of_ms);
}

void add_process(MetricRegistry& registry, const ProcessFigures& process) {
  for (const auto& [device, bytes] : process.memory_bytes) {
    gauge(registry, "maestro_memory_bytes", "Peak memory of process 0 so far.", bytes, {{}, {}, {{"device", device}}});
  }
  gauge(registry, "maestro_build_info", "Always 1; the labels describe process 0.", 1,
        {{}, {}, {{"version", process.version}, {"instruction_set", process.instruction_set}}});
  count(registry, "maestro_rma_bytes_total", "Bytes of tensors that process 0 has written to other processes.",
        process.rma_bytes);
}

}  // namespace

std::uint64_t step_of_checkpoint(const std::string& path) {
  constexpr std::string_view before = "step-";
  const std::string name = std::filesystem::path(path).filename().string();
  std::uint64_t step = 0;
  if (!name.starts_with(before)) return 0;
  const auto [end, failure] = std::from_chars(name.data() + before.size(), name.data() + name.size(), step);
  return failure == std::errc() ? step : 0;
}

std::string metrics_text(const control::Status& status, const RunStatus& run, const SectionGraph& graph,
                         const ProcessFigures& process) {
  MetricRegistry registry;
  gauge(registry, "maestro_step", "The last complete training step.", static_cast<double>(run.last_step));
  if (run.figures.last_end_time) {
    const auto since_epoch = run.figures.last_end_time->time_since_epoch();
    gauge(registry, "maestro_last_step_timestamp_seconds", "Unix time at which the last training step ended.",
          std::chrono::duration<double>(since_epoch).count());
  }
  add_sections(registry, status);
  count(registry, "maestro_samples_total", "Samples trained in steps that this process has seen end.",
        run.figures.samples);
  count(registry, "maestro_tokens_total", "Tokens read in steps that this process has seen end.", run.figures.tokens);
  registry.set(registry.histogram("maestro_step_seconds",
                                  "Time from the end of the unit before a training step to the step's end."),
               {}, run.figures.seconds);
  gauge(registry, "maestro_checkpoint_last_step", "Step of the last checkpoint on disk; 0: none yet.",
        static_cast<double>(step_of_checkpoint(run.checkpoint)));
  count(registry, "maestro_bad_samples_total", "Samples that could not be read and were left out.",
        run.left_out + process.left_out_before);
  count(registry, "maestro_recoveries_total", "Lost processes after which the run continued.", run.recoveries.size());
  for (std::size_t state = 0; state <= static_cast<std::size_t>(RunState::finished); ++state) {
    const auto each = static_cast<RunState>(state);
    gauge(registry, "maestro_run_state", "1 for the state of the run, 0 for the others.", run.state == each ? 1 : 0,
          {{}, {}, {{"state", name_of(each)}}});
  }
  if (run.steady_step) {
    gauge(registry, "maestro_step_time_over_bound",
          "Median time between the ends of the last steps, over the median lower bound of a step by itself.",
          run.steady_step->over_bound());
  }
  add_devices(registry, status);
  add_lanes(registry, run.figures, graph);
  add_process(registry, process);
  return registry.prometheus_text();
}

}  // namespace maestro
