// SPDX-License-Identifier: Apache-2.0
// A student with several teachers: compared with students of each teacher, and with sums in double precision.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "sections/decoder/decoder_trunk.hpp"
#include "sections/distill/distilled_decoder.hpp"
#include "tests/sections/parallel_bench.hpp"

namespace maestro::testing {
namespace {

DecoderConfig shape(std::int64_t width, double init_std) {
  DecoderConfig config;
  config.layers = 1;
  config.width = width;
  config.heads = 4;
  config.ffn = 24;
  config.vocabulary = vocabulary;
  config.positions = 12;
  config.init_std = init_std;
  return config;
}

TeacherModel teacher(const std::string& name, std::int64_t width, TeacherOutput boundary, double weight) {
  TeacherModel model;
  model.section = name;
  model.decoder = shape(width, 0.3);  // so that the teacher prefers some tokens
  model.boundary = boundary;
  model.top_k = 6;
  model.weight = weight;
  return model;
}

/// Returns teachers with three boundaries and weights, and different widths.
DistilledDecoder::Options options() {
  DistilledDecoder::Options options;
  options.decoder = shape(16, 0.1);
  options.temperature = 1.5;
  options.alpha = 0.7;
  options.data = {12, vocabulary, "bytes"};
  options.teachers = {teacher("math", 24, TeacherOutput::hidden, 2), teacher("code", 32, TeacherOutput::logits, 1),
                      teacher("facts", 16, TeacherOutput::top_k_rest, 0.5)};
  return options;
}

DistilledDecoder::Options only(DistilledDecoder::Options options, std::size_t number) {
  options.teachers = {options.teachers[number]};
  return options;
}

Batch batch_of(const Batch& all, const std::vector<bool>& taken) {
  std::vector<std::int32_t> ids, targets, offsets{0};
  for (std::size_t sample = 0; sample < taken.size(); ++sample) {
    if (!taken[sample]) continue;
    const auto first = all.offsets[sample], end = all.offsets[sample + 1];
    ids.insert(ids.end(), all.tokens.begin() + first, all.tokens.begin() + end);
    targets.insert(targets.end(), all.targets.begin() + first, all.targets.begin() + end);
    offsets.push_back(static_cast<std::int32_t>(ids.size()));
  }
  return {ids, targets, offsets};
}

/// Outputs that a teacher sends for the samples that it teaches.
class Lecture {
 public:
  Lecture(Bench& bench, const DistilledDecoder::Options& options, std::size_t number, const Batch& all,
          std::vector<bool> taken)
      : model_(options.teachers[number]),
        taken_(std::move(taken)),
        batch_(batch_of(all, taken_)),
        trunk_(bench.context(model_.section, false), {model_.decoder, model_.boundary, model_.top_k, options.data}),
        pass_(bench, trunk_, batch_, Pass::evaluate, model_.precision) {
    if (!batch_.tokens.empty()) pass_.forward();
  }
  void connect(MicroBatch& pass, const std::string& prefix) const {
    for (const Feed& feed : feeds(prefix)) {
      pass.connect(feed.port, feed.whole);
      pass.take(feed.port, feed.taken);
    }
  }
  [[nodiscard]] std::vector<Feed> feeds(const std::string& prefix) const {
    std::vector<Feed> feeds;
    if (batch_.tokens.empty()) return feeds;
    for (const Port& port : trunk_.ports().outputs) {
      feeds.push_back({prefix + "_" + port.name, pass_.output(port.name), false, taken_});
    }
    return feeds;
  }
  [[nodiscard]] const std::string& name() const { return model_.section; }

