// SPDX-License-Identifier: Apache-2.0
#include "actors/replica/replica_rank.hpp"

#include <algorithm>
#include <cstring>
#include <future>
#include <iterator>
#include <optional>
#include <string>
#include <utility>

#include "actors/messages/ready_queue.hpp"
#include "runtime/core/last_words.hpp"

namespace maestro {

namespace {

using Clock = std::chrono::steady_clock;

/// Registers memory on the device's thread, on which the device is current, and waits for the result.
Result<std::unique_ptr<Region>> register_on(const RankSpec& rank, Network& network, std::byte* block,
                                            std::size_t bytes) {
  std::promise<Result<std::unique_ptr<Region>>> registered;
  rank.device->submit(Priority::critical, [&] {
    registered.set_value(network.register_device_memory(block, bytes, rank.device_id.index));
  });
  return registered.get_future().get();
}

/// Returns the rank's device with its backend's functions, if any, that share its memory with processes of the host.
PortDevice port_device(const ReplicaSpec& spec, LayoutRank rank) {
  PortDevice made;
  made.device = spec.ranks[rank.value()].device;
  made.memory = &made.device->ops().memory();
  made.pins = made.apart() ? made.memory : spec.pins;
  made.paths = spec.paths;
  made.log = spec.log;
  if (spec.backend == nullptr || !made.apart()) return made;
  made.register_memory = [network = spec.network, on = &spec.ranks[rank.value()]](std::byte* block, std::size_t bytes) {
    return register_on(*on, *network, block, bytes);
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

ReplicaPortsOptions ports_options(const ReplicaSpec& spec, LayoutRank rank) {
  ReplicaPortsOptions options;
  options.graph = spec.graph;
  options.section = spec.section;
  options.replica = spec.replica;
  options.layout_rank = rank;
  options.process = spec.process;
  options.largest = spec.largest;
  options.limits = spec.limits;
  options.epoch = spec.epoch;
  options.again = spec.again;
  options.remote = spec.remote;
  options.device = port_device(spec, rank);
  return options;
}

std::vector<Metric> as_messages(const std::vector<MetricSum>& sums) {
  std::vector<Metric> metrics;
  for (const MetricSum& sum : sums) metrics.push_back({sum.name, sum.sum, sum.weight});
  return metrics;
}

void abort_groups(const ParallelContext& parallel, const std::string& why) {
  for (Communicator* group : parallel.groups()) {
    if (group != nullptr) group->abort(why);
  }
}

/// Returns why a completed job's result is invalid, because an exchange or collective in it has failed; empty: valid.
std::string failure_of(const WorkResult& result, const ParallelContext& parallel) {
  std::string failure = result.broken();  // first: it names the peers
  for (const Communicator* group : parallel.groups()) {
    if (failure.empty() && group != nullptr) failure = group->failure();
  }
  return failure;
}

/// Returns " (micro-batch 0, forward)" for a pass; the replica's failure begins with the section and the step.
std::string place_of(const TracedWork& work) {
  if (!work.batch) return {};
  return " (micro-batch " + std::to_string(work.batch->index) + ", " + std::string(work.label) + ")";
}

/// Joins rows that arrived in several pieces.
void gather(const OperatorTable& ops, const ArrivedTensor::Copy& copy) {
  if (copy.from_host && copy.to_host) {
    std::memcpy(copy.to, copy.from, copy.bytes);
    return;
  }
  const Shape shape{static_cast<std::int64_t>(copy.bytes)};
  const ConstTensor from(copy.from, DType::u8, shape);
  const Tensor to(copy.to, DType::u8, shape);
  copy.to_host ? ops.download(from, to) : ops.upload(from, to);
}

}  // namespace

ReplicaRank::ReplicaRank(const ReplicaSpec& spec, LayoutRank rank, PortEvents events)
    : spec_(&spec),
      rank_(rank),
      ports_(ports_options(spec, rank), *spec.network, std::move(events)),
      reductions_(spec, rank, ports_.client()),
      trace_(*spec.trace, *spec.graph, {spec.section, spec.replica, rank}) {}

void ReplicaRank::route(const caf::actor& self) const {
  for (const std::uint32_t ring : ports_.ring_numbers()) spec_->network->route_ring(ring, self);
  for (const std::uint32_t ring : reductions_.ring_numbers()) spec_->network->route_ring(ring, self);
  spec_->network->route_client(ports_.client(), self);
}

Result<ReplicaRank::Job> ReplicaRank::pass(const SharedMicroBatch& batch, bool forward, bool backward) {
  const MicroBatchPlan& plan = *batch;
  auto arrived = ports_.open(plan, forward ? Direction::forward : Direction::gradient);
  if (!arrived) return arrived.error();
  sending_ = forward ? ports_.acquire(plan, Direction::forward) : std::vector<SendBuffer>();
  if (backward) std::ranges::move(ports_.acquire(plan, Direction::gradient), std::back_inserter(sending_));
  std::vector<PortTensor> outputs;
  std::vector<PortTensor> gradients;
  for (const SendBuffer& send : sending_) {
    (send.channel.gradient() ? gradients : outputs)
        .push_back({spec_->graph->sender_port(send.channel), send.tensor, false, send.memory_kind()});
  }
  return Job([runner = runner(), device = spec_->ranks[rank_.value()].device, batch, arrived = std::move(*arrived),
              outputs = std::move(outputs), gradients = std::move(gradients), forward, backward]() -> WorkResult {
    const std::shared_ptr<WorkTimer> timer = device->timer();
    timer->mark();
    PassMetrics metrics;
    std::vector<PortTensor> tensors;
    for (const auto& [tensor, copies] : arrived) {
      for (const auto& copy : copies) gather(device->ops(), copy);
      tensors.push_back(tensor);
    }
    if (forward) metrics = runner->forward(*batch, tensors, outputs);
    timer->mark();
    if (backward) runner->backward(*batch, forward ? std::vector<PortTensor>() : tensors, gradients);
    timer->mark();
    // Holds the pass' batch until the pass is complete.
    return WorkResult(std::function<WorkDone()>([timer, metrics = std::move(metrics), forward, backward, batch] {
      WorkDone result;
      result.metrics = as_messages(metrics.get());
      (forward ? result.forward_ms : result.backward_ms) = timer->milliseconds(0, 1);
      if (backward) result.backward_ms += timer->milliseconds(1, 2);
      return result;
    }));
  });
}

TracedWork ReplicaRank::traced_pass(const MicroBatchPlan& plan, bool forward, bool backward) const {
  const bool source = node().role == Role::source;
  const TraceCategory category = source    ? TraceCategory::source
                                 : forward ? TraceCategory::forward
                                           : TraceCategory::backward;
  const std::string_view label = source                ? "read"
                                 : forward && backward ? "forward + backward"
                                 : forward             ? (plan.pass == Pass::train ? "forward" : "evaluate")
                                                       : "backward";
  TracedWork traced = trace_.work(label, category, plan.step);
  trace_.add_pass(traced, plan, forward, backward);
  return traced;
}

Status ReplicaRank::send(const MicroBatchPlan& plan) {
  Status sent = ports_.send(plan, std::move(sending_));
  sending_.clear();
  return sent;
}

void ReplicaRank::submit(TracedWork traced, Job job, const EmulatedWork& emulated, const caf::actor& self,
                         const std::function<void()>& ended) const {
  // Collectives need the same order on all devices of the replica, and priorities would break it.
  const bool first = node().runs_backward() || spec_->ranks.size() > 1;
  Device* const device = spec_->ranks[rank_.value()].device;
  const std::string name = "section '" + node().name + "' replica " + std::to_string(spec_->replica.value());
  auto work = [self, name, traced = std::move(traced), job = std::move(job), runner = runner(), rank = rank_, device,
               groups_end = spec_->groups.end, lasts = emulated.lasts, last_end = emulated_end_, ended] {
    const FaultPlace place(name.c_str());
    // An emulated device waits the emulated time first, then runs the work.
    const bool emulated = lasts.count() > 0;
    const auto begin = emulated ? std::max(Clock::now() - lasts, *last_end) : Clock::now();
    if (emulated) *last_end = Clock::now();
    const std::chrono::duration<double, std::milli> emulated_ms = Clock::now() - begin;
    const std::shared_ptr<WorkTimer> timer = device->timer();
    const auto fail = [&](const std::string& problem, bool service_lost = false) {
      send_from_outside(self, Failure{problem, false, service_lost});
      abort_groups(runner->context().parallel, problem);
    };
    try {
      timer->mark();
      Result<WorkResult> made = job();
      if (!made) return fail(made.error().message);
      timer->mark();
      device->finish([self, traced, begin, rank, runner, device, groups_end, timer, emulated, emulated_ms,
                      result = std::move(*made)](const std::string& failure) {
        traced.finished(begin);
        const std::string broken = failure_of(result, runner->context().parallel);
        if (!broken.empty()) return send_from_outside(self, TransferBroken{broken});
        const bool ended = groups_end != nullptr && groups_end->is_set();  // device failures then follow from it
        if (!failure.empty() && ended) return send_from_outside(self, TransferBroken{failure});
        if (!failure.empty()) return send_from_outside(self, Failure{failure});
        WorkDone done = result.get();
        done.layout_rank = rank;
        done.device_ms = emulated ? emulated_ms.count() : timer->milliseconds(0, 1);
        std::optional<RunHere> here;
        if (!emulated && device->ops().memory().host()) here.emplace();  // handlers may wait for a GPU's thread
        send_from_outside(self, std::move(done));
      });
    } catch (const CommunicatorAborted& aborted) {
      abort_groups(runner->context().parallel, aborted.what());  // RJ-1; the rank that failed first has reported
    } catch (const ExchangeBroken& broken) {
      send_from_outside(self, TransferBroken{broken.what()});
    } catch (const ServiceLost& lost) {
      fail(lost.what(), true);
    } catch (const std::exception& problem) {
      fail(problem.what() + place_of(traced));
    } catch (...) {  // thrown by a plug-in's section
      fail("an exception that is not a std::exception");
    }
    if (ended) ended();
  };
  if (emulated.joint != nullptr) return device->submit_joint(emulated.joint, emulated.lasts, std::move(work));
  device->submit_lasting(emulated.lasts, first ? Priority::critical : Priority::background, std::move(work));
}

void ReplicaRank::report(StepDone& done) {
  ports_.take_sent(done.sent);
  ports_.take_transfers(done.transfers);
  done.wire.add(reductions_.take_wire_error());
}

}  // namespace maestro
