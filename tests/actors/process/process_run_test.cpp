// SPDX-License-Identifier: Apache-2.0
#include "actors/process/process_run.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <sstream>
#include <thread>
#include <utility>

#include "actors/process/app.hpp"
#include "sections/parameter_init.hpp"

namespace maestro {
namespace {

namespace fs = std::filesystem;

/// Returns whether this process has a thread with this name.
bool thread_runs(const std::string& name) {
  for (const auto& task : fs::directory_iterator("/proc/self/task")) {
    std::string found;
    if (std::getline(std::ifstream(task.path() / "comm"), found) && found == name) return true;
  }
  return false;
}

/// Returns whether the network's thread ends; a joined thread remains in /proc for a moment.
bool network_stopped() {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (thread_runs("maestro-net")) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::yield();
  }
  return true;
}

/// Records the ends of threads and sections in order, with the network's state: "device thread, network runs".
class Ends {
 public:
  void add(const std::string& end) {
    const std::lock_guard lock(mutex_);
    ends_.push_back(end);
  }
  [[nodiscard]] std::vector<std::string> all() {
    const std::lock_guard lock(mutex_);
    return ends_;
  }

 private:
  std::mutex mutex_;
  std::vector<std::string> ends_;
};

/// Adds an end when the thread that first calls it with this `Tag` ends.
template <class Tag>
void add_end_of_this_thread(Ends& ends) {
  struct AtEnd {
    Ends* ends;
    ~AtEnd() { Tag::ended(*ends); }
  };
  thread_local const AtEnd at_end{&ends};
}

struct DeviceThread {
  static void ended(Ends& ends) {
    ends.add(thread_runs("maestro-net") ? "device thread, network runs" : "device thread, network stopped");
  }
};
struct ActorThread {
  static void ended(Ends& ends) {
    ends.add(network_stopped() ? "actor thread, network stopped" : "actor thread, network runs");
  }
};

/// Corpus that a data source reads on its actor's thread.
class ObservedCorpus final : public Corpus {
 public:
  explicit ObservedCorpus(Ends& ends) : ends_(&ends) {}
  [[nodiscard]] std::uint64_t samples(Split split) const override { return split == Split::train ? 8 : 0; }
  [[nodiscard]] std::int64_t length(Split, SampleId) const override { return 4; }
  [[nodiscard]] Status prepare(Split, SampleId) const override {
    add_end_of_this_thread<ActorThread>(*ends_);
    return {};
  }
  [[nodiscard]] std::int64_t vocabulary() const override { return 8; }
  [[nodiscard]] std::string describe() const override { return "numbers"; }

 private:
  void read_exact(Split, SampleId sample, std::span<std::int32_t> tokens,
                  std::span<std::int32_t> targets) const override {
    for (std::size_t at = 0; at < tokens.size(); ++at) {
      tokens[at] = static_cast<std::int32_t>((sample.value() + at) % 8);
      targets[at] = (tokens[at] + 1) % 8;
    }
  }
  Ends* ends_;
};

/// Predicts the next token from the present token; its forward passes run on the thread of its device.
class ObservedSection final : public Section {
 public:
  ObservedSection(const SectionContext& context, Ends& ends) : ends_(&ends), meta_(context.meta) {
    const ParameterInit init(context.seed, context.name);
    embedding_ = &parameters_.add({"embedding.weight", Shape{8, 4}, true, init.normal("embedding.weight", 0.02)});
    head_ = &parameters_.add({"head.weight", Shape{8, 4}, true, init.normal("head.weight", 0.02)});
    if (!meta_) parameters_.allocate(context.trained, context.memory());
  }
  ~ObservedSection() override {
    if (!meta_) ends_->add("section");
  }
  [[nodiscard]] Ports ports() const override {
    return {{{"tokens", DType::i32, 1, false, false}, {"targets", DType::i32, 1, false, false}}, {}};
  }
  Parameters& parameters() override { return parameters_; }
  void forward(Tape& tape, const Inputs& inputs, Outputs& outputs) override {
    add_end_of_this_thread<DeviceThread>(*ends_);
    const Var x = embedding(tape, *embedding_, inputs["tokens"].value(), nullptr, inputs.layout());  // (M, C)
    const Tensor targets = inputs["targets"].value().reshaped(Shape{x.value().rows()});              // (M)
    outputs.losses(cross_entropy_loss(tape, x, *head_, {&targets, inputs.loss_scale()}), false);
  }
  [[nodiscard]] Cost cost(const SampleShape&) const override { return {1, 0}; }
  [[nodiscard]] std::vector<StateEntry> state() override {
    std::vector<StateEntry> entries;
    for (Parameter& parameter : parameters_.all()) entries.push_back({parameter.name(), &parameter, 0, 0, false});
    return entries;
  }
  [[nodiscard]] std::string config_json() const override { return R"({"model_type": "observed"})"; }

 private:
  Ends* ends_;
  bool meta_;
  Parameters parameters_;
  Parameter* embedding_;  // (V, C)
  Parameter* head_;       // (V, C)
};

/// Counts the sections of a type, made and alive.
struct Count {
  int made = 0;
};

/// A frozen table of vectors by token.
class CountedTable final : public Section {
 public:
  CountedTable(const SectionContext& context, Count& count) {
    const ParameterInit init(context.seed, context.name);
    table_ = &parameters_.add({"table.weight", Shape{8, 4}, true, init.normal("table.weight", 0.02)});
    if (context.meta) return;
    parameters_.allocate(false, context.memory());
    ++count.made;
  }
  [[nodiscard]] Ports ports() const override {
    return {{{"tokens", DType::i32, 1, false, false}}, {{"vectors", DType::f32, 4, false, false}}};
  }
  Parameters& parameters() override { return parameters_; }
  void forward(Tape& tape, const Inputs& inputs, Outputs& outputs) override {
    outputs.set("vectors", embedding(tape, *table_, inputs["tokens"].value(), nullptr, inputs.layout()));  // (M, C)
  }
  [[nodiscard]] Cost cost(const SampleShape&) const override { return {1, 0}; }
  [[nodiscard]] std::vector<StateEntry> state() override { return {{"table.weight", table_, 0, 0, false}}; }
  [[nodiscard]] std::string config_json() const override { return R"({"model_type": "table"})"; }
  [[nodiscard]] bool shareable() const override { return true; }