 private:
  TeacherModel model_;
  std::vector<bool> taken_;
  Batch batch_;
  DecoderTrunk trunk_;
  MicroBatch pass_;
};

using Taken = std::vector<std::vector<bool>>;  // whether taught, by teacher and sample
const Taken everything(3, std::vector<bool>(4, true));
const Taken by_source{{true, true, false, false}, {true, false, true, false}, {true, false, false, true}};

class SeveralTeachers : public ::testing::Test {
 protected:
  [[nodiscard]] Connect lectures(const Taken& taken) {
    std::vector<std::shared_ptr<Lecture>> made;  // shared with copies of the result
    for (std::size_t number = 0; number < settings.teachers.size(); ++number) {
      made.push_back(std::make_shared<Lecture>(bench, settings, number, batch, taken[number]));
    }
    return [made](MicroBatch& pass) {
      for (const auto& lecture : made) lecture->connect(pass, lecture->name());
    };
  }
  /// The student's loss and gradient with a single teacher, for one sample, summed over its targets.
  struct Alone {
    LossSums sums;
    std::vector<double> gradient;
  };
  [[nodiscard]] Alone alone(std::size_t number, const std::vector<bool>& sample) {
    DistilledDecoder student(bench.context("student", true), only(settings, number));
    randomise(student, 11);
    const Batch part = batch_of(batch, sample);
    const Lecture lecture(bench, settings, number, batch, sample);
    std::ranges::fill(student.parameters().gradients(), 0.0F);
    MicroBatch pass(bench, student, part);
    for (const Feed& feed : lecture.feeds("teacher")) pass.connect(feed.port, feed.whole);
    pass.forward().backward();
    Alone found;
    found.sums.total = pass.metric_sum("loss").sum;
    found.sums.ce = pass.metric_sum("ce").sum;
    found.sums.kl = pass.metric_sum("kl").sum;
    const double scale = part.target_tokens() / batch.target_tokens();
    for (const float value : student.parameters().gradients()) found.gradient.push_back(scale * value);
    return found;
  }

