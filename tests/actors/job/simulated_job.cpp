// SPDX-License-Identifier: Apache-2.0
#include "tests/actors/job/simulated_job.hpp"

#include <algorithm>
#include <set>

#include "actors/messages/wait_text.hpp"
#include "actors/run/coordinator/planner.hpp"
#include "runtime/schedule/flow_bounds.hpp"

namespace maestro::testing {

namespace {

/// Returns a row's value, the same in every section: a small integer, so that sums are exact.
float value_of(SampleId sample, std::int64_t position) {
  return static_cast<float>((sample.value() * 7 + static_cast<std::uint64_t>(position)) % 13 + 1);
}

struct RowSectionOptions {
  GraphNode node;
  std::int64_t gradient_edges = 0;  ///< number of consumers that send a gradient back
  bool trained = false;
  bool backward = false;  ///< true if the section is trained or gradients pass through it
  std::int64_t rank = 0;
  std::vector<std::string>* problems = nullptr;
  std::int64_t* rows = nullptr;
};

/// Checks that every row of every input is the planned row, and passes on the same rows; does the same with gradients.
/// A rank checks and passes on only its rows. Its parameters see all rows, as if ranks had added up their parts.
class RowSection final : public Section {
 public:
  explicit RowSection(RowSectionOptions options) : options_(std::move(options)) {
    if (options_.trained) {
      parameter_ = &parameters_.add({"w", Shape{SimulatedJob::parameters}, false,
                                     [](std::span<float> values) { std::fill(values.begin(), values.end(), 0.0f); }});
    }
    parameters_.allocate(options_.trained);
  }
  [[nodiscard]] Ports ports() const override { return options_.node.ports; }
  Parameters& parameters() override { return parameters_; }
  [[nodiscard]] Cost cost(const SampleShape&) const override { return {}; }
  std::vector<StateEntry> state() override {
    if (parameter_ == nullptr) return {};
    return {{"w", parameter_}};
  }
  [[nodiscard]] std::string config_json() const override { return "{}"; }

  void forward(Tape& tape, const Inputs& inputs, Outputs& outputs) override {
    const Axis axis = options_.node.axis();
    const std::vector<float> values = values_of(inputs, axis);
    std::vector<std::pair<Var, std::vector<float>>> differentiable;
    for (const Port& port : options_.node.ports.inputs) {
      const std::vector<float> all = values_of(inputs, port.axis);
      const std::vector<float> expected = held(all, port);
      if (!inputs.has(port.name)) {
        if (!all.empty()) options_.problems->push_back(options_.node.name + ": no rows at " + port.name);
        continue;
      }
      const Var& input = inputs[port.name];
      check(input.value(), expected, 1, port.name);
      if (input.needs_gradient()) differentiable.emplace_back(input, expected);
    }
    const Port& port = options_.node.ports.outputs.front();
    const std::vector<float> own = held(values, port);
    Var out = made(tape, values, port, options_.backward && tape.recording());
    if (options_.rank == 0) {
      *options_.rows += static_cast<std::int64_t>(values.size());
      double sum = 0;
      for (const float value : values) sum += value;
      outputs.metric("loss", sum, static_cast<double>(values.size()));
    }
    if (options_.gradient_edges > 0) {
      tape.record(out, [this, &tape, out, differentiable, values, own] {
        check(out.gradient(), own, static_cast<float>(options_.gradient_edges), "gradient of out");
        pass_back(tape, differentiable, values);
      });
    } else if (options_.backward) {
      tape.record_root([this, &tape, differentiable, values] { pass_back(tape, differentiable, values); });
    }
    outputs.set("out", std::move(out));
    if (options_.node.role == Role::source) set_patches(tape, inputs, outputs);
  }

