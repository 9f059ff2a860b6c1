// SPDX-License-Identifier: Apache-2.0
#include "sections/served/served_section.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <thread>

#include "actors/served/module_report.hpp"
#include "actors/served/served_connection.hpp"
#include "linear_server.hpp"
#include "runtime/core/result.hpp"
#include "runtime/ops/cpu/cpu_operator_table.hpp"
#include "sections/section_runner.hpp"

namespace maestro::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::FloatNear;
using ::testing::HasSubstr;
using ::testing::Pointwise;

/// LinearServer's module as a section in this process.
class InsideLinear final : public Section {
 public:
  explicit InsideLinear(const SectionContext& context) {
    weight_ = &parameters_.add({"weight", Shape{linear_outputs, linear_inputs}, true,
                                [](std::span<float> values) { std::ranges::copy(linear_values(), values.begin()); }});
    context.allocate(parameters_);
  }
  [[nodiscard]] Ports ports() const override {
    return {{}, {{.name = "y", .columns = linear_outputs, .differentiable = true}}};
  }
  Parameters& parameters() override { return parameters_; }
  void forward(Tape& tape, const Inputs& inputs, Outputs& outputs) override {
    outputs.set("y", linear(tape, inputs["x"], *weight_, nullptr));
  }
  [[nodiscard]] Cost cost(const SampleShape&) const override { return {}; }
  [[nodiscard]] std::vector<StateEntry> state() override { return {}; }
  [[nodiscard]] std::string config_json() const override { return "{}"; }

 private:
  Parameters parameters_;
  Parameter* weight_;
};

class ServedSectionTest : public ::testing::Test {
 protected:
  ServedSectionTest() {
    std::string pattern = std::filesystem::temp_directory_path() / "maestro served XXXXXX";
    folder_ = ::mkdtemp(pattern.data());
    options_.addresses = {address("a")};
    options_.connect = [](const std::string& at) {
      return std::make_unique<ServedConnection>(ServedAddress{at, nullptr, 20s});
    };
    options_.reconnect = 20s;
    options_.module = std::make_shared<const ServedModule>(checked_module(linear_module(true)));
  }
  ~ServedSectionTest() override { std::filesystem::remove_all(folder_); }

  [[nodiscard]] std::string address(const std::string& name) const { return "unix:" + (folder_ / name).string(); }
  [[nodiscard]] SectionContext context(bool trained) const {
    SectionContext context;
    context.name = "module";
    context.trained = trained;
    context.ops = &ops_;
    return context;
  }
  static OptimizerConfig optimizer() {
    OptimizerConfig config;
    config.lr = 0.05;
    config.clip_norm = 1.0;
    return config;
  }
  [[nodiscard]] std::unique_ptr<SectionRunner> runner(std::shared_ptr<Section> section, bool trained) const {
    return std::make_unique<SectionRunner>(std::move(section), context(trained), optimizer(), 100);
  }
  [[nodiscard]] std::shared_ptr<ServedSection> served(bool trained) const {
    return std::make_shared<ServedSection>(context(trained), options_);
  }
  static std::shared_ptr<served::ServedModuleIf> session() { return std::make_shared<LinearSession>(true); }

