#include "actors/section_replica.hpp"

#include <cmath>
#include <cstring>

namespace maestro {

namespace {

ReplicaPortsOptions ports_options(const ReplicaSpec& spec) {
  return {spec.graph, spec.section, spec.replica, spec.rank, spec.largest, spec.limits, spec.epoch, spec.remote};
}

ReplicaReductionOptions reduction_options(const ReplicaSpec& spec, std::uint32_t client) {
  const GraphNode& node = spec.graph->node(spec.section);
  ReplicaReductionOptions options;
  options.section = spec.section;
  options.replica = spec.replica;
  options.rank = spec.rank;
  options.gradients = spec.runner->section().parameters().gradients();
  options.replicas = node.trained() && !options.gradients.empty() ? node.replicas : 1;
  options.remote = spec.remote;
  options.client = client;
  return options;
}

LaneOptions lane_options(const ReplicaSpec& spec) {
  const GraphNode& node = spec.graph->node(spec.section);
  return {node.mode == Mode::forward_backward, spec.graph->awaits_gradient(spec.section), node.max_in_flight};
}

std::vector<Metric> as_messages(const std::vector<MetricSum>& sums) {
  std::vector<Metric> metrics;
  for (const MetricSum& sum : sums) metrics.push_back({sum.name, sum.sum, sum.weight});
  return metrics;
}

}  // namespace

SectionReplica::SectionReplica(caf::actor_config& config, ReplicaSpec spec)
    : caf::event_based_actor(config),
      spec_(std::move(spec)),
      ports_(ports_options(spec_), *spec_.network,
             [self = caf::actor_cast<caf::actor_addr>(this)] {
               // A weak reference: buffers outlive the actor when the run ends early.
               if (const auto alive = caf::actor_cast<caf::actor>(self)) tell_from_outside(alive, BufferFree{});
             }),
      reduction_(reduction_options(spec_, ports_.client()), *spec_.network),
      lane_(lane_options(spec_)),
      trace_(*spec_.trace, *spec_.graph, spec_.section, spec_.replica) {
  const caf::actor self = caf::actor_cast<caf::actor>(this);
  for (const std::uint32_t ring : ports_.ring_numbers()) spec_.network->route_ring(ring, self);
  for (const std::uint32_t ring : reduction_.ring_numbers()) spec_.network->route_ring(ring, self);
  spec_.network->route_client(ports_.client(), self);
}

ReplicaAddress SectionReplica::address() const {
  ReplicaAddress address;
  address.section = spec_.section;
  address.replica = spec_.replica;
  address.rank = spec_.rank;
  address.actor = caf::actor_cast<caf::actor>(const_cast<SectionReplica*>(this));
  address.rings = ports_.rings();
  address.reduction = reduction_.address();
  return address;
}

void SectionReplica::on_exit() {
  coordinator_ = nullptr;
}

caf::behavior SectionReplica::make_behavior() {
  return {
      [this](AddressRequest) { return address(); },
      [this](const Directory& directory) { connect(directory); },
      [this](const MicroBatchToken& token) {
        check(ports_.expect(token.plan, arrived()));
        lane_.enqueue(token.plan);
        pump();
      },
      [this](const MarkToken& token) {
        lane_.enqueue(token.mark);
        pump();
      },
      [this](const PieceHandOver& piece) {
        check(ports_.handed_over(piece, arrived()));
        pump();
      },
      [this](const RingEvent& event) {
        if (!reduction_.landed(event.immediate)) check(ports_.landed(event.immediate, arrived()));
        pump();
      },
      [this](const Credit& credit) {
        check(ports_.credit(credit));
        pump();
      },
      [this](BufferFree) { pump(); },
      [this](const WriteFinished& finished) {
        if (!reduction_.write_finished(finished.cookie)) ports_.write_finished(finished.cookie);
        pump();
      },
      [this](const WriteBroken& broken) { tell(this, spec_.bridge, TransferBroken{where() + ": " + broken.message}); },
      [this](const ShardHandOver& shard) {
        reduction_.handed_over(shard);
        pump();
      },
      [this](const ShardRead& read) {
        reduction_.shard_read(read.step);
        pump();
      },
      [this](const PhaseOpen& open) {
        lane_.open_phase(open.step, open.group, open.phase);
        pump();
      },
      [this](const NormTotal& total) {
        norm_total_ = total;
        clip();
      },
      [this](WorkDone& result) { done(std::move(result)); },
      [this](const Failure& failure) { fail(failure.message); },
      [this](StatusRequest) {
        return WaitingFor{spec_.section, spec_.replica, waits_for()};
      },
  };
}

void SectionReplica::connect(const Directory& directory) {
  coordinator_ = directory.coordinator;
  Outbox outbox;
  outbox.hand_over = [this](const caf::actor& to, PieceHandOver piece) { tell(this, to, std::move(piece)); };
  if (trace_.on()) outbox.transferred = [this](const Transfer& transfer) { trace_.transferred(transfer); };
  outbox.credit = [this](const caf::actor& to, Credit credit) { tell(this, to, std::move(credit)); };
  ports_.connect(directory, std::move(outbox));
  reduction_.connect(directory, [this](const caf::actor& to, ShardHandOver shard) { tell(this, to, shard); });
}

ReplicaPorts::Arrived SectionReplica::arrived() {
  return [this](EdgeId edge, bool gradient, std::uint64_t sequence) { lane_.arrived(edge, gradient, sequence); };
}

void SectionReplica::pump() {
  if (failed_) return;
  if (stage_ != Stage::idle) {
    if (work_.kind == ReplicaLane::Kind::mark) continue_step();
    return;
  }
  const std::optional<Work> next = lane_.next(ports_.buffers_free());
  if (next) {
    note_wait();
    start(*next);
  } else if (!idle_since_ && !lane_.idle()) {
    idle_since_ = std::chrono::steady_clock::now();
    idle_reason_ = waits_for();
  }
}

void SectionReplica::note_wait() {
  if (!idle_since_) return;
  trace_.waited(*idle_since_, idle_reason_);
  idle_since_.reset();
}

void SectionReplica::start(const Work& work) {
  work_ = work;
  switch (work.kind) {
    case ReplicaLane::Kind::forward:
      return start_pass(work, true, false);
    case ReplicaLane::Kind::forward_backward:
      return start_pass(work, true, true);
    case ReplicaLane::Kind::backward:
      return start_pass(work, false, true);
    case ReplicaLane::Kind::mark:
      return start_mark(work.mark);
  }
}

void SectionReplica::start_pass(const Work& work, bool forward, bool backward) {
  stage_ = Stage::pass;
  passes_.began(Clock::now());
  const MicroBatchPlan& plan = *work.batch;
  step_ = plan.step;
  if (spec_.current_step != nullptr) spec_.current_step->store(step_.value(), std::memory_order_relaxed);
  auto given = ports_.open(plan, !forward);
  if (!given) return fail(given.error().message);
  sending_ = forward ? ports_.acquire(plan, false) : std::vector<SendBuffer>();
  if (backward) {
    for (SendBuffer& buffer : ports_.acquire(plan, true)) sending_.push_back(std::move(buffer));
  }
  std::vector<PortTensor> outputs;
  std::vector<PortTensor> gradients;
  for (const SendBuffer& send : sending_) {
    const GraphEdge& edge = spec_.graph->edge(send.edge);
    (send.gradient ? gradients : outputs)
        .push_back({send.gradient ? edge.to_port : edge.from_port, send.tensor, false});
  }
  const bool source = node().mode == Mode::source;
  const TraceCategory category = source    ? TraceCategory::source
                                 : forward ? TraceCategory::forward
                                           : TraceCategory::backward;
  const std::string_view label = source                ? "read"
                                 : forward && backward ? "forward + backward"
                                 : forward             ? (plan.pass == Pass::train ? "forward" : "evaluate")
                                                       : "backward";
  TracedWork traced = trace_.work(label, category, step_);
  trace_.add_arrows(traced, plan, forward, backward);
  submit(
      std::move(traced),
      [runner = spec_.runner, plan, given = std::move(*given), outputs, gradients, forward, backward] {
        WorkDone result;
        const Clock::time_point begin = Clock::now();
        std::vector<PortTensor> tensors;
        for (const auto& [tensor, copies] : given) {
          for (const auto& copy : copies) std::memcpy(copy.to, copy.from, copy.bytes);
          tensors.push_back(tensor);
        }
        if (forward) result.metrics = as_messages(runner->forward(plan, tensors, outputs));
        const Clock::time_point middle = Clock::now();
        if (backward) runner->backward(plan, forward ? std::vector<PortTensor>() : tensors, gradients);
        const auto ms = [](Clock::duration time) { return std::chrono::duration<double, std::milli>(time).count(); };
        (forward ? result.forward_ms : result.backward_ms) = ms(middle - begin);
        if (backward) result.backward_ms += ms(Clock::now() - middle);
        return result;
      },
      emulated_time(plan, forward, backward));
}

void SectionReplica::start_mark(const LaneMark& mark) {
  step_ = mark.step;
  if (mark.kind == LaneMark::Kind::snapshot) return start_snapshot(mark);
  if (!trained() || !mark.active || mark.pass == Pass::evaluate) {
    stage_ = Stage::snapshot;
    return done(WorkDone{});
  }
  stage_ = Stage::norm;
  have_norm_ = false;
  if (reduction_.needed()) reduction_.begin(step_);
  continue_step();
}

void SectionReplica::continue_step() {
  if (stage_ != Stage::norm || have_norm_) return;
  if (reduction_.active()) {
    if (reduction_.may_sum()) {
      stage_ = Stage::summing;
      return submit("reduce", TraceCategory::step, [this] {
        reduction_.sum(spec_.device->ops());
        return WorkDone{};
      });
    }
    if (reduction_.may_copy()) {
      stage_ = Stage::copying;
      return submit("gather", TraceCategory::step, [this] {
        reduction_.copy_sums();
        return WorkDone{};
      });
    }
    if (!reduction_.complete()) return;
    reduction_.finish();
  }
  have_norm_ = true;
  submit("norm", TraceCategory::step, [runner = spec_.runner] {
    WorkDone result;
    result.gradient_norm = runner->gradient_sum_of_squares();
    return result;
  });
}

void SectionReplica::clip() {
  // Only replica 0 reports its section, so the answer may come while this replica still works out its own norm.
  if (stage_ != Stage::clipping || !norm_total_ || norm_total_->step != step_) return;
  start_step(norm_total_->sum_of_squares);
}

void SectionReplica::start_step(double sum_of_squares) {
  stage_ = Stage::stepping;
  const double norm = std::sqrt(sum_of_squares);
  const double own = std::sqrt(sum_of_squares_);
  submit("step", TraceCategory::step, [runner = spec_.runner, step = step_, norm, own] {
    const Result<OptimizerStep> stepped = runner->step(step, norm);
    if (!stepped) throw std::runtime_error(stepped.error().message);
    WorkDone result;
    result.gradient_norm = own;
    result.lr = stepped->lr;
    return result;
  });
}

void SectionReplica::start_snapshot(const LaneMark& mark) {
  stage_ = Stage::snapshot;
  if (!trained() || spec_.replica != ReplicaIndex(0)) return done(WorkDone{});
  const caf::actor self = caf::actor_cast<caf::actor>(this);
  const caf::actor coordinator = coordinator_;
  submit("snapshot", TraceCategory::step,
         [runner = spec_.runner, writer = spec_.snapshots, mark, self, coordinator, section = spec_.section,
          label = node().name] {
           Result<SectionSnapshot> taken = take_snapshot(runner->section(), label);
           if (!taken) throw std::runtime_error(taken.error().message);
           writer->write(mark.staging, std::move(*taken), [=](Result<std::vector<FileRecord>> written) {
             if (!written) return tell_from_outside(self, Failure{"checkpoint: " + written.error().message});
             SnapshotWritten message{section, mark.step, {}};
             for (const FileRecord& file : *written) message.files.push_back({file.path, file.bytes, file.checksum});
             tell_from_outside(coordinator, std::move(message));
           });
           return WorkDone{};
         });
}

void SectionReplica::submit(std::string_view label, TraceCategory category, Job job) {
  submit(trace_.work(label, category, step_), std::move(job));
}

void SectionReplica::submit(TracedWork traced, Job job, std::chrono::nanoseconds lasts) {
  const caf::actor self = caf::actor_cast<caf::actor>(this);
  const Priority priority = node().mode == Mode::forward_backward ? Priority::critical : Priority::background;
  spec_.device->submit_lasting(lasts, priority, [self, traced = std::move(traced), job = std::move(job)] {
    const auto begin = std::chrono::steady_clock::now();
    try {
      WorkDone result = job();
      traced.finished(begin);
      tell_from_outside(self, std::move(result));
    } catch (const std::exception& problem) {
      tell_from_outside(self, Failure{problem.what()});
    }
  });
}

void SectionReplica::done(WorkDone result) {
  switch (stage_) {
    case Stage::idle:
    case Stage::clipping:
      return fail("work finished that was never started");
    case Stage::pass:
      passes_.finished(std::move(result.metrics), time_of(work_, {result.forward_ms, result.backward_ms}));
      return pass_done();
    case Stage::summing:
      reduction_.summed();
      stage_ = Stage::norm;
      return continue_step();
    case Stage::copying:
      reduction_.copied([this](const caf::actor& to, ShardRead read) { tell(this, to, read); });
      stage_ = Stage::norm;
      return continue_step();
    case Stage::norm:
      sum_of_squares_ = result.gradient_norm;
      if (!spec_.global_clip) return start_step(sum_of_squares_);
      stage_ = Stage::clipping;
      if (spec_.replica == ReplicaIndex(0)) {
        tell(this, coordinator_, NormReport{spec_.section, step_, sum_of_squares_});
      }
      return clip();
    case Stage::stepping: {
      StepDone message{spec_.section, spec_.replica, step_, Pass::train, result.gradient_norm, result.lr};
      tell(this, coordinator_, message);
      return finish_mark();
    }
    case Stage::snapshot:
      if (work_.mark.kind == LaneMark::Kind::end_step) {
        tell(this, coordinator_, StepDone{spec_.section, spec_.replica, step_, work_.mark.pass, 0, 0});
      }
      return finish_mark();
  }
}

std::chrono::nanoseconds SectionReplica::emulated_time(const MicroBatchPlan& plan, bool forward, bool backward) const {
  if (!spec_.emulated_ms) return {};
  const PassCost cost = spec_.emulated_ms(plan.samples);
  const double ms = (forward ? cost.forward : 0) + (backward ? cost.backward : 0);
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double, std::milli>(ms));
}

