// SPDX-License-Identifier: Apache-2.0
#include "actors/job/memory_table.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "actors/job/planning_options.hpp"
#include "actors/job/transfer_paths.hpp"
#include "runtime/schedule/port_sizes.hpp"
#include "sections/decoder/generator.hpp"

namespace maestro {

namespace {

/// Host memory of CUDA's context and libraries in a process with a GPU: 446 to 519 MB were seen in distillations, with
/// CUDA 13 on an H100.
constexpr double cuda_process_bytes = 450e6;
/// Host memory of a cuDNN attention plan. Each number of images in a micro-batch has a plan, and as many as
/// CudnnAttention::most_dense_plans are kept: 340 MB were seen for sixteen.
constexpr double picture_plan_bytes = 21e6;
constexpr std::int64_t most_picture_plans = 16;

/// Demands of a replica's ranks.
class ReplicaDemands {
 public:
  ReplicaDemands(const ResolvedJob& plan, const ReplicaPlacement& place)
      : plan_(&plan),
        place_(&place),
        node_(&plan.graph.node(place.section)),
        config_(&plan.sections[place.section.value()].config),
        layout_(node_->layout_of(place.replica)),
        sizes_(plan.graph, {place.section, place.replica}, plan.largest, flow_limits(plan)),
        paths_(plan.graph, plan.places, plan.transport.force_rma) {}

  [[nodiscard]] MemoryDemand of(LayoutRank rank) const {
    MemoryDemand demand;
    demand.held = plan_->held[place_->section.value()];
    demand.below = plan_->below[place_->section.value()];
    if (config_->zero) demand.moment_shards = config_->replicas;
    demand.trained = node_->trained();
    demand.keeps_activations = node_->runs_backward();
    demand.from_file = !config_->weights.empty();
    demand.shared = shares_values();
    demand.on_cuda = place_->devices[rank.value()].is_cuda();
    demand.precision = config_->precision;
    demand.moments = config_->optimizer.moments;
    const Cost largest = plan_->meta_sections[place_->section.value()]->cost(shape_of(plan_->largest, node_->reading));
    demand.sample_bytes = largest.bytes / static_cast<double>(layout_.ranks());
    demand.working_bytes = largest.working / static_cast<double>(layout_.ranks());
    const double measured =
        place_->section.value() < plan_->pass_bytes.size() ? plan_->pass_bytes[place_->section.value()] : -1;
    // Measured for replica 0; ranks share a micro-batch's rows.
    if (measured >= 0) {
      const auto ranks = static_cast<double>(node_->layout_of(ReplicaIndex(0)).ranks());
      demand.pass_bytes = measured * ranks / static_cast<double>(layout_.ranks());
    }
    if (node_->generates()) demand.pass_bytes = cached_bytes();
    demand.micro_batch = samples();
    demand.in_flight = in_flight();
    add_inputs(demand, rank);
    add_outputs(demand, rank);
    demand.edge_bytes += versions(rank);
    demand.exchange_bytes = node_->exchanges(rank.value()) ? exchange() : 0;
    demand.checkpoint_bytes = rank == LayoutRank(0) ? checkpoint() : 0;
    return demand;
  }

