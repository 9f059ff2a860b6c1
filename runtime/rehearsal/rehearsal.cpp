// SPDX-License-Identifier: Apache-2.0
#include "runtime/rehearsal/rehearsal.hpp"

#include <algorithm>
#include <optional>
#include <tuple>
#include <utility>

#include "runtime/rehearsal/device_queues.hpp"
#include "runtime/rehearsal/rehearsed_lane.hpp"
#include "runtime/schedule/device_turns.hpp"
#include "runtime/schedule/phase_counts.hpp"

namespace maestro {

namespace {

using Kind = LaneInterval::Kind;

using Lane = RehearsedLane;
using Unit = OpenUnit;

Kind kind_of(ReplicaLane::Kind pass) {
  if (pass == ReplicaLane::Kind::forward_backward) return Kind::forward_backward;
  return pass == ReplicaLane::Kind::backward ? Kind::backward : Kind::forward;
}

/// A single rehearsal.
class Play {
 public:
  Play(const RehearsalOptions& options, std::size_t units, const UnitMaker& unit_of);
  Result<Rehearsed> result();

 private:
  using Meeting = std::tuple<StepBoundary::Kind, StepId, StepAction, SectionId, ReplicaIndex>;
  [[nodiscard]] const SectionGraph& graph() const { return *options_.graph; }
  [[nodiscard]] RehearsedPortsOptions ports_options();
  void add_lanes();
  [[nodiscard]] double hop() const { return options_.times.hop_ms; }
  /// Returns the time of a message between coordinator and lane.
  [[nodiscard]] double to_coordinator(const Lane& lane) const {
    return hop() + (options_.times.coordinator ? options_.times.coordinator(lane.key) : 0);
  }
  [[nodiscard]] Lane& lane_of(const LaneKey& key) {
    return lanes_[first_lane_[key.section.value()] + key.replica.value()];
  }
  [[nodiscard]] bool reached();  // RehearsalOptions::last
  void announce();
  void plan(std::size_t unit);
  void add_rollouts();
  void published(StepId step);
  void add_unit(std::size_t at);
  void announced(std::size_t unit);
  void lane_ended(std::size_t unit);
  void end(std::size_t unit);
  void wake(Lane& lane, double ms);
  void pump(Lane& lane);
  void start(Lane& lane, ReplicaLane::Work work);
  void pass_ended(Lane& lane, double start_ms);
  void next_pass(Lane& lane);
  void open_phase(std::size_t unit, const PhaseCounts::Opening& opening);
  void act(Lane& lane);
  void action_done(Lane& lane);
  void meet(Lane& lane, StepAction action, double ms);
  [[nodiscard]] std::pair<Meeting, std::size_t> meeting_of(const Lane& lane, StepAction action) const;
  void boundary_passed(Lane& lane);
  [[nodiscard]] double time_of(const Lane& lane, StepAction action) const;
  [[nodiscard]] const std::string& reason(const Lane& lane) const;
  void add(Lane& lane, Kind kind, double end_ms, const std::string* waits_for = nullptr);
  [[nodiscard]] std::size_t unit_of(StepId step, Pass pass) const { return steps_.at({step, pass}); }
  [[nodiscard]] Error stuck() const;