PassCost SectionReplica::time_of(const Work& work, PassCost measured) const {
  if (!spec_.emulated_ms) return measured;
  PassCost cost = spec_.emulated_ms(work.batch->samples);
  if (work.kind == ReplicaLane::Kind::backward) cost.forward = 0;
  if (work.kind == ReplicaLane::Kind::forward) cost.backward = 0;
  return cost;
}

void SectionReplica::pass_done() {
  const MicroBatchPlan plan = *work_.batch;
  check(ports_.send(plan, std::move(sending_)));
  sending_.clear();
  const std::optional<MicroBatchPlan> retired = lane_.finished();
  phase_pass_done(plan, work_.kind);
  if (!retired) {
    passes_.keep(plan.index);
  } else {
    check(ports_.release(*retired));
    tell(this, coordinator_, passes_.retire(plan, Clock::now()));
  }
  stage_ = Stage::idle;
  pump();
}

void SectionReplica::phase_pass_done(const MicroBatchPlan& plan, ReplicaLane::Kind kind) {
  if (!plan.phased) return;
  const bool backward = kind == ReplicaLane::Kind::backward;
  tell(this, coordinator_, PhasePassDone{plan.step, plan.group, backward ? plan.backward_phase : plan.forward_phase});
}

void SectionReplica::finish_mark() {
  (void)lane_.finished();
  stage_ = Stage::idle;
  pump();
}

