// SPDX-License-Identifier: Apache-2.0
// The cost of the coordinator: the real Coordinator and Planner, each on a separate thread, with replicas that only
// answer work items and boundaries, at once. Prints a JSON line.
#include <time.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <future>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <sstream>

#include "actors/process/actor_environment.hpp"
#include "actors/run/coordinator/coordinator.hpp"
#include "actors/run/coordinator/planner.hpp"

namespace maestro {
namespace {

struct Settings {
  std::uint32_t replicas = 16;
  std::uint64_t messages = 16384;  // work items of a step
  std::uint64_t steps = 40;
  std::uint64_t warm = 4;
  std::string policy = "arrival";
};

double seconds_of(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

/// Linux' number for the CPU clock of a thread of this process (clock_getcpuclockid(3) has it for processes only).
clockid_t cpu_clock_of(int thread) {
  constexpr int per_thread = 4;
  constexpr int run_time = 2;
  return static_cast<clockid_t>((~static_cast<unsigned>(thread) << 3) | per_thread | run_time);
}

std::set<int> threads() {
  std::set<int> numbers;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) {
    numbers.insert(std::stoi(entry.path().filename().string()));
  }
  return numbers;
}

/// Spawns with `spawn` and finds the thread that the actor got.
template <class Spawn>
std::pair<caf::actor, clockid_t> on_its_own_thread(Spawn spawn) {
  const std::set<int> before = threads();
  caf::actor actor = spawn();
  for (const int thread : threads()) {
    if (before.count(thread) == 0) return {actor, cpu_clock_of(thread)};
  }
  throw std::runtime_error("the actor has no thread of its own");
}

struct Times {
  double wall = 0;
  double process = 0;
  double coordinator = 0;
  double planner = 0;
};

caf::behavior stand_in_replica(caf::event_based_actor* self, SectionId section, ReplicaIndex replica) {
  auto coordinator = std::make_shared<caf::actor>();  // behaviours are copied
  return {
      [=](const Directory& directory) { *coordinator = directory.coordinator; },
      [=](const MicroBatchOrder& order) {
        for (const MicroBatchPlan& plan : order.plans) {
          MicroBatchDone done;
          done.section = section;
          done.replica = replica;
          done.step = plan.step;
          done.pass = plan.pass;
          done.index = plan.index;
          done.samples = static_cast<std::int64_t>(plan.samples.size());
          send_to(self, *coordinator, std::move(done));
        }
      },
      [=](const BoundaryOrder& order) {
        send_to(self, *coordinator, StepDone{section, replica, order.mark.step, order.mark.pass, 0, 0});
      },
  };
}

class Bench {
 public:
  explicit Bench(const Settings& settings) : settings_(settings) {
    GraphNode node;
    node.name = "llm";
    node.replicas = settings.replicas;
    graph_.add(node);
  }
  ~Bench() {
    for (const caf::actor& actor : actors_) caf::anon_send_exit(actor, caf::exit_reason::user_shutdown);
  }
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  nlohmann::ordered_json run() {
    caf::actor_system& system = environment_.system();
    const caf::actor supervisor = kept(system.spawn([this](caf::event_based_actor*) -> caf::behavior {
      return {[this](Finish) { ended_.set_value({}); },
              [this](const Failure& failure) { ended_.set_value(failure.message); }};
    }));
    CoordinatorOptions options;
    options.graph = &graph_;
    options.schedule.steps = settings_.steps;
    options.schedule.keeps_state = false;
    options.schedule.validate_at_end = options.schedule.checkpoint_at_end = false;
    options.global_batch = static_cast<std::int64_t>(settings_.messages);
    options.record = std::make_shared<RunRecord>();
    options.console = &console_;
    options.supervisor = supervisor;
    options.data_source = kept(system.spawn([this](caf::event_based_actor*) -> caf::behavior {
      return {[this](const BatchRequest& request) { return batch(request); }};
    }));
    StepPlannerOptions planning;
    planning.graph = &graph_;
    planning.policy = make_policy(settings_.policy);
    std::tie(options.planner, planner_clock_) = on_its_own_thread([&] {
      return system.spawn<Planner, caf::detached>(planning, static_cast<TraceRecorder*>(nullptr), supervisor);
    });
    Directory directory;
    std::tie(directory.coordinator, coordinator_clock_) =
        on_its_own_thread([&] { return system.spawn<Coordinator, caf::detached>(options); });
    kept(options.planner);
    kept(directory.coordinator);
    directory.processes.emplace_back();
    for (std::uint32_t replica = 0; replica < settings_.replicas; ++replica) {
      ReplicaAddress address;
      address.section = SectionId(0);
      address.replica = ReplicaIndex(replica);
      address.actor = kept(system.spawn(stand_in_replica, address.section, address.replica));
      directory.processes.front().replicas.push_back(address);
    }
    const caf::message shared = caf::make_message(directory);
    for (const ReplicaAddress& address : directory.processes.front().replicas) send_from_outside(address.actor, shared);
    send_from_outside(directory.coordinator, shared);
    send_from_outside(directory.coordinator, Begin{});
    if (const std::string failed = ended_.get_future().get(); !failed.empty()) throw std::runtime_error(failed);
    return row();
  }