 private:
  /// Returns the memory for versions of weights: a sender's copies, a generator's slots.
  [[nodiscard]] double versions(LayoutRank rank) const {
    if (!plan_->rollouts || !plan_->rollouts->section) return 0;
    const std::int64_t staleness = plan_->rollouts->config.staleness;
    const DType dtype = plan_->sections[plan_->rollouts->section->value()].config.precision;
    const double whole =
        static_cast<double>(plan_->held[place_->section.value()].all) * static_cast<double>(size_of(dtype));
    if (node_->generates()) return static_cast<double>(std::max<std::int64_t>(staleness, 1)) * whole;
    if (!plan_->graph.publishes(place_->section) || layout_.context_of(rank.value()) > 0) return 0;
    const bool keeps = staleness > 0 && place_->replica == ReplicaIndex(0);  // for checkpoints
    return static_cast<double>(staleness + 2) * whole / static_cast<double>(keeps ? 1 : node_->replicas);
  }
  /// Returns the keys and values of a generator's sequences.
  [[nodiscard]] double cached_bytes() const {
    const auto* const model = dynamic_cast<const Generator*>(plan_->meta_sections[place_->section.value()].get());
    if (model == nullptr || !plan_->rollouts) return 0;
    const DecoderConfig& decoder = model->decoder();
    const std::int64_t rows = plan_->rollouts->config.slots * std::min(decoder.positions, plan_->largest.tokens);
    return 2.0 * static_cast<double>(decoder.layers * rows * decoder.key_columns()) *
           static_cast<double>(size_of(config_->precision));
  }
  [[nodiscard]] std::int64_t samples() const {
    const std::int64_t each = std::max<std::int64_t>(plan_->largest.rows(node_->axis()), 1);
    return std::max<std::int64_t>((sizes_.max_rows(node_->axis()) + each - 1) / each, 1);
  }
  /// Returns how many micro-batches the replica keeps at once: at most a step's micro-batches for it.
  [[nodiscard]] std::int64_t in_flight() const {
    if (!plan_->graph.splits_passes(place_->section)) return 1;
    const std::int64_t shared = samples() * node_->replicas;
    return std::min(node_->max_in_flight, (plan_->train.global_batch + shared - 1) / shared);
  }
  /// Returns whether an earlier frozen replica of the process holds the values (Section::shareable).
  [[nodiscard]] bool shares_values() const {
    if (node_->role != Role::frozen || layout_.ranks() > 1) return false;
    return std::ranges::any_of(plan_->places, [&](const ReplicaPlacement& other) {
      return other.section == place_->section && other.process == place_->process && other.replica < place_->replica &&
             other.devices.size() == 1 && (!place_->devices[0].is_cuda() || other.devices == place_->devices);
    });
  }
  [[nodiscard]] EdgeEnd end(LayoutRank rank) const { return {place_->section, place_->replica, rank}; }
  void add_inputs(MemoryDemand& demand, LayoutRank rank) const {
    for (const Channel channel : plan_->graph.received(place_->section)) {
      const double ring = static_cast<double>(sizes_.slots(channel)) * payload(channel, rank);
      if (paths_.arrives_by_rma(channel, end(rank))) demand.edge_bytes += ring;
      if (!demand.on_cuda) continue;
      if (paths_.arrives_on_device(channel, end(rank))) {
        demand.device_edge_bytes += ring;
      } else if (gathers_on_device(channel, rank)) {
        demand.device_edge_bytes += static_cast<double>(demand.in_flight) * payload(channel, rank);
      }
    }
  }
  /// Returns whether a micro-batch here combines several micro-batches' tensors from a GPU in this process (IR-2).
  [[nodiscard]] bool gathers_on_device(Channel channel, LayoutRank rank) const {
    const std::set<TransferPath> paths = paths_.arriving(channel, end(rank));
    const bool from_device = paths.contains(TransferPath::same_device) || paths.contains(TransferPath::between_gpus);
    return from_device && plan_->graph.node(plan_->graph.sender(channel)).micro_batch % node_->micro_batch != 0;
  }
  void add_outputs(MemoryDemand& demand, LayoutRank rank) const {
    std::set<std::pair<std::string, Direction>> pools;  // one for all edges of a port
    for (const Channel channel : plan_->graph.sent(place_->section)) {
      if (!pools.emplace(plan_->graph.sender_port(channel), channel.direction).second) continue;
      const bool on_device = !paths_.leaves_by_host(channel, end(rank));
      const bool in_full = on_device || paths_.leaves_pinned(channel, end(rank));
      const std::int64_t blocks = in_full ? sizes_.blocks(channel) : touched_blocks(channel);
      (on_device ? demand.device_edge_bytes : demand.edge_bytes) +=
          static_cast<double>(blocks) * payload(channel, rank);
    }
  }
  /// Returns how many blocks are touched (ME-1). The block that was returned last is used first, so these are at most
  /// the replica's micro-batches in its open steps.
  [[nodiscard]] std::int64_t touched_blocks(Channel channel) const {
    std::int64_t each = samples();
    for (const EdgeId edge : plan_->graph.outputs(place_->section)) {
      if (node_->follows_consumer()) each = std::min(each, plan_->graph.node(plan_->graph.edge(edge).to).micro_batch);
    }
    const std::int64_t shared = each * node_->replicas;
    const std::int64_t of_step = (plan_->train.global_batch + shared - 1) / shared;
    const std::int64_t steps = node_->runs_backward() ? 1 : plan_->train.ahead;
    return std::min(sizes_.blocks(channel), of_step * steps + 1);
  }
  [[nodiscard]] double payload(Channel channel, LayoutRank rank) const {
    return static_cast<double>(sizes_.payload(channel.edge, rank));
  }
  /// Returns the size of the memory for other replicas' parts of the gradients, and for encoded gradients.
  [[nodiscard]] double exchange() const {
    if (!node_->trained() || node_->replicas == 1) return 0;
    const bool apart =
        plan_->transport.force_rma || std::ranges::any_of(plan_->places, [&](const ReplicaPlacement& other) {
          return other.section == place_->section && other.process != place_->process;
        });
    const auto members = static_cast<double>(node_->replicas);
    const auto elements = static_cast<double>(plan_->held[place_->section.value()].all);
    const WireFormats formats = wire_formats(node_->gradient_wire, config_->zero);
    const double part = wire_bytes_per_element(formats.parts);
    const double sum = formats.sums == GradientWire::f32 ? 0 : wire_bytes_per_element(formats.sums);
    const double slots = formats.parts == GradientWire::f32 ? 0 : std::max(part, sum);
    return elements * (slots + (apart ? part * (members - 1) / members : 0)) + (apart ? row_messages() : 0);
  }
  /// Returns the size of messages about rows.
  [[nodiscard]] double row_messages() const {
    double bytes = 0;
    const auto members = static_cast<std::size_t>(node_->replicas);
    const std::int64_t tokens = plan_->largest.rows(node_->axis()) * plan_->train.global_batch;
    for (const TableSizes& table : plan_->held[place_->section.value()].tables) {
      bytes += static_cast<double>(RowMessageBounds(table, members, tokens).memory(members));
    }
    return bytes;
  }
  [[nodiscard]] double checkpoint() const {
    const TrainConfig& train = plan_->train;
    const bool written =
        train.checkpoint_at_end || train.checkpoint_every > 0 || train.archive_every > 0 || train.shadow_every > 0;
    if (!written || !node_->trained() || place_->replica != ReplicaIndex(0)) return 0;
    const std::size_t bytes_of_parameter = sizeof(float) + 2 * size_of(config_->optimizer.moments);
    const std::int64_t elements = plan_->held[place_->section.value()].all * layout_.holders();
    return static_cast<double>(elements) * static_cast<double>(bytes_of_parameter);
  }

