// SPDX-License-Identifier: Apache-2.0
// Runs of a job whose student makes its samples, against the same steps with these samples as data.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "actors/process/app.hpp"
#include "runtime/core/random.hpp"
#include "runtime/data/sample_store.hpp"
#include "runtime/data/sampler.hpp"
#include "runtime/job/generator_config.hpp"
#include "runtime/ops/cpu/cpu_operator_table.hpp"
#include "sections/decoder/completions.hpp"

namespace maestro {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t sequence = 24, vocabulary = 37, batch = 4, most_tokens = 9;

/// Samples of random tokens, whose last third is learned; some may have another content.
class Numbers final : public Corpus {
 public:
  explicit Numbers(std::map<SampleId, MadeSample> others = {}) : others_(std::move(others)) {}
  [[nodiscard]] std::uint64_t samples(Split split) const override { return split == Split::train ? 32 : 6; }
  [[nodiscard]] std::int64_t length(Split split, SampleId sample) const override {
    if (const MadeSample* other = other_of(split, sample)) return other->positions();
    return 12 + static_cast<std::int64_t>(sample.value() % 13);
  }
  [[nodiscard]] std::int64_t targets(Split split, SampleId sample) const override {
    if (const MadeSample* other = other_of(split, sample)) return std::ssize(other->completion);
    return length(split, sample) / 3;
  }
  [[nodiscard]] std::int64_t max_length() const override { return sequence; }
  [[nodiscard]] std::int64_t vocabulary() const override { return maestro::vocabulary; }
  [[nodiscard]] std::string describe() const override { return "numbers"; }
  [[nodiscard]] DataFingerprint fingerprint() const override { return {}; }

 private:
  [[nodiscard]] const MadeSample* other_of(Split split, SampleId sample) const {
    const auto found = split == Split::train ? others_.find(sample) : others_.end();
    return found == others_.end() ? nullptr : &found->second;
  }
  void read_exact(Split split, SampleId sample, std::span<std::int32_t> tokens,
                  std::span<std::int32_t> targets) const override {
    if (const MadeSample* other = other_of(split, sample)) {
      SampleStore store;
      store.put({StepId(1), 0}, *other);
      return store.read({StepId(1), 0}, tokens, targets);
    }
    Random random(sample.value(), split == Split::train ? 1 : 2);
    for (std::int32_t& token : tokens) token = static_cast<std::int32_t>(random.below(maestro::vocabulary));
    for (std::size_t at = 0; at < targets.size(); ++at) {
      const bool last = at + 1 == targets.size();
      targets[at] = at < targets.size() - targets.size() / 3 ? ignored_target : last ? 5 : tokens[at + 1];
    }
  }
  std::map<SampleId, MadeSample> others_;
};

class OnPolicy : public ::testing::Test {
 protected:
  OnPolicy()
      : folder_(fs::path(::testing::TempDir()) /
                (std::string(::testing::UnitTest::GetInstance()->current_test_info()->name()) +
                 std::to_string(::getpid()))) {
    fs::remove_all(folder_);
  }
  ~OnPolicy() override { fs::remove_all(folder_); }