 private:
  caf::actor kept(caf::actor actor) {
    actors_.push_back(actor);
    return actor;
  }
  [[nodiscard]] Times now() const {
    return {seconds_of(CLOCK_MONOTONIC), seconds_of(CLOCK_PROCESS_CPUTIME_ID), seconds_of(coordinator_clock_),
            seconds_of(planner_clock_)};
  }
  /// Takes the times at the first and last counted request, which are as many steps apart as their numbers.
  BatchMetadata batch(const BatchRequest& request) {
    if (request.step.value() == settings_.warm) begin_ = now();
    if (request.step.value() == settings_.steps) end_ = now();
    BatchMetadata batch;
    batch.step = request.step;
    batch.pass = request.pass;
    for (std::uint64_t sample = 0; sample < settings_.messages; ++sample)
      batch.samples.push_back({SampleId(sample), 1});
    batch.target_tokens = static_cast<std::int64_t>(settings_.messages);
    return batch;
  }
  [[nodiscard]] nlohmann::ordered_json row() const {
    const double messages = static_cast<double>((settings_.steps - settings_.warm) * settings_.messages);
    const auto us = [&](double Times::*field) { return (end_.*field - begin_.*field) * 1e6 / messages; };
    return {{"replicas", settings_.replicas},
            {"policy", settings_.policy},
            {"messages", messages},
            {"messages_per_s", 1e6 / us(&Times::wall)},
            {"cpu_us_per_message", us(&Times::process)},
            {"coordinator_us_per_message", us(&Times::coordinator)},
            {"planner_us_per_message", us(&Times::planner)}};
  }

  Settings settings_;
  SectionGraph graph_;
  std::ostringstream terminal_;
  Console console_{ConsoleStreams{terminal_, terminal_, false, {}}};
  clockid_t coordinator_clock_ = 0;
  clockid_t planner_clock_ = 0;
  Times begin_;
  Times end_;
  std::promise<std::string> ended_;
  ActorEnvironment environment_{ActorSystemOptions{}};
  std::vector<caf::actor> actors_;  // gone before their system
};

}  // namespace
}  // namespace maestro

int main(int argc, char** argv) {
  maestro::Settings settings;
  CLI::App app("The coordinator's cost of each message to a lane, with replicas that only answer.");
  app.add_option("--replicas", settings.replicas, "stand-in replicas")->check(CLI::PositiveNumber);
  app.add_option("--messages", settings.messages, "of a step")->check(CLI::PositiveNumber);
  app.add_option("--steps", settings.steps, "of the run")->check(CLI::Range(2, 1000000));
  app.add_option("--policy", settings.policy, "of planning");
  CLI11_PARSE(app, argc, argv);
  settings.warm = std::min(settings.warm, settings.steps - 1);
  try {
    std::cout << maestro::Bench(settings).run().dump() << std::endl;
  } catch (const std::exception& problem) {
    std::cerr << "error: " << problem.what() << "\n";
    return 1;
  }
  return 0;
}