  Bench bench;
  Batch batch = Batch::random(5, {9, 1, 12, 4}, vocabulary);
  DistilledDecoder::Options settings = options();
};

TEST_F(SeveralTeachers, losses_and_gradients_are_the_weighted_mean_of_those_of_each_alone) {
  const double shares[] = {2 / 3.5, 1 / 3.5, 0.5 / 3.5};
  for (const Divergence divergence : {Divergence::forward_kl, Divergence::reverse_kl, Divergence::js}) {
    settings.divergence = divergence;
    DistilledDecoder student(bench.context("student", true), settings);
    randomise(student, 11);
    const Connect connect = lectures(everything);
    std::ranges::fill(student.parameters().gradients(), 0.0F);
    MicroBatch pass(bench, student, batch);
    connect(pass);
    pass.forward().backward();
    double loss = 0, kl = 0;
    std::vector<double> gradient(student.parameters().gradients().size());
    for (std::size_t number = 0; number < 3; ++number) {
      const Alone single = alone(number, everything[0]);
      loss += shares[number] * single.sums.total;
      kl += shares[number] * single.sums.kl;
      EXPECT_EQ(pass.metric_sum("kl_" + settings.teachers[number].section).sum, single.sums.kl) << "bit for bit";
      for (std::size_t i = 0; i < gradient.size(); ++i) gradient[i] += shares[number] * single.gradient[i];
    }
    EXPECT_DOUBLE_EQ(pass.metric_sum("loss").sum, loss);
    EXPECT_DOUBLE_EQ(pass.metric_sum("kl").sum, kl);
    EXPECT_EQ(pass.metric_sum("kl").weight, batch.target_tokens());
    EXPECT_THROW((void)pass.metric("teacher_ce"), std::out_of_range) << "one of them does not know it";
    EXPECT_GT(pass.metric("teacher_ce_math"), 0);
    const std::span<const float> found = student.parameters().gradients();
    for (std::size_t i = 0; i < gradient.size(); ++i) ASSERT_NEAR(found[i], gradient[i], 2e-6) << i;
  }
}

TEST_F(SeveralTeachers, each_sample_learns_from_its_own_teachers) {
  DistilledDecoder student(bench.context("student", true), settings);
  randomise(student, 11);
  const Connect connect = lectures(by_source);
  std::ranges::fill(student.parameters().gradients(), 0.0F);
  MicroBatch pass(bench, student, batch);
  connect(pass);
  pass.forward().backward();
  LossSums expected;
  std::vector<double> gradient(student.parameters().gradients().size());
  for (std::size_t sample = 0; sample < 4; ++sample) {
    double weights = 0;
    for (std::size_t number = 0; number < 3; ++number) {
      weights += by_source[number][sample] ? settings.teachers[number].weight : 0;
    }
    std::vector<bool> chosen(4, false);
    chosen[sample] = true;
    for (std::size_t number = 0; number < 3; ++number) {
      if (!by_source[number][sample]) continue;
      const double share = settings.teachers[number].weight / weights;
      const Alone single = alone(number, chosen);
      expected.total += share * single.sums.total;
      expected.kl += share * single.sums.kl;
      for (std::size_t i = 0; i < gradient.size(); ++i) gradient[i] += share * single.gradient[i];
    }
  }
  EXPECT_NEAR(pass.metric_sum("loss").sum, expected.total, 1e-5 * expected.total);
  EXPECT_NEAR(pass.metric_sum("kl").sum, expected.kl, 1e-5 * expected.kl);
  EXPECT_EQ(pass.metric_sum("loss").weight, batch.target_tokens());
  const std::span<const float> found = student.parameters().gradients();
  for (std::size_t i = 0; i < gradient.size(); ++i) ASSERT_NEAR(found[i], gradient[i], 2e-6) << i;
}

TEST_F(SeveralTeachers, gradients_match_differences) {
  for (const Taken& taken : {everything, by_source}) {
    DistilledDecoder student(bench.context("student", true), settings);
    randomise(student, 11);
    expect_gradients_match_differences(bench, student, batch, lectures(taken));
  }
}

/// Logits (M, vocabulary) of a decoder with the values of section `name`.
class Logits {
 public:
  Logits(Bench& bench, const std::string& name, const DecoderConfig& config, const Batch& batch)
      : trunk_(bench.context(name, false), {config, TeacherOutput::logits, 1, {}}),
        pass_(bench, trunk_, batch, Pass::evaluate) {
    pass_.forward();
  }
  /// Returns the logarithms of softmax(logits / T) for a row.
  [[nodiscard]] std::vector<double> log_softmax(std::int64_t row, double temperature) const {
    std::vector<double> logs;
    double sum = 0;
    for (const float value : pass_.output("logits").row_slice(row, 1).span<float>()) {
      logs.push_back(double{value} / temperature);
    }
    const double most = *std::ranges::max_element(logs);
    for (const double value : logs) sum += std::exp(value - most);
    for (double& value : logs) value -= most + std::log(sum);
    return logs;
  }