 private:
  /// Returns this rank's rows of a port. A port has a single column; if it is sharded by vocabulary, one tensor rank
  /// has it.
  [[nodiscard]] std::vector<float> held(const std::vector<float>& values, const Port& port) const {
    const Layout& layout = options_.node.layout;
    if (layout.columns(port.sharding, 1, options_.rank).count == 0) return {};
    const RowRange rows = layout.rows(port.sharding, static_cast<std::int64_t>(values.size()), options_.rank);
    return {values.begin() + rows.first, values.begin() + rows.end()};
  }
  /// Returns a value with this rank's rows of a port.
  Var made(Tape& tape, const std::vector<float>& values, const Port& port, bool needs_gradient) const {
    const Layout& layout = options_.node.layout;
    const std::int64_t rows = layout.rows(port.sharding, static_cast<std::int64_t>(values.size()), options_.rank).count;
    Var out = tape.output({rows, layout.columns(port.sharding, 1, options_.rank).count}, DType::f32, needs_gradient);
    const std::vector<float> own = held(values, port);
    std::copy(own.begin(), own.end(), out.value().data<float>());
    return out;
  }
  [[nodiscard]] static std::vector<float> values_of(const Inputs& inputs, Axis axis) {
    std::vector<float> values;
    const SequenceLayout& layout = inputs.layout(axis);
    for (std::size_t at = 0; at < inputs.samples().size(); ++at) {
      const std::int32_t rows = layout.offsets[at + 1] - layout.offsets[at];
      for (std::int32_t position = 0; position < rows; ++position) {
        values.push_back(value_of(inputs.samples()[at], position));
      }
    }
    return values;
  }
  void set_patches(Tape& tape, const Inputs& inputs, Outputs& outputs) const {
    const std::vector<float> values = values_of(inputs, Axis::patches);
    if (values.empty() || options_.node.ports.outputs.size() < 2) return;
    outputs.set("patches", made(tape, values, options_.node.ports.outputs.at(1), false));
  }
  void check(const Tensor& tensor, const std::vector<float>& values, float factor, const std::string& what) {
    const std::span<float> found = tensor.span<float>();
    const bool right = std::equal(found.begin(), found.end(), values.begin(), values.end(),
                                  [&](float a, float b) { return a == factor * b; });
    if (!right) options_.problems->push_back(options_.node.name + ": wrong rows at " + what);
  }
  void pass_back(Tape& tape, const std::vector<std::pair<Var, std::vector<float>>>& inputs,
                 const std::vector<float>& values) {
    if (parameter_ != nullptr) {
      for (float& gradient : parameter_->gradient().span<float>()) {
        for (const float value : values) gradient += value;
      }
    }
    for (const auto& [input, expected] : inputs) {
      const Tape::Target target = tape.gradient_target(input);
      std::copy(expected.begin(), expected.end(), target.tensor.data<float>());
    }
  }