  static MicroBatchPlan plan(std::uint64_t step, std::uint32_t index) {
    MicroBatchPlan plan;
    plan.step = StepId(step);
    plan.index = index;
    plan.pass = Pass::train;
    plan.loss_scale = 0.25;
    plan.samples = {{SampleId(0), 2}, {SampleId(1), 1}};
    return plan;
  }
  struct Passed {
    std::vector<float> y = std::vector<float>(6);
    std::vector<float> of_x = std::vector<float>(9);
  };
  /// Runs a pass; the gradient of y is y / 4.
  static Passed pass(SectionRunner& runner, std::uint64_t step, std::uint32_t index, bool backward) {
    std::vector<float> x;
    for (int at = 0; at < 9; ++at) x.push_back(std::sin(static_cast<float>(step * 31 + index * 7 + at)));
    Passed passed;
    const PortTensor input{"x", {x.data(), DType::f32, {3, 3}}, true};
    const PortTensor output{"y", {passed.y.data(), DType::f32, {3, 2}}};
    (void)runner.forward(plan(step, index), {&input, 1}, {&output, 1});
    if (!backward) return passed;
    std::vector<float> of_y = passed.y;
    for (float& each : of_y) each *= 0.25F;
    const PortTensor given{"y", {of_y.data(), DType::f32, {3, 2}}};
    const PortTensor wanted{"x", {passed.of_x.data(), DType::f32, {3, 3}}};
    runner.backward(plan(step, index), {&given, 1}, {&wanted, 1});
    return passed;
  }
  static double end_step(SectionRunner& runner, std::uint64_t step) {
    runner.add_over_ranks();
    const double norm = std::sqrt(runner.gradient_sum_of_squares().get());
    runner.step(StepId(step), norm, 1).value_or_throw();
    return norm;
  }

  std::filesystem::path folder_;
  cpu::CpuOperatorTable ops_;
  ServedOptions options_;
};

std::string lost(const std::function<void()>& call) {
  try {
    call();
  } catch (const ServiceLost& error) {
    return error.what();
  }
  return "not lost";
}

TEST_F(ServedSectionTest, trains_a_module_as_the_same_module_inside) {  // VS-1
  const LinearServer server(address("a"), session);
  const auto inside = runner(std::make_shared<InsideLinear>(context(true)), true);
  const auto outside = runner(served(true), true);
  EXPECT_THAT(outside->section().parameters().values(),
              Pointwise(FloatNear(0), inside->section().parameters().values()));
  for (std::uint64_t step = 1; step <= 8; ++step) {
    for (const std::uint32_t index : {0U, 1U}) {
      const Passed wanted = pass(*inside, step, index, true);
      const Passed found = pass(*outside, step, index, true);
      EXPECT_THAT(found.y, Pointwise(FloatNear(1e-6F), wanted.y)) << step;
      EXPECT_THAT(found.of_x, Pointwise(FloatNear(1e-6F), wanted.of_x)) << step;
    }
    EXPECT_NEAR(end_step(*outside, step), end_step(*inside, step), 1e-6);
  }
  EXPECT_GT(std::abs(outside->section().parameters().values()[0] - linear_values()[0]), 0.1F);  // it was trained
}

TEST_F(ServedSectionTest, sends_no_gradient_where_none_came_back) {
  const LinearServer server(address("a"), session);
  const auto made = runner(served(true), true);
  Passed passed = pass(*made, 1, 0, false);
  const PortTensor wanted{"x", {passed.of_x.data(), DType::f32, {3, 3}}};
  passed.of_x.assign(9, 1);
  made->backward(plan(1, 0), {}, {&wanted, 1});
  EXPECT_EQ(passed.of_x, std::vector<float>(9, 0));
}

TEST_F(ServedSectionTest, goes_on_with_another_server_where_none_keeps_a_state) {  // VS-2
  auto server = std::make_unique<LinearServer>(address("a"), session);
  const auto made = runner(served(false), false);
  const Passed first = pass(*made, 1, 0, false);
  server.reset();
  std::thread starting([&] { server = std::make_unique<LinearServer>(address("a"), session); });
  const Passed second = pass(*made, 1, 0, false);
  starting.join();
  EXPECT_EQ(second.y, first.y);
}

TEST_F(ServedSectionTest, reports_a_lost_server_that_does_not_come_back) {  // VS-2
  options_.reconnect = 100ms;
  auto server = std::make_unique<LinearServer>(address("a"), session);
  const auto made = runner(served(false), false);
  server.reset();
  const std::string line = lost([&] { (void)pass(*made, 1, 0, false); });
  EXPECT_THAT(line, HasSubstr(address("a")));
  EXPECT_THAT(line, HasSubstr("(tried for 1 s)"));
}