  struct Settings {
    std::string generator = "";  ///< lines of [generator]; "none": without the table
    std::string train = "";      ///< further lines for [train]
    fs::path resume = "";
    std::int64_t cpu_devices = 2;
    std::string student = "replicas = 1\n";  ///< layout, and further lines of [student]
    std::string transport = "";              ///< lines of [transport]
    std::string boundary = "hidden";         ///< the teacher's output
    std::int64_t micro_batch = 2;
  };
  /// Runs the job up to step `steps`, and returns its folder.
  fs::path run(const std::string& name, std::uint64_t steps, const Settings& settings,
               std::shared_ptr<const Corpus> corpus = std::make_shared<Numbers>()) {
    const fs::path out = folder_ / name;
    const bool generates = settings.generator != "none";
    const std::string shape = "layers = 2\nwidth = 32\nheads = 4\nkv_heads = 2\nfamily = \"llama\"\npositions = 64\n";
    const std::string job =
        "name = \"on_policy\"\n[train]\n" + settings.train + "steps = " + std::to_string(steps) +
        "\nschedule_steps = 8\nglobal_batch = 4\nseed = 7\ncheckpoint_every = 1\nkeep_checkpoints = 100\n" +
        "validate_every = 2\nout = \"" + out.string() + "\"\n[teacher]\nweights = \"random\"\nreplicas = 1\n" + shape +
        "boundary = \"" + settings.boundary + "\"\n[student]\nboundary = \"" + settings.boundary +
        "\"\nmicro_batch = " + std::to_string(settings.micro_batch) +
        "\nlr = 2e-2\nalpha = " + (generates ? "0.25" : "1.0") + "\ndivergence = \"reverse_kl\"\n" + settings.student +
        shape + (generates ? "[generator]\n" + settings.generator + "\n" : "") + "[transport]\n" + settings.transport;
    std::ostringstream text;
    Console console({text, text, false, {}});
    RunOptions options;
    options.quiet = true;
    options.control = "none";
    options.resume = settings.resume;
    options.cpu_devices = settings.cpu_devices;
    App app(JobDocument::parse(job, "on_policy.toml"), options, console);
    auto& data = app.source("corpus", std::move(corpus));
    auto& teacher = app.section("teacher", "decoder_trunk").forward_only();
    auto& student = app.section("student", "distilled_decoder");
    for (const SectionBuilder* reader : {&teacher, &student}) app.connect(data.port("tokens"), reader->port("tokens"));
    app.connect(data.port("targets"), student.port("targets"));
    app.connect(teacher.port(settings.boundary), student.port("teacher_" + settings.boundary));
    app.connect_where_present(data.port("targets"), teacher.port("targets"));
    app.connect_where_present(data.port("sampled"), student.port("sampled"));
    if (generates) {
      auto& generator = app.section("generator", "generator");
      app.connect(student.port("weights"), generator.port("weights"));
    }
    EXPECT_EQ(app.run().status, 0) << text.str();
    return out;
  }
  /// Returns the error of such a run.
  std::string refusal(std::uint64_t steps, const Settings& settings) {
    try {
      run("refused", steps, settings);
    } catch (const JobError& error) {
      return error.what();
    }
    return "";
  }

  /// Returns the student's figures by step, as they are recorded.
  static std::map<std::int64_t, nlohmann::json> figures(const fs::path& out) {
    std::map<std::int64_t, nlohmann::json> found;
    std::ifstream file(out / "record" / "steps.jsonl");
    for (std::string line; std::getline(file, line);) {
      const auto row = nlohmann::json::parse(line);
      found[row.at("step").get<std::int64_t>()] = row.at("sections").at("student");
    }
    return found;
  }
  /// Returns its loss and gradient norm.
  static std::map<std::int64_t, std::string> losses(const fs::path& out) {
    std::map<std::int64_t, std::string> found;
    for (const auto& [step, student] : figures(out)) {
      found[step] = student.at("loss").dump() + " " + student.at("grad_norm").dump();
    }
    return found;
  }
  static fs::path checkpoint(const fs::path& out, std::uint64_t step) {
    for (const auto& entry : fs::directory_iterator(out / "checkpoints")) {
      if (entry.path().filename().string().ends_with(std::to_string(step)) && entry.is_directory()) return entry.path();
    }
    ADD_FAILURE() << "no checkpoint of step " << step << " in " << out;
    return {};
  }

  fs::path folder_;
};

/// Returns the samples that greedy decoding with `weights` makes for a step, by their prompts' ids.
std::map<SampleId, MadeSample> made_by(const fs::path& weights, std::uint64_t step) {
  const Numbers corpus;
  const Sampler sampler(7, corpus.sources());
  std::vector<SampleId> ids;
  std::vector<std::vector<std::int32_t>> prompts;
  std::vector<Prompt> asked;
  for (std::uint64_t at = (step - 1) * batch; at < step * batch; ++at) {
    ids.push_back(sampler.at(at));
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(corpus.length(Split::train, ids.back())));
    std::vector<std::int32_t> targets(tokens.size());
    corpus.read(Split::train, ids.back(), tokens, targets);
    tokens.resize(static_cast<std::size_t>(prompt_length(targets, 0)));
    prompts.push_back(tokens);
  }
  for (const auto& prompt : prompts) {
    asked.push_back({.tokens = prompt, .max_tokens = std::min(most_tokens, sequence + 1 - std::ssize(prompt))});
  }
  const cpu::CpuOperatorTable ops;
  Generation generation(ops, weights, DType::f32);
  const std::vector<Completion> completions =
      complete(generation, asked, {most_tokens, {}, vocabulary}, {.log_probabilities = true}, 1);
  std::map<SampleId, MadeSample> made;
  for (std::size_t at = 0; at < ids.size(); ++at) {
    made[ids[at]] = {prompts[at], completions[at].tokens, completions[at].log_probabilities};
  }
  return made;
}

std::string greedy(std::int64_t staleness) {
  return "temperature = 0\nmax_tokens = 9\nstaleness = " + std::to_string(staleness) + "\n";
}
std::string drawn(std::int64_t staleness) {
  return "temperature = 1.0\nmax_tokens = 9\nstaleness = " + std::to_string(staleness) + "\n";
}