  RowSectionOptions options_;
  Parameters parameters_;
  Parameter* parameter_ = nullptr;
};

TraceOptions no_trace() {
  TraceOptions options;
  options.on = false;
  return options;
}

}  // namespace

SimulatedJob::SimulatedJob(std::uint64_t seed, SectionGraph graph, const SimulationOptions& options)
    : random_(seed),
      graph_(std::move(graph)),
      options_(options),
      trace_(ProcessId(0), "simulation", no_trace()),
      network_(NetworkOptions(), false),
      console_(ConsoleStreams{terminal_, terminal_, false, {}}) {
  supervisor_ = bench_.stand_in([this](const Failure& failure) { problems_.push_back(failure.message); },
                                [this](const TransferBroken& broken) { problems_.push_back(broken.message); },
                                [this](Finish) { finished_ = true; });
  if (!options_.folder.empty()) snapshots_ = std::make_unique<SnapshotWriter>(CheckpointStore(options_.folder));
  places_ = draw_places();
  spawn_replicas(options);
}

bool SimulatedJob::optimizer_sharded(SectionId section) const {
  const GraphNode& node = graph_.node(section);
  return options_.zero && node.trained() && node.replicas > 1 && section.value() % 2 == 0;
}

SimulatedJob::~SimulatedJob() {
  if (snapshots_) snapshots_->stop();
  for (const auto& [name, device] : devices_) device->stop();
  network_.stop();
}

std::vector<ReplicaPlacement> SimulatedJob::draw_places() {
  std::vector<ReplicaPlacement> places;
  for (std::uint32_t index = 0; index < graph_.nodes().size(); ++index) {
    const GraphNode& node = graph_.node(SectionId(index));
    for (std::uint32_t replica = 0; replica < node.replicas; ++replica) {
      ReplicaPlacement place{SectionId(index), ReplicaIndex(replica), ProcessId(0), {}};
      for (std::int64_t rank = 0; rank < node.layout.ranks(); ++rank) {
        // The ranks of a section have separate devices while there are enough.
        const std::int64_t at = replica * node.layout.ranks() + rank;
        const std::int64_t device =
            at < options_.devices ? (index + at) % options_.devices : draw(random_, 0, options_.devices - 1);
        place.devices.push_back({DeviceId::Kind::cuda, static_cast<int>(device)});
      }
      places.push_back(std::move(place));
    }
  }
  return places;
}

Device* SimulatedJob::device_of(const ReplicaPlacement& place, std::size_t rank) {
  // Sections that share a GPU open it twice.
  const std::string own = options_.groups ? " of " + std::to_string(place.section.value()) : "";
  auto& found = devices_[text_of(place.devices[rank]) + own];
  if (found == nullptr) found = std::make_unique<SimulatedDevice>(ops_);
  return found.get();
}

void SimulatedJob::spawn_replicas(const SimulationOptions& options) {
  StepPlannerOptions planning;
  planning.graph = &graph_;
  PolicyOptions policy;
  policy.evaluations = 10;
  planning.policy = make_policy(options.policy, policy);
  planning.costs = CostModel([](SectionId section, const SampleRef& sample) {
    const double work = static_cast<double>((sample.tokens + sample.patches) * (section.value() + 1));
    return PassCost{work, 2 * work};
  });
  planning.limits = {options.slots, options.global_batch, options.validation_samples};
  auto next_place = places_.cbegin();
  for (std::uint32_t index = 0; index < graph_.nodes().size(); ++index) {
    const SectionId section(index);
    const GraphNode& node = graph_.node(section);
    planning.devices.emplace_back();
    RowSectionOptions row;
    row.node = node;
    row.trained = node.trained();
    row.backward = node.runs_backward();
    for (const EdgeId edge : graph_.outputs(section)) row.gradient_edges += graph_.edge(edge).gradient ? 1 : 0;
    row.problems = &problems_;
    row.rows = &rows_forwarded_[section];
    for (std::uint32_t replica = 0; replica < node.replicas; ++replica) {
      const ReplicaPlacement& place = *next_place++;
      std::set<int> devices;
      for (const DeviceId& device : place.devices) devices.insert(device.index);
      planning.devices.back().emplace_back(devices.begin(), devices.end());
      ReplicaSpec spec;
      spec.graph = &graph_;
      spec.section = section;
      spec.replica = ReplicaIndex(replica);
      spec.largest = {SampleId(0), 4, 3, 3, 1};
      spec.limits = planning.limits;
      spec.epoch = Epoch(1);
      spec.joined_norms = options.global_clip;
      for (std::int64_t rank = 0; rank < node.layout.ranks(); ++rank) {
        row.rank = rank;
        SectionContext context;
        context.name = node.name;
        context.trained = row.trained;
        context.passes_gradient = row.backward && !row.trained;
        context.ops = &ops_;
        context.parallel.layout = node.layout;
        context.parallel.rank = rank;
        auto made = std::make_unique<RowSection>(row);
        if (optimizer_sharded(section)) {
          made->parameters().shard_optimizer_state(
              shard_range(made->parameters().gradients().size(), node.replicas, replica));
        }
        const auto runner = std::make_shared<SectionRunner>(std::move(made), context, OptimizerConfig(),
                                                            static_cast<std::int64_t>(options.steps));
        if (node.trained()) runners_[section].push_back(runner);
        spec.ranks.push_back({runner, device_of(place, static_cast<std::size_t>(rank))});
      }
      if (options.groups) {
        spec.backend = &backend_;
        spec.groups = {&places_, std::make_shared<AbortReason>()};
      }
      spec.host_ops = &ops_;
      spec.snapshots = snapshots_.get();
      spec.network = &network_;
      spec.trace = &trace_;
      spec.current_step = &current_step_;
      spec.supervisor = supervisor_;
      specs_.push_back(spec);
      replicas_.push_back(bench_.spawn<SectionReplica>(std::move(spec)));
      hello_.replicas.push_back(bench_.ask<ReplicaAddress>(replicas_.back(), AddressRequest{}));
    }
  }
  if (random_() % 2 == 0) planning.devices.clear();
  spawn_coordinator(options, std::move(planning));
}

void SimulatedJob::spawn_coordinator(const SimulationOptions& options, StepPlannerOptions planning) {
  CoordinatorOptions coordination;
  coordination.graph = &graph_;
  coordination.schedule.steps = options.steps;
  coordination.schedule.validate_every = options.validate_every;
  coordination.schedule.validate_at_end = options.validation_samples > 0;
  coordination.schedule.checkpoint_every = options.checkpoint_every;
  coordination.schedule.checkpoint_at_end = snapshots_ != nullptr;
  coordination.snapshots = snapshots_.get();
  coordination.ahead = options.ahead;
  coordination.global_batch = options.global_batch;
  coordination.synchronous = planning.policy->synchronous();
  coordination.measure = options.measure;
  coordination.moves_placements = options.moves > 0;
  coordination.global_clip = coordination.joined_norms = options.global_clip;
  coordination.planner = bench_.spawn<Planner>(std::move(planning), nullptr, supervisor_);
  coordination.record = record_;
  coordination.console = &console_;
  coordination.current_step = &current_step_;
  coordination.data_source = bench_.stand_in([this](const BatchRequest& request) { return read(request); });
  coordination.supervisor = supervisor_;
  coordinator_ = bench_.spawn<Coordinator>(std::move(coordination));
}

BatchMetadata SimulatedJob::read(const BatchRequest& request) {
  BatchMetadata batch;
  batch.step = request.step;
  batch.pass = request.pass;
  const bool train = request.pass == Pass::train;
  const bool with_images = random_() % 3 != 0;  // some steps lack images
  const std::int64_t count = train ? options_.global_batch : options_.validation_samples;
  for (std::int64_t at = 0; at < count; ++at) {
    SampleRef sample{SampleId(random_() % 1000), draw(random_, 1, 4)};
    if (with_images && random_() % 2 == 0) sample.patches = sample.visual = draw(random_, 1, 3);
    batch.samples.push_back(sample);
    batch.target_tokens += sample.tokens;
    for (const Axis axis : all_axes) {
      rows_read_[axis] += sample.rows(axis);
      if (!train || sample.rows(axis) == 0) continue;
      for (std::int64_t position = 0; position < sample.rows(axis); ++position) {
        step_sums_[axis][request.step.value()] += value_of(sample.id, position);
      }
    }
  }
  return batch;
}

void SimulatedJob::hold_writer() {
  if (!snapshots_) return;
  held_ = std::promise<void>();
  snapshots_->run(
      [released = held_.get_future().share()] {
        released.wait();
        return [] {};
      },
      {});
}

void SimulatedJob::drain_writer() {
  if (!snapshots_) return;
  held_.set_value();
  std::promise<void> drained;
  snapshots_->run([&drained] { return [&drained] { drained.set_value(); }; }, {});
  drained.get_future().wait();
}

bool SimulatedJob::run() {
  Directory directory;
  directory.processes.push_back(hello_);
  directory.coordinator = coordinator_;
  for (const caf::actor& replica : replicas_) bench_.send(replica, directory);
  bench_.send(coordinator_, directory);
  bench_.deliver_all();
  bench_.send(coordinator_, Begin{});
  while (true) {
    if (!move_ && moves_ < options_.moves && !finished_ && random_() % 60 == 0) begin_move();
    if (move_ && (random_() % 8 == 0 || bench_.idle())) continue_move();
    if (options_.rescue && !lost_ && random_() % 200 == 0) {
      lost_ = true;
      bench_.send(coordinator_, Rescue{ProcessId(1)});
    }
    std::vector<SimulatedDevice*> busy;
    for (const auto& [name, device] : devices_) {
      if (!device->idle()) busy.push_back(device.get());
    }
    if (busy.empty() && bench_.idle() && !move_) return finished_;
    if (busy.empty() && bench_.idle()) continue;
    hold_writer();
    if (busy.empty() || (!bench_.idle() && random_() % 4 != 0)) {
      bench_.deliver_one(random_);
    } else {
      busy[random_() % busy.size()]->run_one();
    }
    drain_writer();
  }
}

std::string SimulatedJob::waiting() {
  std::string text;
  for (const caf::actor& replica : replicas_) {
    const auto answer = bench_.ask<WaitingFor>(replica, StatusRequest{});
    const std::string awaited = wait_text(answer, graph_);
    if (awaited.empty()) continue;
    text += graph_.node(answer.section).name + "/" + std::to_string(answer.replica.value()) + " waits for " + awaited +
            "\n";
  }
  return text;
}

std::int64_t SimulatedJob::rows_forwarded(SectionId section) const {
  const auto found = rows_forwarded_.find(section);
  return found == rows_forwarded_.end() ? 0 : found->second;
}

}  // namespace maestro::testing