  const ResolvedJob* plan_;
  const ReplicaPlacement* place_;
  const GraphNode* node_;
  const SectionConfig* config_;
  Layout layout_;
  PortSizes sizes_;
  TransferPaths paths_;
};

std::string range_text(const std::string& name, std::uint32_t first, std::uint32_t last) {
  return name + std::to_string(first) + (last == first ? "" : ".." + std::to_string(last));
}

/// Consecutive ranks of a section with equal use.
struct Alike {
  const RankMemory* first = nullptr;
  const RankMemory* last = nullptr;
  std::int64_t count = 0;
};

std::vector<Alike> alike(const std::vector<RankMemory>& ranks) {
  std::vector<Alike> groups;
  for (const RankMemory& rank : ranks) {
    const bool same =
        !groups.empty() && groups.back().first->section == rank.section && groups.back().first->use == rank.use;
    if (!same) groups.push_back({&rank, &rank, 0});
    groups.back().last = &rank;
    ++groups.back().count;
  }
  return groups;
}

std::string parts_text(const MemoryUse& use, std::int64_t in_flight) {
  const std::pair<const char*, double> parts[] = {{"parameters", use.parameters},
                                                  {"gradients", use.gradients},
                                                  {"optimizer", use.optimizer},
                                                  {"activations", use.activations},
                                                  {"edges", use.edges + use.device_edges},
                                                  {"checkpoint", use.checkpoint}};
  std::string text;
  for (const auto& [name, bytes] : parts) {
    if (bytes <= 0) continue;
    text += (text.empty() ? "" : ", ") + std::string(name) + " " + text_of_bytes(bytes);
    if (bytes == use.activations && in_flight > 1) text += " (" + std::to_string(in_flight) + " in flight)";
  }
  return text;
}

std::string line_of(const ResolvedJob& plan, const Alike& group) {
  const GraphNode& node = plan.graph.node(group.first->section);
  std::string text = node.name;
  if (node.replicas > 1) {
    text += range_text(" replica ", group.first->replica.value(), group.last->replica.value());
  }
  const auto ranks = static_cast<std::uint32_t>(node.layout_of(group.last->replica).ranks());
  if (ranks > 1) {
    const bool several = group.first->replica != group.last->replica;
    const std::uint32_t last = several ? ranks - 1 : group.last->rank.value();
    text += range_text(node.replicas > 1 ? ", rank " : " rank ", several ? 0 : group.first->rank.value(), last);
  }
  return text + ": " + parts_text(group.first->use, group.first->demand.in_flight) + "; " +
         text_of_bytes(group.first->use.sum()) + (group.count > 1 ? " each" : "");
}

}  // namespace

MemoryEstimate estimate_memory(const ResolvedJob& plan) {
  MemoryEstimate estimate;
  std::set<ProcessId> on_gpus;
  // Image counts for which a process holds cuDNN attention plans, once per process: a projector has none.
  std::map<ProcessId, std::int64_t> numbers_of_pictures;
  estimate.processes.assign(static_cast<std::size_t>(plan.options.processes), plan.program_bytes);
  for (const ReplicaPlacement& place : plan.places) {
    if (place.shares || plan.sections[place.section.value()].config.emulated()) continue;
    const ReplicaDemands demands(plan, place);
    for (std::uint32_t index = 0; index < place.devices.size(); ++index) {
      RankMemory rank{place.section, place.replica, LayoutRank(index), demands.of(LayoutRank(index)), {}};
      rank.use = use_of(rank.demand);
      double& process = estimate.processes[place.process.value()];
      process += rank.use.sum();
      if (rank.demand.on_cuda) {
        if (on_gpus.insert(place.process).second) process += cuda_process_bytes;
        if (counts_patches(plan.graph.node(place.section).axis()) && rank.demand.precision == DType::bf16) {
          std::int64_t& numbers = numbers_of_pictures[place.process];
          numbers = std::max(numbers, std::min(most_picture_plans, rank.demand.micro_batch));
        }
        process -= rank.use.on_device();
        estimate.devices[{place.host, place.devices[index]}] += rank.use.on_device();
      }
      estimate.ranks.push_back(std::move(rank));
    }
  }
  for (const auto& [process, numbers] : numbers_of_pictures) {
    estimate.processes[process.value()] += picture_plan_bytes * static_cast<double>(numbers);
  }
  return estimate;
}

double host_bytes(const MemoryEstimate& estimate) {
  return std::accumulate(estimate.processes.begin(), estimate.processes.end(), 0.0);
}

std::vector<std::string> describe_memory(const ResolvedJob& plan) {
  const MemoryEstimate estimate = estimate_memory(plan);
  std::vector<std::string> lines;
  for (const Alike& group : alike(estimate.ranks)) {
    constexpr double material = 1e6;
    const bool source = plan.graph.node(group.first->section).role == Role::source;
    if (!source || group.first->use.sum() >= material) lines.push_back(line_of(plan, group));
  }
  for (std::size_t first = 0; first < estimate.processes.size();) {
    std::size_t end = first + 1;
    while (end < estimate.processes.size() && estimate.processes[end] == estimate.processes[first]) ++end;
    lines.push_back(range_text("process ", static_cast<std::uint32_t>(first), static_cast<std::uint32_t>(end - 1)) +
                    ": " + text_of_bytes(estimate.processes[first]) + (end - first > 1 ? " each" : "") +
                    ", including program and corpus " + text_of_bytes(plan.program_bytes));
    first = end;
  }
  const bool several_hosts = plan.options.launch_info.several_hosts();
  for (const auto& [device, bytes] : estimate.devices) {
    const std::string host = several_hosts ? " of host " + std::to_string(device.first) : "";
    lines.push_back(text_of(device.second) + host + ": " + text_of_bytes(bytes));
  }
  return lines;
}

std::string memory_in_short(const ResolvedJob& plan) {
  const MemoryEstimate estimate = estimate_memory(plan);
  std::string text = "about " + text_of_bytes(host_bytes(estimate));
  if (estimate.processes.size() > 1) {
    text += " in all processes, at most " + text_of_bytes(std::ranges::max(estimate.processes)) + " in one";
  }
  double most = 0;
  for (const auto& [device, bytes] : estimate.devices) most = std::max(most, bytes);
  return most > 0 ? text + ", at most " + text_of_bytes(most) + " on a GPU" : text;
}

}  // namespace maestro