  const RehearsalOptions& options_;
  const UnitMaker& make_unit_;
  const std::shared_ptr<const WaitReasons> reasons_ = std::make_shared<WaitReasons>(graph());
  VirtualClock clock_;  // outlives the members below, which add events
  DeviceQueues devices_;
  DeviceTurns turns_;
  std::vector<Lane> lanes_;              // lanes by section and replica
  std::vector<std::size_t> first_lane_;  // first lane by section
  RehearsedPorts ports_;
  std::vector<Unit> units_;
  std::map<std::pair<StepId, Pass>, std::size_t> steps_;  // units with passes
  std::map<StepId, std::size_t> checkpoints_;
  std::map<std::size_t, PhaseCounts> phases_;  // phases by unit
  std::map<Meeting, std::vector<Lane*>> meetings_;
  std::optional<RehearsedRollouts> rollouts_;
  std::map<StepId, std::int64_t> unpublished_;  // lanes that have not published a step's values
  std::size_t next_unit_ = 0;
  std::size_t lanes_reached_ = 0;
  std::int64_t open_ = 0;
  bool planning_ = false;
  Rehearsed rehearsed_;
};

Play::Play(const RehearsalOptions& options, std::size_t units, const UnitMaker& unit_of)
    : options_(options),
      make_unit_(unit_of),
      devices_(clock_, options.cores, options.demands),
      ports_(clock_, ports_options()),
      units_(units) {
  add_lanes();
  add_rollouts();
  rehearsed_.unit_ends_ms.resize(units);
}

void Play::add_unit(std::size_t at) {
  units_[at].begin(make_unit_(at), graph().nodes().size());
  const StepPlan& plan = units_[at].given.plan;
  if (units_[at].given.checkpoint) {
    checkpoints_[plan.step] = at;
  } else {
    steps_[{plan.step, plan.pass}] = at;
  }
}

RehearsedPortsOptions Play::ports_options() {
  RehearsedPortsOptions ports{options_.graph, options_.limits, options_.times.transfer, {}, {}};
  ports.arrived = [this](const LaneKey& key, Channel channel, std::uint64_t sequence, LayoutRank rank) {
    Lane& lane = lane_of(key);
    lane.queue.arrived(channel, sequence, rank);
    wake(lane, hop());
  };
  ports.freed = [this](const LaneKey& key) { wake(lane_of(key), 0); };
  return ports;
}

void Play::add_lanes() {
  int fresh = 0;
  for (const auto& section : options_.devices) {
    for (const auto& lane : section) {
      for (const int device : lane) fresh = std::max(fresh, device + 1);
    }
  }
  for (std::uint32_t section = 0; section < graph().nodes().size(); ++section) {
    const GraphNode& node = graph().nodes()[section];
    const bool given = section < options_.devices.size() && !options_.devices[section].empty();
    first_lane_.push_back(lanes_.size());
    for (std::uint32_t replica = 0; replica < node.replicas; ++replica) {
      const LaneKey key{SectionId(section), ReplicaIndex(replica)};
      const LaneOptions lane{node.runs_backward(), graph().splits_passes(key.section), node.max_in_flight};
      lanes_.push_back(
          {key, &node, given ? options_.devices[section][replica] : std::vector{fresh++}, ReplicaLane(lane)});
      lanes_.back().waits_for = &reasons_->none;
    }
  }
}

Result<Rehearsed> Play::result() {
  announce();
  while (!reached() && clock_.next()) {
  }
  if (!reached() && !std::ranges::all_of(units_, &Unit::ended)) return stuck();
  for (Lane& lane : lanes_) {
    if (!lane.intervals.empty()) rehearsed_.lanes.emplace(lane.key, std::move(lane.intervals));
  }
  rehearsed_.reasons = reasons_;
  if (rollouts_) rehearsed_.rollouts_ms = rollouts_->rollouts_ms();
  return std::move(rehearsed_);
}

bool Play::reached() {
  if (!options_.last || !units_[*options_.last].ended) return false;
  const double end_ms = rehearsed_.unit_ends_ms[*options_.last];
  const auto ended_by = [](const Lane& lane, double ms) { return lane.since_ms >= ms || lane.node->generates(); };
  while (lanes_reached_ < lanes_.size() && ended_by(lanes_[lanes_reached_], end_ms)) ++lanes_reached_;
  return lanes_reached_ == lanes_.size();
}

void Play::announce() {
  while (!planning_ && next_unit_ < units_.size() && open_ <= options_.ahead) {
    const std::size_t unit = next_unit_++;
    ++open_;
    planning_ = true;
    add_unit(unit);
    const std::optional<RehearsedRollout>& rollout = units_[unit].given.rollout;
    if (!rollout) {
      plan(unit);
      continue;
    }
    rollouts_->begin(*rollout, [this, unit] { plan(unit); });
  }
}

void Play::plan(std::size_t unit) {
  clock_.after(units_[unit].given.planning_ms, [this, unit] {
    planning_ = false;
    announced(unit);
    announce();
  });
}

void Play::add_rollouts() {
  if (!options_.generator) return;
  const RehearsedGenerator& generator = *options_.generator;
  rollouts_.emplace(clock_, generator.shape, generator.times, hop(),
                    [this, section = generator.section](std::size_t replica, double ms, VirtualClock::Event done) {
                      Lane& lane = lane_of({section, ReplicaIndex(static_cast<std::uint32_t>(replica))});
                      add(lane, Kind::wait, clock_.now_ms(), &reasons_->rollout);
                      devices_.submit(lane.devices, Priority::background, ms,
                                      [this, &lane, done = std::move(done)](double start_ms) {
                                        add(lane, Kind::wait, start_ms, &reasons_->device);
                                        add(lane, Kind::forward, clock_.now_ms());
                                        done();
                                      });
                    });
}

/// A lane has published the values after a step: the version before the next.
void Play::published(StepId step) {
  const auto publishes = [this](const Lane& lane) { return graph().publishes(lane.key.section); };
  const auto [left, first] = unpublished_.try_emplace(step, std::ranges::count_if(lanes_, publishes));
  if (--left->second > 0) return;
  unpublished_.erase(left);
  clock_.after(hop(), [this, step] { rollouts_->published(StepId(step.value() + 1)); });
}

void Play::announced(std::size_t at) {
  Unit& unit = units_[at];
  StepPlan& plan = unit.given.plan;
  phases_.try_emplace(at, graph(), plan);
  std::vector<std::vector<MicroBatchPlan*>> orders(lanes_.size());
  for (MicroBatchPlan& batch : plan.micro_batches) {
    if (options_.streams) batch.forward_turns = batch.backward_turns = {};
    orders[first_lane_[batch.section.value()] + batch.replica.value()].push_back(&batch);
  }
  for (std::size_t number = 0; number < lanes_.size(); ++number) {
    Lane& lane = lanes_[number];
    if (lane.node->generates() || (unit.given.checkpoint && !lane.node->trained())) continue;
    StepBoundary mark{StepBoundary::Kind::end_step, plan.step, plan.pass, {}, unit.active[lane.key.section.value()]};
    if (unit.given.checkpoint) mark.kind = StepBoundary::Kind::snapshot;
    ++unit.lanes_left;
    clock_.after(to_coordinator(lane), [this, &lane, mark, batches = std::move(orders[number])] {
      for (MicroBatchPlan* batch : batches) {
        ports_.expect(*batch);
        lane.queue.enqueue(std::move(*batch));
      }
      lane.queue.enqueue(mark);
      pump(lane);
    });
  }
  for (const PhaseCounts::Opening& opening : phases_.at(at).first()) open_phase(at, opening);
  if (unit.lanes_left == 0) end(at);  // a checkpoint of a job without trained sections
}

void Play::lane_ended(std::size_t at) {
  if (--units_[at].lanes_left == 0) end(at);
}

void Play::end(std::size_t at) {
  units_[at].ended = true;
  units_[at].given.plan.micro_batches = {};
  phases_.erase(at);
  rehearsed_.unit_ends_ms[at] = clock_.now_ms();
  --open_;
  announce();
}

/// Lets an idle lane look for work; a working lane looks when its work ends.
void Play::wake(Lane& lane, double ms) {
  if (lane.work) return;
  const double at_ms = clock_.now_ms() + ms;
  if (lane.woken == std::pair(at_ms, clock_.added())) return;  // both events would be consecutive
  clock_.after(ms, [this, &lane] { pump(lane); });
  lane.woken = {at_ms, clock_.added()};
}

void Play::pump(Lane& lane) {
  lane.woken = {};
  if (lane.work) return;
  std::optional<ReplicaLane::Work> next = lane.queue.next(ports_.free(lane.key));
  if (next) return start(lane, std::move(*next));
  const std::string& now = reason(lane);
  if (&now == lane.waits_for) return;
  add(lane, Kind::wait, clock_.now_ms(), lane.waits_for);
  lane.waits_for = &now;
}

void Play::start(Lane& lane, ReplicaLane::Work work) {
  add(lane, Kind::wait, clock_.now_ms(), lane.waits_for);
  lane.work = std::move(work);
  if (lane.work->kind == ReplicaLane::Kind::mark) {
    StepEndOptions options;
    options.trained = lane.node->trained();
    if (options_.step_ends) options = options_.step_ends(lane.key);
    lane.step_end = StepEnd(options, lane.work->mark);
    return act(lane);
  }
  const MicroBatchPlan& batch = *lane.work->batch;
  const bool forward = lane.work->kind != ReplicaLane::Kind::backward;
  const bool backward = lane.work->kind != ReplicaLane::Kind::forward;
  ports_.acquire(batch, forward, backward);
  const PassCost cost = options_.times.passes ? options_.times.passes(batch) : PassCost();
  const double ms = (forward ? cost.forward : 0) + (backward ? cost.backward : 0);
  const auto run = [this, &lane, ms] {
    devices_.submit(lane.devices, lane.priority(options_.streams), ms,
                    [this, &lane](double start_ms) { pass_ended(lane, start_ms); });
  };
  const std::vector<DeviceTurn>& turns = lane.work->turns();
  turns.empty() ? run() : turns_.offer({batch.step, batch.pass}, turns, run);
}

void Play::pass_ended(Lane& lane, double start_ms) {
  add(lane, Kind::wait, start_ms, &reasons_->device);
  add(lane, kind_of(lane.work->kind), clock_.now_ms());
  lane.waits_for = &reasons_->runtime;
  for (const DeviceTurn& turn : lane.work->turns()) turns_.ended(turn.device);
  clock_.after(hop(), [this, &lane] { next_pass(lane); });
}

void Play::next_pass(Lane& lane) {
  const SharedMicroBatch batch = lane.work->batch;
  const bool backward = lane.work->kind == ReplicaLane::Kind::backward;
  ports_.send(*batch);
  lane.work.reset();
  const bool retired = lane.queue.finished() != nullptr;
  const std::size_t unit = unit_of(batch->step, batch->pass);
  if (batch->phased) {
    const auto opening = phases_.at(unit).done(batch->group, backward ? batch->backward_phase : batch->forward_phase);
    if (opening) open_phase(unit, *opening);
  }
  if (retired) ports_.release(*batch);
  pump(lane);
}

void Play::open_phase(std::size_t unit, const PhaseCounts::Opening& opening) {
  const StepId step = units_[unit].given.plan.step;
  for (const LaneKey& key : opening.lanes) {
    clock_.after(2 * hop(), [this, step, opening, &lane = lane_of(key)] {
      lane.queue.open_phase(step, opening.group, opening.phase);
      pump(lane);
    });
  }
}

double Play::time_of(const Lane& lane, StepAction action) const {
  return options_.times.actions ? options_.times.actions(lane.key, action) : 0;
}

/// Begins the current action at the lane's boundary.
void Play::act(Lane& lane) {
  const std::optional<StepAction> action = lane.step_end.current();
  if (!action || *action == StepAction::report) return boundary_passed(lane);
  const double ms = time_of(lane, *action);
  if (is_exchange(*action)) return meet(lane, *action, ms);
  if (*action == StepAction::await_total) return meet(lane, *action, ms + 2 * hop());
  devices_.submit(lane.devices, lane.priority(options_.streams), ms,
                  [this, &lane](double) { clock_.after(hop(), [this, &lane] { action_done(lane); }); });
}

void Play::action_done(Lane& lane) {
  if (lane.step_end.at(StepAction::publish)) published(lane.step());
  lane.step_end.advance();
  act(lane);
}

/// Returns the meeting of an action, and the number of lanes that take part.
std::pair<Play::Meeting, std::size_t> Play::meeting_of(const Lane& lane, StepAction action) const {
  const StepBoundary& mark = lane.work->mark;
  const std::vector<SectionId> stages = graph().stages_of(lane.node->section_name());
  const auto meeting = [&](SectionId group, ReplicaIndex replica) {
    return Meeting{mark.kind, mark.step, action, group, replica};
  };
  const std::size_t replicas = static_cast<std::size_t>(lane.node->replicas);
  if (action == StepAction::exchange_tie) return {meeting(stages.front(), lane.key.replica), 2};
  if (action != StepAction::await_total) return {meeting(lane.key.section, {}), replicas};
  if (!options_.joined_norms) return {meeting(stages.front(), {}), replicas * stages.size()};
  const Unit& unit = units_[unit_of(mark.step, mark.pass)];
  std::size_t expected = 0;
  for (std::size_t section = 0; section < unit.active.size(); ++section) {
    const GraphNode& node = graph().nodes()[section];
    if (node.trained() && unit.active[section]) expected += static_cast<std::size_t>(node.replicas);
  }
  return {meeting({}, {}), expected};
}

/// Continues with all lanes that take part, `ms` after the last lane has arrived.
void Play::meet(Lane& lane, StepAction action, double ms) {
  const auto [meeting, expected] = meeting_of(lane, action);
  std::vector<Lane*>& here = meetings_[meeting];
  add(lane, Kind::boundary, clock_.now_ms());
  here.push_back(&lane);
  if (here.size() < expected) return;
  std::vector<int> devices;  // devices that an exchange keeps busy
  for (Lane* other : here) {
    add(*other, Kind::wait, clock_.now_ms(), &reasons_->replicas);
    if (is_exchange(action) && !options_.streams)
      devices.insert(devices.end(), other->devices.begin(), other->devices.end());
  }
  devices_.run(devices, Priority::critical, ms, [this, all = std::move(here)] {
    for (Lane* other : all) action_done(*other);
  });
  meetings_.erase(meeting);
}

void Play::boundary_passed(Lane& lane) {
  add(lane, Kind::boundary, clock_.now_ms());
  const StepBoundary mark = lane.work->mark;
  lane.work.reset();
  lane.waits_for = &reasons_->none;
  lane.queue.finished();
  const bool checkpoint = mark.kind == StepBoundary::Kind::snapshot;
  const std::size_t unit = checkpoint ? checkpoints_.at(mark.step) : unit_of(mark.step, mark.pass);
  clock_.after(to_coordinator(lane), [this, unit] { lane_ended(unit); });
  pump(lane);
}

const std::string& Play::reason(const Lane& lane) const {
  const ArrivalPlan* const missing = lane.queue.missing_arrival();
  if (missing != nullptr) {
    return reasons_->tensor_of(graph().sender(missing->channel), missing->channel.direction);
  }
  return lane.queue.waiting_batch() != nullptr ? reasons_->buffer : reasons_->work;
}

/// Adds an interval that begins at the end of the last interval.
void Play::add(Lane& lane, Kind kind, double end_ms, const std::string* waits_for) {
  if (end_ms <= lane.since_ms) return;
  LaneInterval interval{lane.since_ms, end_ms, {}, waits_for, 0, kind, Pass::train};
  if (lane.work && kind != Kind::wait) {
    interval.step = lane.step();
    interval.pass = lane.work->batch ? lane.work->batch->pass : lane.work->mark.pass;
    if (lane.work->batch) interval.batch = lane.work->batch->index;
  }
  lane.since_ms = end_ms;
  lane.intervals.push_back(interval);
}

Error Play::stuck() const {
  std::string text = "the rehearsal cannot go on:";
  for (const Lane& lane : lanes_) {
    text += " " + lane.node->name + "/" + std::to_string(lane.key.replica.value()) + " waits for ";
    text += lane.work ? std::string("the end of step ") + std::to_string(lane.step().value()) : reason(lane);
    text += ";";
  }
  text.pop_back();
  return {ErrorCode::internal, text};
}

}  // namespace

Result<Rehearsed> Rehearsal::play(std::size_t units, const UnitMaker& unit_of) const {
  return Play(options_, units, unit_of).result();
}

Result<Rehearsed> Rehearsal::play(std::vector<RehearsalUnit> units) const {
  return play(units.size(), [&units](std::size_t at) { return std::move(units[at]); });
}

}  // namespace maestro