std::string SectionReplica::where() const {
  return "section '" + node().name + "' replica " + std::to_string(spec_.replica.value()) + ", step " +
         std::to_string(step_.value());
}

void SectionReplica::check(const Status& status) {
  if (!status) fail(status.error().message);
}

void SectionReplica::fail(const std::string& message) {
  if (failed_) return;
  failed_ = true;
  tell(this, spec_.supervisor, Failure{where() + ": " + message});
}

std::string SectionReplica::waits_for() const {
  if (stage_ == Stage::clipping) return "the gradient norms of the other sections";
  if (stage_ != Stage::idle) return reduction_.active() ? "gradients of the other replicas" : "";
  if (const ArrivalPlan* missing = lane_.missing_arrival()) {
    const GraphEdge& edge = spec_.graph->edge(missing->edge);
    const MicroBatchPlan& batch = *lane_.waiting_batch();
    const std::string& peer = spec_.graph->node(missing->gradient ? edge.to : edge.from).name;
    return std::string(missing->gradient ? "the gradient of " : "") +
           (missing->gradient ? edge.from_port : edge.to_port) + " from section '" + peer + "', sample " +
           std::to_string(batch.samples.front().id.value()) + ", step " + std::to_string(batch.step.value());
  }
  if (lane_.waiting_batch() != nullptr) return ports_.waiting_send();
  return {};
}

}  // namespace maestro