 private:
  DecoderTrunk trunk_;
  MicroBatch pass_;
};

TEST_F(SeveralTeachers, the_loss_is_that_of_the_formula_in_double_precision) {
  settings.teachers.pop_back();
  const Taken taken{{true, true, false, true}, {true, false, true, true}};
  const DistilledDecoder::Options& all = settings;
  DistilledDecoder student(bench.context("student", false), settings);
  const Logits own(bench, "student", all.decoder, batch);
  const Logits teachers[] = {{bench, "math", all.teachers[0].decoder, batch},
                             {bench, "code", all.teachers[1].decoder, batch}};
  const double t = all.temperature;
  double expected = 0;
  for (std::size_t sample = 0; sample < 4; ++sample) {
    for (std::int32_t row = batch.offsets[sample]; row < batch.offsets[sample + 1]; ++row) {
      const std::int32_t target = batch.targets[static_cast<std::size_t>(row)];
      if (target < 0) continue;
      const std::vector<double> q = own.log_softmax(row, t);
      double divergence = 0, weights = 0;
      for (std::size_t number = 0; number < 2; ++number) {
        if (!taken[number][sample]) continue;
        const std::vector<double> p = teachers[number].log_softmax(row, t);
        double kl = 0;
        for (std::size_t i = 0; i < p.size(); ++i) kl += std::exp(p[i]) * (p[i] - q[i]);
        divergence += all.teachers[number].weight * kl;
        weights += all.teachers[number].weight;
      }
      expected += all.alpha * t * t * divergence / weights;
      expected -= (1 - all.alpha) * own.log_softmax(row, 1)[static_cast<std::size_t>(target)];
    }
  }
  MicroBatch pass(bench, student, batch, Pass::evaluate);
  const Connect connect = lectures(taken);
  connect(pass);
  EXPECT_NEAR(pass.forward().metric_sum("loss").sum, expected, 1e-5 * expected);
}

TEST_F(SeveralTeachers, a_row_without_a_teacher_has_its_share_of_the_cross_entropy) {
  const std::vector<bool> none(4, false);
  DistilledDecoder student(bench.context("student", false), settings);
  MicroBatch pass(bench, student, batch, Pass::evaluate);
  const Connect connect = lectures({none, none, none});
  connect(pass);
  pass.forward();
  EXPECT_DOUBLE_EQ(pass.metric("loss"), 0.3 * pass.metric("ce"));
  EXPECT_EQ(pass.metric("kl"), 0);
}

TEST_F(SeveralTeachers, losses_and_gradients_over_ranks_are_those_of_one_rank) {
  settings.decoder.heads = 8;
  settings.decoder.width = 32;
  settings.teachers[1].boundary = TeacherOutput::top_k;
  for (const Layout layout : {Layout{2, 1}, Layout{1, 2}, Layout{2, 2}, Layout{1, 4}}) {
    SCOPED_TRACE(std::to_string(layout.tensor) + "x" + std::to_string(layout.context));
    const auto build = [&](const SectionContext& context) {
      return std::make_unique<DistilledDecoder>(context, settings);
    };
    ParallelBench single({}, bench.context("student", true), build);
    ParallelBench ranks(layout, bench.context("student", true), build);
    randomise(single.section(0), 11);
    ranks.load(single.whole());
    for (const Taken& taken : {everything, by_source}) {
      std::vector<Feed> feeds;
      std::vector<std::unique_ptr<Lecture>> lectures;
      for (std::size_t number = 0; number < 3; ++number) {
        lectures.push_back(std::make_unique<Lecture>(bench, settings, number, batch, taken[number]));
        for (Feed& feed : lectures.back()->feeds(lectures.back()->name())) feeds.push_back(std::move(feed));
      }
      const ParallelPass expected = single.run(batch, Pass::train, feeds);
      const ParallelPass found = ranks.run(batch, Pass::train, feeds);
      EXPECT_EQ(found.metrics.size(), expected.metrics.size());
      for (const auto& [name, sum, weight] : expected.metrics) {
        EXPECT_NEAR(found.metric(name).sum, sum, 1e-6 * std::abs(sum)) << name;
        EXPECT_EQ(found.metric(name).weight, weight) << name;
      }
      expect_close(ranks.whole(ParameterBuffer::gradients), single.whole(ParameterBuffer::gradients), 1e-5);
    }
  }
}

TEST_F(SeveralTeachers, have_ports_by_their_names) {
  const DistilledDecoder student(bench.context("student", true), settings);
  std::vector<std::string> names;
  for (const Port& port : student.ports().inputs) {
    names.push_back(port.name);
    EXPECT_EQ(port.chosen, port.name != "tokens" && port.name != "targets") << port.name;
  }
  EXPECT_EQ(names, (std::vector<std::string>{"tokens", "targets", "math_hidden", "code_logits", "facts_top_values",
                                             "facts_top_indices", "facts_rest"}));
}

TEST_F(SeveralTeachers, logits_over_context_ranks_are_refused_by_name) {
  SectionContext context = bench.context("student", true);
  context.meta = true;
  context.parallel.layout.context = 2;
  try {
    const DistilledDecoder student(context, settings);
    FAIL() << "not refused";
  } catch (const JobError& error) {
    EXPECT_NE(std::string(error.what()).find("student.context = 2: of several teachers, code has boundary"),
              std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace maestro::testing