 private:
  Parameters parameters_;
  Parameter* table_;  // (V, C)
};

/// Predicts the next token from vectors. Its server is lost in the process's first pass.
class LosesItsServer final : public Section {
 public:
  LosesItsServer(const SectionContext& context, Count& count, bool& lost) : lost_(&lost) {
    const ParameterInit init(context.seed, context.name);
    head_ = &parameters_.add({"head.weight", Shape{8, 4}, true, init.normal("head.weight", 0.02)});
    if (context.meta) return;
    parameters_.allocate(context.trained, context.memory());
    ++count.made;
  }
  [[nodiscard]] Ports ports() const override {
    return {{{"vectors", DType::f32, 4, false, false}, {"targets", DType::i32, 1, false, false}}, {}};
  }
  Parameters& parameters() override { return parameters_; }
  void forward(Tape& tape, const Inputs& inputs, Outputs& outputs) override {
    if (!std::exchange(*lost_, true)) throw ServiceLost("its server ended");
    const Tensor targets = inputs["targets"].value().reshaped(Shape{inputs["targets"].value().rows()});  // (M)
    outputs.losses(cross_entropy_loss(tape, inputs["vectors"], *head_, {&targets, inputs.loss_scale()}), false);
  }
  [[nodiscard]] Cost cost(const SampleShape&) const override { return {1, 0}; }
  [[nodiscard]] std::vector<StateEntry> state() override { return {{"head.weight", head_, 0, 0, false}}; }
  [[nodiscard]] std::string config_json() const override { return R"({"model_type": "head"})"; }

 private:
  bool* lost_;
  Parameters parameters_;
  Parameter* head_;  // (V, C)
};

TEST(ProcessRunTest, frozen_sections_stay_in_memory_when_the_run_starts_again) {  // PR-3
  const fs::path out = fs::path(::testing::TempDir()) / ("process_run_again_" + std::to_string(::getpid()));
  const std::string job =
      "name = \"again\"\n[train]\nsteps = 2\nglobal_batch = 4\ncheckpoint_at_end = false\nout = \"" + out.string() +
      "\"\n[table]\nweights = \"random\"\n[head]\nlr = 1e-3\n";
  static Ends& ends = *new Ends;  // never destroyed: threads of CAF may end after the test
  Count tables;
  Count heads;
  bool lost = false;
  std::ostringstream text;
  Console console({text, text, false, {}});
  RunOptions options;
  options.quiet = true;
  options.control = "none";
  App app(JobDocument::parse(job, "again.toml"), options, console);
  auto& data = app.source("corpus", std::make_shared<ObservedCorpus>(ends));
  auto& table = app.section("table", SectionFactory([&](const SectionContext& context) {
                              return std::make_unique<CountedTable>(context, tables);
                            }))
                    .forward_only();
  auto& head = app.section("head", SectionFactory([&](const SectionContext& context) {
                             return std::make_unique<LosesItsServer>(context, heads, lost);
                           }));
  app.connect(data.port("tokens"), table.port("tokens"));
  app.connect(table.port("vectors"), head.port("vectors"));
  app.connect(data.port("targets"), head.port("targets"));
  const RunResult result = app.run();
  EXPECT_EQ(result.status, 0) << text.str();
  EXPECT_EQ(result.recoveries.size(), 1U) << text.str();
  EXPECT_EQ(tables.made, 1);
  EXPECT_EQ(heads.made, 2);
  fs::remove_all(out);
}

TEST(ProcessRunTest, threads_that_send_to_actors_stop_before_the_actors_and_memory_goes_last) {  // PR-1
  const fs::path out = fs::path(::testing::TempDir()) / ("process_run_" + std::to_string(::getpid()));
  const std::string job = "name = \"ends\"\n[train]\nsteps = 2\nglobal_batch = 4\ncheckpoint_at_end = false\nout = \"" +
                          out.string() + "\"\n[transport]\nprovider = \"tcp\"\nforce_rma = true\n[model]\nlr = 1e-3\n";
  static Ends& ends = *new Ends;  // never destroyed: threads of CAF may end after the test
  std::ostringstream text;
  Console console({text, text, false, {}});
  RunOptions options;
  options.quiet = true;
  options.control = "none";
  {
    App app(JobDocument::parse(job, "ends.toml"), options, console);
    auto& data = app.source("corpus", std::make_shared<ObservedCorpus>(ends));
    auto& model = app.section("model", SectionFactory([](const SectionContext& context) {
                                return std::make_unique<ObservedSection>(context, ends);
                              }));
    app.connect(data.port("tokens"), model.port("tokens"));
    app.connect(data.port("targets"), model.port("targets"));
    EXPECT_EQ(app.run().status, 0) << text.str();
  }
  EXPECT_EQ(ends.all(),
            (std::vector<std::string>{"device thread, network runs", "actor thread, network stopped", "section"}))
      << text.str();
  fs::remove_all(out);
}

}  // namespace
}  // namespace maestro
