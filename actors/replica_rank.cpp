#include "actors/replica_rank.hpp"

#include <algorithm>
#include <cstring>
#include <future>
#include <utility>

namespace maestro {

namespace {

using Clock = std::chrono::steady_clock;

/// With the device current, as on its own thread; waits for that.
Result<std::unique_ptr<Region>> register_on(Device& device, Network& network, std::byte* block, std::size_t bytes) {
  constexpr std::string_view kind = "cuda:";
  const int index = std::stoi(device.name().substr(kind.size()));
  std::promise<Result<std::unique_ptr<Region>>> registered;
  device.submit(Priority::critical, [&] { registered.set_value(network.register_device_memory(block, bytes, index)); });
  return registered.get_future().get();
}

/// Memory of a rank's device that other processes of the host share, and theirs, as far as its backend does that.
PortDevice port_device(const ReplicaSpec& spec, std::uint32_t rank) {
  PortDevice made;
  made.device = spec.ranks[rank].device;
  made.memory = &made.device->ops().memory();
  made.paths = spec.paths;
  made.log = spec.log;
  if (spec.backend == nullptr || !made.apart()) return made;
  made.register_memory = [network = spec.network, device = made.device](std::byte* block, std::size_t bytes) {
    return register_on(*device, *network, block, bytes);
  };
  made.export_memory = [backend = spec.backend, device = made.device](const std::byte* block) {
    const std::vector<std::byte> exported = backend->export_memory(*device, block);
    return std::string(reinterpret_cast<const char*>(exported.data()), exported.size());
  };
  made.import_memory = [backend = spec.backend, opened = spec.opened, device = made.device](
                           std::string_view exported, std::string& why_not) -> std::weak_ptr<ImportedMemory> {
    auto memory = backend->import_memory(*device, std::as_bytes(std::span(exported)), why_not);
    if (memory == nullptr) return {};
    return opened->keep(std::move(memory));
  };
  return made;
}

ReplicaPortsOptions ports_options(const ReplicaSpec& spec, std::uint32_t rank) {
  ReplicaPortsOptions options;
  options.graph = spec.graph;
  options.section = spec.section;
  options.replica = spec.replica;
  options.layout_rank = rank;
  options.rank = spec.rank;
  options.largest = spec.largest;
  options.limits = spec.limits;
  options.epoch = spec.epoch;
  options.remote = spec.remote;
  options.device = port_device(spec, rank);
  return options;
}

ReplicaReductionOptions common_options(const ReplicaSpec& spec, std::uint32_t rank, std::uint32_t client) {
  ReplicaReductionOptions options;
  options.layout_rank = rank;
  options.rank = spec.rank;
  options.remote = spec.remote;
  options.client = client;
  return options;
}

ReplicaReductionOptions reduction_options(const ReplicaSpec& spec, std::uint32_t rank, std::uint32_t client,
                                          const GradientMirror& mirror) {
  const GraphNode& node = spec.graph->node(spec.section);
  const Parameters& parameters = spec.ranks[rank].runner->section().parameters();
  ReplicaReductionOptions options = common_options(spec, rank, client);
  options.held = parameters.shares_moments();
  options.gradients = mirror.values();
  options.self = spec.replica.value();
  if (!node.trained() || options.gradients.empty()) return options;
  for (std::uint32_t replica = 0; replica < static_cast<std::uint32_t>(node.replicas); ++replica) {
    options.members.push_back({spec.section, ReplicaIndex(replica)});
  }
  return options;
}

/// Of the first and the last stage of a section that hold one parameter: its gradients are added up replica by replica.
ReplicaReductionOptions tie_options(const ReplicaSpec& spec, std::uint32_t rank, std::uint32_t client,
                                    const GradientMirror& mirror) {
  const GraphNode& node = spec.graph->node(spec.section);
  ReplicaReductionOptions options = common_options(spec, rank, client);
  options.kind = ReductionKind::tie;
  const Parameter* tied = spec.ranks[rank].runner->section().tied();
  if (!node.trained() || node.stages == 1 || tied == nullptr) return options;
  options.gradients = mirror.values_of(tied->gradient().span<float>());
  const std::vector<SectionId> stages = spec.graph->stages_of(node.section_name());
  options.members = {{stages.front(), spec.replica}, {stages.back(), spec.replica}};
  options.self = node.stage == 0 ? 0 : 1;
  return options;
}

/// Of replicas that share their moments, for a checkpoint. Context parts hold the same: the first one is enough.
ReplicaReductionOptions moments_options(const ReplicaSpec& spec, std::uint32_t rank, std::uint32_t client,
                                        const GradientMirror& mirror) {
  ReplicaReductionOptions options = reduction_options(spec, rank, client, mirror);
  options.kind = ReductionKind::moments;
  const Layout& layout = spec.graph->node(spec.section).layout;
  if (!std::exchange(options.held, false) || layout.context_of(rank) != 0) options.members.clear();
  return options;
}

/// Empty where no other replica or stage has any of them: nothing of them ever moves.
std::span<float> exchanged_gradients(const ReplicaSpec& spec, std::uint32_t rank) {
  const GraphNode& node = spec.graph->node(spec.section);
  Section& section = spec.ranks[rank].runner->section();
  const bool tied = node.stages > 1 && section.tied() != nullptr;
  if (!node.trained() || (node.replicas == 1 && !tied)) return {};
  return section.parameters().gradients();
}

std::vector<Metric> as_messages(const std::vector<MetricSum>& sums) {
  std::vector<Metric> metrics;
  for (const MetricSum& sum : sums) metrics.push_back({sum.name, sum.sum, sum.weight});
  return metrics;
}

void abort_groups(const ParallelContext& parallel, const std::string& why) {
  if (parallel.tensor_group != nullptr) parallel.tensor_group->abort(why);
  if (parallel.context_group != nullptr) parallel.context_group->abort(why);
}

/// Rows that came in several pieces join in one memory.
void gather(const OperatorTable& ops, const ArrivedTensor::Copy& copy) {
  if (copy.from_host && copy.to_host) {
    std::memcpy(copy.to, copy.from, copy.bytes);
    return;
  }
  const Shape shape{static_cast<std::int64_t>(copy.bytes)};
  const Tensor from(const_cast<std::byte*>(copy.from), DType::u8, shape);
  const Tensor to(copy.to, DType::u8, shape);
  copy.to_host ? ops.download(from, to) : ops.upload(from, to);
}

}  // namespace

ReplicaRank::ReplicaRank(const ReplicaSpec& spec, std::uint32_t index, PortEvents events)
    : spec_(&spec),
      index_(index),
      ports_(ports_options(spec, index), *spec.network, std::move(events)),
      mirror_(spec.ranks[index].device->ops(), exchanged_gradients(spec, index)),
      reductions_{ReplicaReduction(reduction_options(spec, index, ports_.client(), mirror_), *spec.network),
                  ReplicaReduction(tie_options(spec, index, ports_.client(), mirror_), *spec.network),
                  ReplicaReduction(moments_options(spec, index, ports_.client(), mirror_), *spec.network)},
      trace_(*spec.trace, *spec.graph, {spec.section, spec.replica, index}) {
  MemorySpace& memory = spec.ranks[index].device->ops().memory();
  for (const std::span<std::byte> block : ports_.memory()) memory.pin(block.data(), block.size());
}

ReplicaRank::~ReplicaRank() {
  MemorySpace& memory = spec_->ranks[index_].device->ops().memory();
  for (const std::span<std::byte> block : ports_.memory()) memory.unpin(block.data());
}

void ReplicaRank::route(const caf::actor& self) const {
  for (const std::uint32_t ring : ports_.ring_numbers()) spec_->network->route_ring(ring, self);
  for (const ReplicaReduction& reduction : reductions_) {
    for (const std::uint32_t ring : reduction.ring_numbers()) spec_->network->route_ring(ring, self);
  }
  spec_->network->route_client(ports_.client(), self);
}

std::vector<ReductionAddress> ReplicaRank::reduction_addresses() const {
  std::vector<ReductionAddress> addresses;
  for (const ReplicaReduction& reduction : reductions_) addresses.push_back(reduction.address());
  return addresses;
}

void ReplicaRank::connect_reductions(const Directory& directory, const ReplicaReduction::Deliver& deliver) {
  for (ReplicaReduction& reduction : reductions_) reduction.connect(directory, deliver);
}

bool ReplicaRank::reduction_landed(std::uint32_t immediate) {
  return std::ranges::any_of(reductions_, [&](ReplicaReduction& reduction) { return reduction.landed(immediate); });
}

bool ReplicaRank::reduction_write_finished(std::uint64_t cookie) {
  return std::ranges::any_of(reductions_,
                             [&](ReplicaReduction& reduction) { return reduction.write_finished(cookie); });
}

Result<ReplicaRank::Job> ReplicaRank::pass(const SharedMicroBatch& batch, bool forward, bool backward) {
  const MicroBatchPlan& plan = *batch;
  auto given = ports_.open(plan, !forward);
  if (!given) return given.error();
  sending_ = forward ? ports_.acquire(plan, false) : std::vector<SendBuffer>();
  if (backward) {
    for (SendBuffer& buffer : ports_.acquire(plan, true)) sending_.push_back(std::move(buffer));
  }
  std::vector<PortTensor> outputs;
  std::vector<PortTensor> gradients;
  for (const SendBuffer& send : sending_) {
    const GraphEdge& edge = spec_->graph->edge(send.edge);
    (send.gradient ? gradients : outputs)
        .push_back({send.gradient ? edge.to_port : edge.from_port, send.tensor, false, send.place()});
  }
  return Job([runner = runner(), device = spec_->ranks[index_].device, batch, given = std::move(*given),
              outputs = std::move(outputs), gradients = std::move(gradients), forward, backward]() -> WorkResult {
    const std::shared_ptr<WorkTimer> timer = device->timer();
    timer->mark();
    PassMetrics metrics;
    std::vector<PortTensor> tensors;
    for (const auto& [tensor, copies] : given) {
      for (const auto& copy : copies) gather(device->ops(), copy);
      tensors.push_back(tensor);
    }
    if (forward) metrics = runner->forward(*batch, tensors, outputs);
    timer->mark();
    if (backward) runner->backward(*batch, forward ? std::vector<PortTensor>() : tensors, gradients);
    timer->mark();
    // What the pass works on stays until it is complete.
    return std::function<WorkDone()>([timer, metrics = std::move(metrics), forward, backward, batch] {
      WorkDone result;
      result.metrics = as_messages(metrics.get());
      (forward ? result.forward_ms : result.backward_ms) = timer->milliseconds(0, 1);
      if (backward) result.backward_ms += timer->milliseconds(1, 2);
      return result;
    });
  });
}

TracedWork ReplicaRank::traced_pass(const MicroBatchPlan& plan, bool forward, bool backward) const {
  const bool source = node().mode == Mode::source;
  const TraceCategory category = source    ? TraceCategory::source
                                 : forward ? TraceCategory::forward
                                           : TraceCategory::backward;
  const std::string_view label = source                ? "read"
                                 : forward && backward ? "forward + backward"
                                 : forward             ? (plan.pass == Pass::train ? "forward" : "evaluate")
                                                       : "backward";
  TracedWork traced = trace_.work(label, category, plan.step);
  trace_.add_arrows(traced, plan, forward, backward);
  return traced;
}

Status ReplicaRank::send(const MicroBatchPlan& plan) {
  Status sent = ports_.send(plan, std::move(sending_));
  sending_.clear();
  return sent;
}

void ReplicaRank::begin(ReductionKind kind) {
  at_ = kind;
  holding_ = false;
  reducing_ = Reducing::no;
  if (!reduction(kind).needed()) return;
  // Moments are offered when they are asked for; gradients are as they are now.
  if (mirror_.apart() && kind != ReductionKind::moments) {
    reducing_ = Reducing::leaving;
    return;
  }
  reducing_ = Reducing::moving;
  reduction(kind).begin();
}

void ReplicaRank::begin_reduction() {
  begin(reduction(ReductionKind::tie).needed() ? ReductionKind::tie : ReductionKind::replicas);
}

void ReplicaRank::begin_distribution() {
  if (reducing_ == Reducing::moving) reduction(at_).release();
  if (reducing_ == Reducing::held) reducing_ = Reducing::leaving;
}

void ReplicaRank::begin_gather(ParameterBuffer which) {
  offered_ = which;
  begin(ReductionKind::moments);
}

ReplicaRank::Job ReplicaRank::sum_job() {
  if (at_ == ReductionKind::moments) {
    return [this, runner = runner(), which = offered_] {
      Parameters& parameters = runner->section().parameters();
      parameters.offer(*runner->context().ops, which);
      const ShardRange kept = parameters.kept_moments();
      if (mirror_.apart()) mirror_.take_out(kept.first, kept.count);
      return WorkDone();
    };
  }
  return [this, &now = reduction(at_)] {
    now.sum(*spec_->host_ops);
    return WorkDone();
  };
}

ShardRange ReplicaRank::moved_range() const {
  const Parameters& parameters = runner()->section().parameters();
  return holding_ ? parameters.kept_moments() : ShardRange{0, static_cast<std::size_t>(parameters.elements())};
}

ReplicaRank::Job ReplicaRank::copy_job(Doing doing) {
  return [this, doing, range = moved_range()] {
    if (doing == Doing::take_out) {
      mirror_.take_out(range.first, range.count);
    } else {
      mirror_.put_back(range.first, range.count);
    }
    return WorkDone();
  };
}

std::optional<std::pair<std::string_view, ReplicaRank::Job>> ReplicaRank::reduction_work() {
  const auto work = [this](Doing doing, std::string_view label, Job job) {
    reducing_ = Reducing::working;
    doing_ = doing;
    return std::pair<std::string_view, Job>(label, std::move(job));
  };
  if (reducing_ == Reducing::leaving) return work(Doing::take_out, "to host", copy_job(Doing::take_out));
  if (reducing_ == Reducing::returning) return work(Doing::put_back, "to device", copy_job(Doing::put_back));
  if (reducing_ != Reducing::moving) return std::nullopt;
  ReplicaReduction& now = reduction(at_);
  if (now.may_sum()) return work(Doing::sum, "reduce", sum_job());
  if (!now.may_copy()) return std::nullopt;
  return work(Doing::copy, "gather", [&now] {
    now.copy_sums();
    return WorkDone();
  });
}

void ReplicaRank::reduction_worked(const std::function<void(const caf::actor&, ShardRead)>& tell_read) {
  if (reducing_ != Reducing::working) return;
  reducing_ = Reducing::moving;
  switch (doing_) {
    case Doing::take_out:
      return taken_out();
    case Doing::sum:
      return reduction(at_).summed();
    case Doing::copy:
      return reduction(at_).copied(tell_read);
    case Doing::put_back:
      return put_back();
  }
}

void ReplicaRank::taken_out() {
  if (std::exchange(holding_, false)) return reduction(at_).release();
  reduction(at_).begin();
}

void ReplicaRank::put_back() {
  if (holding_) {
    reducing_ = Reducing::held;
  } else {
    finish_reduction();
  }
}

void ReplicaRank::finish_reduction() {
  reduction(at_).finish();
  reducing_ = Reducing::no;
  if (at_ == ReductionKind::tie) begin(ReductionKind::replicas);
}

bool ReplicaRank::reduced() {
  if (reducing_ == Reducing::no || reducing_ == Reducing::held) return true;  // held: until begin_distribution()
  if (reducing_ != Reducing::moving) return false;
  const bool holds = reduction(at_).holds_sum();
  if (!holds && !reduction(at_).complete()) return false;
  if (mirror_.apart()) {
    holding_ = holds;
    reducing_ = Reducing::returning;
    return false;
  }
  if (holds) return true;
  finish_reduction();
  return reduced();
}

void ReplicaRank::submit(TracedWork traced, Job job, std::chrono::nanoseconds lasts, const caf::actor& self) const {
  // Ranks that meet in collectives need one order on all devices, and priorities would break it (RK-2).
  const bool first = node().mode == Mode::forward_backward || spec_->ranks.size() > 1;
  Device* const device = spec_->ranks[index_].device;
  auto work = [self, traced = std::move(traced), job = std::move(job), runner = runner(), index = index_, device] {
    const auto begin = Clock::now();
    try {
      device->finish([self, traced, begin, index, given = job()](const std::string& failure) {
        traced.finished(begin);
        if (!failure.empty()) return tell_from_outside(self, Failure{failure});
        WorkDone result = given.get();
        result.layout_rank = index;
        tell_from_outside(self, std::move(result));
      });
    } catch (const CommunicatorAborted& aborted) {
      abort_groups(runner->context().parallel, aborted.what());  // RK-3; the one that failed first has told
    } catch (const std::exception& problem) {
      tell_from_outside(self, Failure{problem.what()});
      abort_groups(runner->context().parallel, problem.what());
    }
  };
  device->submit_lasting(lasts, first ? Priority::critical : Priority::background, std::move(work));
}

}  // namespace maestro