TEST_F(ServedSectionTest, reports_a_lost_server_that_kept_passes) {  // VS-2
  auto server = std::make_unique<LinearServer>(address("a"), session);
  const auto made = runner(served(true), true);
  (void)pass(*made, 1, 0, true);
  server = nullptr;
  server = std::make_unique<LinearServer>(address("a"), session);
  EXPECT_THAT(lost([&] { made->add_over_ranks(); }), HasSubstr("ended the connection"));
  EXPECT_THAT(lost([&] { (void)pass(*made, 1, 1, false); }), HasSubstr("ended the connection"));
}

struct Renamed final : LinearSession {
  Renamed() : LinearSession(true) {}
  void open(served::Module& module, const served::Session& session) override {
    LinearSession::open(module, session);
    module.fingerprint = "another";
  }
};

TEST_F(ServedSectionTest, refuses_a_later_server_with_another_module) {  // VS-3
  auto server = std::make_unique<LinearServer>(address("a"), session);
  const auto made = runner(served(false), false);
  server.reset();
  server = std::make_unique<LinearServer>(address("a"), [] { return std::make_shared<Renamed>(); });
  try {
    (void)pass(*made, 1, 0, false);
    FAIL();
  } catch (const JobError& error) {
    EXPECT_THAT(error.what(), HasSubstr("is not the one that section 'module' was checked with: the fingerprint of its "
                                        "values is another, was linear"));
  }
}

struct OtherStart final : LinearSession {
  OtherStart() : LinearSession(true) {}
  void initial_values(std::string& values, const std::string&, std::int64_t, std::int64_t count) override {
    values.assign(static_cast<std::size_t>(count) * sizeof(float), '\0');
  }
};

TEST_F(ServedSectionTest, begins_in_every_replica_with_the_values_of_the_first_server) {
  const LinearServer first(address("a"), session);
  const LinearServer second(address("b"), [] { return std::make_shared<OtherStart>(); });
  options_.addresses = {address("a"), address("b")};
  SectionContext of_second = context(true);
  of_second.replica = 1;
  ServedSection made(of_second, options_);
  EXPECT_THAT(made.parameters().values().first(6), Pointwise(FloatNear(0), linear_values()));
}

TEST_F(ServedSectionTest, ends_its_wait_for_a_server_when_it_is_interrupted) {
  options_.reconnect = 4min;
  auto server = std::make_unique<LinearServer>(address("a"), session);
  const auto section = served(false);
  const auto made = runner(section, false);
  server.reset();
  const auto begin = std::chrono::steady_clock::now();
  std::thread other([&] { section->interrupt(); });
  EXPECT_ANY_THROW((void)pass(*made, 1, 0, false));
  other.join();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, options_.reconnect / 2);
}

TEST_F(ServedSectionTest, refuses_what_a_server_does_not_do) {
  const auto refusal = [&](const std::function<void(SectionContext&)>& change) -> std::string {
    SectionContext changed = context(true);
    changed.meta = true;
    change(changed);
    try {
      const ServedSection made(changed, options_);
    } catch (const JobError& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_EQ(refusal([](SectionContext&) {}), "accepted");
  EXPECT_THAT(refusal([](SectionContext& made) { made.precision = DType::bf16; }), HasSubstr("module.precision"));
  EXPECT_THAT(refusal([](SectionContext& made) { made.for_cuda = true; }), HasSubstr("module.devices"));
  served::Module bare = linear_module(true);
  bare.parameters.clear();
  options_.module = std::make_shared<const ServedModule>(checked_module(bare));
  EXPECT_THAT(refusal([](SectionContext&) {}), HasSubstr("set module.trained = false"));
}

}  // namespace
}  // namespace maestro::testing