TEST_F(OnPolicy,
       a_step_equals_an_off_policy_step_on_the_samples_that_its_weights_make) {  // MK-1, GK-1, WU-1, WU-2, WX-2
  for (const std::uint64_t staleness : {0, 1, 2}) {
    const std::string run_of = std::to_string(staleness);
    const auto lines = greedy(static_cast<std::int64_t>(staleness));
    const auto all = losses(run("all" + run_of, 6, {lines}));
    ASSERT_EQ(all.size(), 6U);
    const fs::path kept = run("kept" + run_of, 5, {lines});
    for (std::uint64_t step = staleness + 2; step <= 6; ++step) {
      const fs::path made = checkpoint(kept, step - 1 - staleness) / "student";
      const auto told = losses(run("told" + run_of + "_" + std::to_string(step), step,
                                   {.generator = "none", .resume = checkpoint(kept, step - 1)},
                                   std::make_shared<Numbers>(made_by(made, step))));
      ASSERT_TRUE(told.contains(static_cast<std::int64_t>(step)));
      EXPECT_EQ(told.at(static_cast<std::int64_t>(step)), all.at(static_cast<std::int64_t>(step)))
          << "staleness " << staleness << ", step " << step;
    }
  }
}

TEST_F(OnPolicy, a_generator_follows_a_student_of_any_layout) {  // WG-1, WX-1
  const std::string all = "replicas = 2\ntensor = 2\npipeline = 2\nzero = true\n", rma = "force_rma = true\n";
  const std::vector<std::pair<std::string, std::string>> layouts{{"tensor = 2\n", ""},
                                                                 {"context = 2\n", ""},
                                                                 {"pipeline = 2\n", rma},
                                                                 {"replicas = 2\n", rma},
                                                                 {"replicas = 2\nzero = true\n", ""},
                                                                 {all, ""},
                                                                 {all, rma}};
  constexpr std::uint64_t last = 4;
  int number = 0;
  for (const auto& [layout, transport] : layouts) {
    const std::string student = layout.starts_with("replicas") ? layout : "replicas = 1\n" + layout;
    const std::string name = std::to_string(number++);
    Settings settings{.generator = greedy(1), .cpu_devices = 10, .student = student, .transport = transport};
    const fs::path out = run(name, last, settings);
    const fs::path made = checkpoint(out, last - 2) / "student";
    settings.resume = checkpoint(out, last - 1);
    EXPECT_EQ(losses(run(name + "_resumed", last, settings)).at(last), losses(out).at(last)) << student;
    settings.generator = "none";
    const auto told = losses(run(name + "_told", last, settings, std::make_shared<Numbers>(made_by(made, last))));
    EXPECT_EQ(told.at(last), losses(out).at(last)) << student << transport;
  }
}

TEST_F(OnPolicy, a_generator_takes_the_adapters_of_a_student) {
  const fs::path base = checkpoint(run("base", 1, {.generator = "none"}), 1) / "student";
  Settings settings{.generator = greedy(1),
                    .student = "replicas = 2\nlora = {rank = 2}\nweights = \"" + base.string() + "\"\n"};
  const fs::path out = run("adapters", 4, settings);
  const fs::path made = checkpoint(out, 2) / "student";
  EXPECT_TRUE(fs::exists(made / "adapter_model.safetensors"));
  settings.resume = checkpoint(out, 3);
  EXPECT_EQ(losses(run("resumed", 4, settings)).at(4), losses(out).at(4));
  settings.generator = "none";
  EXPECT_EQ(losses(run("told", 4, settings, std::make_shared<Numbers>(made_by(made, 4)))).at(4), losses(out).at(4));
}

TEST_F(OnPolicy, losses_do_not_depend_on_slots_replicas_or_the_lead_of_the_coordinator) {  // MK-2
  std::map<std::int64_t, std::map<std::int64_t, std::string>> of_staleness;
  for (const std::int64_t staleness : {0, 1, 2, 3}) {
    const std::string name = std::to_string(staleness) + "_";
    const auto once = losses(run(name + "once", 6, {drawn(staleness)}));
    ASSERT_EQ(once.size(), 6U);
    EXPECT_EQ(losses(run(name + "again", 6, {drawn(staleness)})), once);
    EXPECT_EQ(losses(run(name + "slot", 6, {drawn(staleness) + "slots = 1\n"})), once);
    EXPECT_EQ(losses(run(name + "replicas", 6, {drawn(staleness) + "slots = 2\nreplicas = 2\n"})), once);
    EXPECT_EQ(losses(run(name + "lead", 6, {.generator = drawn(staleness), .train = "ahead = 4\n"})), once);
    for (const auto& [other, losses] : of_staleness) {
      EXPECT_EQ(losses.at(1), once.at(1)) << "both begin with the first weights";
      EXPECT_NE(losses, once) << other << " and " << staleness;
    }
    of_staleness[staleness] = once;
  }
  EXPECT_NE(losses(run("other_draws", 6, {drawn(0) + "top_k = 3\n"})), of_staleness[0]);
}

