// SPDX-License-Identifier: Apache-2.0
// Sections trained on a device, against the same sections on a CPU. The CPU itself is one of the devices, so that the
// comparison runs everywhere.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <string>
#include <vector>

#include "benchmarks/gpu/bench_training.hpp"
#include "runtime/device/backend.hpp"

namespace maestro::bench {
namespace {

struct Trial {
  const char* model;
  const char* precision;
  double tolerance;  ///< tolerance for losses of about 6
};

/// Returns whether the fake device is used, which is ten thousand times slower: then a few small steps must do.
bool over_the_double() {
  return std::getenv("MAESTRO_FAKE_DEVICE") != nullptr;
}

class DeviceTraining : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const std::string device = GetParam();
    if (device == "cpu" || cuda_status().devices() > 0) return;
    ASSERT_FALSE(over_the_double()) << cuda_status().missing;
    GTEST_SKIP() << cuda_status().missing;
  }
  [[nodiscard]] static TrainingSettings settings_of(const Trial& trial, std::int64_t steps) {
    TrainingSettings settings;
    settings.model = trial.model;
    settings.precision = trial.precision;
    constexpr std::int64_t steps_of_the_double = 3;
    settings.batch = over_the_double() ? 2 : 6;
    settings.sequence = over_the_double() ? 19 : 67;  // not a multiple of anything
    settings.micro_batches = 2;
    settings.steps = over_the_double() ? steps_of_the_double : steps;
    settings.lr = 1e-3;
    return settings;
  }
  static void expect_alike(const std::vector<double>& losses, const std::vector<double>& reference, double tolerance) {
    ASSERT_EQ(losses.size(), reference.size());
    for (std::size_t step = 0; step < losses.size(); ++step) {
      EXPECT_LE(std::abs(losses[step] - reference[step]), tolerance)
          << "step " << step + 1 << ": " << losses[step] << " against " << reference[step];
    }
    EXPECT_LT(losses.back(), (over_the_double() ? 1.0 : 0.97) * losses.front()) << "nothing was learned";
  }
  /// Returns the tolerance; a CPU repeats its results to the bit.
  [[nodiscard]] static double tolerance_of(const Trial& trial) {
    return GetParam() == std::string("cpu") ? 0 : trial.tolerance;
  }
};

// fp32: sums of a thousand terms in another order differ by about 1e-6 of the loss, and fifty steps of AdamW, which
// divides small gradients by their size, amplify this a hundredfold. bf16: a rounding is 4e-3 of a value; losses are
// means over 400 tokens with independent roundings, and devices round at other places.
constexpr Trial trials[] = {{"gpt2-tiny", "fp32", 2e-3},
                            {"llama-tiny", "fp32", 2e-3},
                            {"gpt2-tiny", "bf16", 3e-2},
                            {"llama-tiny", "bf16", 3e-2},
                            // At a rounding, a token whose scores are nearly equal takes another expert: one in 400.
                            {"experts-tiny", "fp32", 2e-3},
                            {"experts-tiny", "bf16", 3e-2},
                            {"sinks-tiny", "fp32", 2e-3},
                            {"sinks-tiny", "bf16", 3e-2},
                            {"delta-tiny", "fp32", 2e-3},
                            {"delta-tiny", "bf16", 3e-2},
                            {"latent-tiny", "fp32", 2e-3},
                            {"latent-tiny", "bf16", 3e-2},
                            {"convolution-tiny", "fp32", 2e-3},
                            {"convolution-tiny", "bf16", 3e-2}};

TEST_P(DeviceTraining, fifty_steps_track_the_losses_of_a_processor) {
  for (const Trial& trial : trials) {
    SCOPED_TRACE(std::string(trial.model) + " " + trial.precision);
    const TrainingSettings settings = settings_of(trial, 50);
    BenchDevice processor("cpu");
    Training reference(settings, processor);
    reference.run();
    BenchDevice device(GetParam());
    Training training(settings, device);
    training.run();
    expect_alike(training.losses(), reference.losses(), tolerance_of(trial));
  }
}

TEST_P(DeviceTraining, a_teacher_and_a_student_share_a_device_and_distil_as_on_a_processor) {
  for (const Trial& trial : trials) {
    SCOPED_TRACE(std::string(trial.model) + " " + trial.precision);
    const TrainingSettings settings = settings_of(trial, 30);
    BenchDevice processor("cpu");
    Training reference(settings, processor, processor);
    reference.run();
    BenchDevice teacher(GetParam(), 0.5, Priority::background);
    BenchDevice student(GetParam(), 0.5);
    Training training(settings, student, teacher);
    training.run();
    expect_alike(training.losses(), reference.losses(), tolerance_of(trial));
  }
}

TEST_P(DeviceTraining, the_same_run_twice_has_the_same_bits_when_that_is_asked_for) {  // GT-2, LP-2
  const TrainingSettings settings = settings_of(trials[2], 10);
  std::vector<double> losses[2];
  for (std::vector<double>& found : losses) {
    BenchDevice device(GetParam(), 1, Priority::critical, true);
    Training training(settings, device);
    training.run();
    found = training.losses();
  }
  EXPECT_EQ(losses[0], losses[1]);
}

INSTANTIATE_TEST_SUITE_P(devices, DeviceTraining, ::testing::Values("cpu", "cuda:0"),
                         [](const auto& test) { return std::string(test.param) == "cpu" ? "processor" : "gpu"; });

}  // namespace
}  // namespace maestro::bench