TEST_F(OnPolicy, a_resumed_run_has_the_losses_of_the_undisturbed_run) {  // WU-3
  for (const std::int64_t staleness : {0, 1, 2, 3}) {
    const std::string name = std::to_string(staleness) + "_";
    const fs::path out = run(name + "whole", 8, {drawn(staleness)});
    const auto whole = losses(out);
    for (std::uint64_t step = 1; step < 8; ++step) {
      const std::string generator = drawn(staleness) + (step % 2 == 0 ? "slots = 1\nreplicas = 2\n" : "");
      const auto rest =
          losses(run(name + std::to_string(step), 8, {.generator = generator, .resume = checkpoint(out, step)}));
      ASSERT_FALSE(rest.empty());
      for (const auto& [at, loss] : rest) EXPECT_EQ(loss, whole.at(at)) << name << "from step " << step;
    }
  }
}

TEST_F(OnPolicy, a_checkpoint_that_lacks_older_weights_is_refused) {
  const fs::path out = run("one", 4, {drawn(1)});
  EXPECT_EQ(refusal(4, {.generator = drawn(3), .resume = checkpoint(out, 3)}),
            checkpoint(out, 3).string() +
                " lacks the weights before step 1, which generator.staleness = 3 needs; it "
                "allows at most 1");
}

TEST_F(OnPolicy, a_policy_gradient_is_repeated_with_any_boundary_and_micro_batch) {
  const Settings settings{.generator = drawn(1),
                          .student = "replicas = 1\nloss = \"policy_gradient\"\nratio_cap = 1.05\n"};
  const fs::path out = run("once", 6, settings);
  const auto once = figures(out);
  ASSERT_EQ(once.size(), 6U);
  EXPECT_EQ(losses(run("again", 6, settings)), losses(out));
  EXPECT_EQ(once.at(1).at("ratio_capped"), 0);
  EXPECT_NEAR(once.at(1).at("ratio_mean").get<double>(), 1, 1e-4) << "step 1 trains the weights that drew its samples";
  EXPECT_GT(std::abs(once.at(4).at("ratio_mean").get<double>() - 1), 1e-3);
  EXPECT_GT(once.at(4).at("ratio_capped").get<double>(), 0);
  const auto expect_near = [&](const std::string& name, const Settings& other, std::int64_t steps, double tolerance) {
    const auto found = figures(run(name, 6, other));
    for (std::int64_t step = 1; step <= steps; ++step) {
      for (const char* figure : {"loss", "grad_norm", "kl", "sampled_nll"}) {
        const double wanted = once.at(step).at(figure).get<double>();
        const double within =
            step <= 2 ? tolerance : 10 * tolerance;  // AdamW enlarges the roundings of the steps before
        EXPECT_NEAR(found.at(step).at(figure).get<double>(), wanted, within * std::max(1.0, std::abs(wanted)))
            << name << ", step " << step << ", " << figure;
      }
    }
  };
  for (const char* boundary : {"logits", "sampled"}) {
    Settings other = settings;
    other.boundary = boundary;
    expect_near(boundary, other, 6, 1e-5);
  }
  for (const std::int64_t micro_batch : {1, 3, 4}) {
    Settings other = settings;
    other.micro_batch = micro_batch;
    expect_near("micro_batch_" + std::to_string(micro_batch), other, 2, 1e-6);  // steps of the first weights' samples
  }
}

TEST_F(OnPolicy, a_share_of_the_samples_is_made_from_a_step_on) {
  const auto read = losses(run("read", 4, {drawn(0) + "on_policy = 0\n"}));
  const auto late = losses(run("late", 4, {drawn(0) + "from_step = 3\n"}));
  const auto half = losses(run("half", 4, {drawn(0) + "on_policy = 0.5\n"}));
  const auto all = losses(run("all", 4, {drawn(0)}));
  for (const std::int64_t step : {1, 2}) EXPECT_EQ(late.at(step), read.at(step));
  EXPECT_NE(late.at(3), read.at(3));
  EXPECT_NE(half.at(1), read.at(1));
  EXPECT_NE(half.at(1), all.at(1));
}

}  // namespace
}  // namespace maestro
