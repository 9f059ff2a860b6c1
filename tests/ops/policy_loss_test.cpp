// SPDX-License-Identifier: Apache-2.0
// The policy gradient of tokens that the student drew, against PyTorch's results in double precision and against the
// divergence that it estimates. f32 logits of up to 75 tokens: 1e-6, relative to the largest value, or to the sum of a
// figure's terms without their signs.
#include <cmath>

#include "runtime/core/random.hpp"
#include "tests/ops/parallel_loss.hpp"
#include "tests/ops/recorded_cases.hpp"

namespace maestro::testing {
namespace {

constexpr double tolerance = 1e-6;

/// Returns a recorded problem with the teacher of this number. Rows that are not `made` have no target.
LossProblem recorded_problem(const Recorded& recorded, const nlohmann::json& note, std::size_t teacher, bool made) {
  LossProblem p;
  p.rows = 11;
  p.width = 12;
  p.teacher_width = 10;
  p.vocabulary = 75;
  p.teacher_vocabulary = 70;
  p.shared = 67;
  p.hidden = recorded.at("hidden");
  p.head = recorded.at("head");
  p.teacher_hidden = recorded.at("teacher_hidden" + std::to_string(teacher));
  p.teacher_head = recorded.at("teacher_head");
  p.targets = recorded.at("targets");
  p.temperature = note["temperature"];
  p.scale = note["scale"].get<double>() * note["shares"][teacher].get<double>();
  p.derive_boundaries();
  if (made) p = with_terms(p, {TeacherOutput::hidden, Divergence::policy_gradient});
  if (!made) p.divergence = Divergence::reverse_kl;
  p.alpha = made ? note["alpha"] : note["read_alpha"];
  p.ratio_cap = made ? note["ratio_cap"].get<double>() : 0;
  p.sampled = recorded.at("sampled");
  for (std::size_t row = 0; row < p.targets.size() && note["mixed"]; ++row) {
    if ((recorded.at("made")[row] != 0) != made) p.targets[row] = -1;
  }
  return p;
}

/// Returns the answer of one rank, or of several with their parts put together.
Answer answer_of(const LossProblem& problem, std::int64_t ranks) {
  const ParallelLoss loss(problem, {});
  if (ranks == 1) return loss.whole();
  Answer all;
  all.dhidden.resize(problem.hidden.size());
  for (const Answer& part : loss.over(ranks)) {
    all.sums = part.sums;
    for (std::size_t i = 0; i < all.dhidden.size(); ++i) all.dhidden[i] += part.dhidden[i];
    all.dhead.insert(all.dhead.end(), part.dhead.begin(), part.dhead.end());
  }
  return all;
}

void add(Values& sum, const Values& more) {
  sum.resize(more.size());
  for (std::size_t i = 0; i < more.size(); ++i) sum[i] += more[i];
}

void expect_close(double got, double wanted, double terms, const char* what) {
  EXPECT_LE(std::abs(got - wanted), tolerance * std::max(1.0, terms)) << what << " " << got << ", wanted " << wanted;
}

TEST(PolicyLoss, agrees_with_pytorch) {
  const Recorded recorded = read_recorded("policy_losses.safetensors");
  ASSERT_EQ(recorded.cases.size(), 10U);
  for (const auto& note : recorded.cases) {
    const auto name = note["name"].get<std::string>();
    const Values& wanted = recorded.at(name + ".sums");
    for (const TeacherOutput boundary : {TeacherOutput::hidden, TeacherOutput::logits, TeacherOutput::sampled}) {
      for (const std::int64_t ranks : {1, 2}) {
        SCOPED_TRACE(note.dump() + " boundary " + std::to_string(static_cast<int>(boundary)) + " ranks " +
                     std::to_string(ranks));
        double kl = 0, total = 0, policy = 0;
        Values dhidden, dhead;
        for (std::size_t teacher = 0; teacher < note["shares"].size(); ++teacher) {
          LossProblem problem = recorded_problem(recorded, note, teacher, true);
          problem.boundary = boundary;
          const Answer got = answer_of(problem, ranks);
          const double share = note["shares"][teacher];
          kl += share * got.sums.kl;
          total += share * got.sums.total;
          policy += share * got.sums.policy;
          add(dhidden, got.dhidden);
          add(dhead, got.dhead);
          expect_close(got.sums.ce, wanted[0], wanted[0], "ce");
          if (problem.ratio_cap > 0) expect_close(got.sums.ratio, wanted[4], wanted[4], "ratio");
          EXPECT_EQ(got.sums.capped, wanted[5]);
        }
        expect_close(kl, wanted[1], wanted[1], "kl");
        expect_close(total, wanted[2], wanted[6], "total");
        expect_close(policy, wanted[3], wanted[6], "policy");
        if (note["mixed"]) {
          const Answer read = answer_of(recorded_problem(recorded, note, 0, false), ranks);
          add(dhidden, read.dhidden);
          add(dhead, read.dhead);
        }
        EXPECT_LT(worst_error(dhidden, recorded.at(name + ".dhidden")), tolerance);
        EXPECT_LT(worst_error(dhead, recorded.at(name + ".dhead")), tolerance);
      }
    }
  }
}

/// Tokens that are drawn with known probabilities from a fixed state, a row each. The output layer is the identity, so
/// that the gradient of a row's hidden state is the gradient of its logits.
class DrawnTokens : public ::testing::Test {
 protected:
  static constexpr std::int64_t tokens = 9, draws = 20'000;
  static constexpr double temperature = 1.5;

  static Values softmax(const Values& logits) {
    Values p;
    double sum = 0;
    for (const double logit : logits) p.push_back(std::exp(logit / temperature));
    for (const double each : p) sum += each;
    for (double& each : p) each /= sum;
    return p;
  }
  static LossProblem state() {
    LossProblem p;
    p.rows = 1;
    p.width = p.teacher_width = p.vocabulary = p.teacher_vocabulary = p.shared = tokens;
    p.temperature = temperature;
    p.alpha = 1;
    std::mt19937 generator(3);
    p.hidden = exact_normals(generator, tokens);
    p.teacher_hidden = exact_normals(generator, tokens);
    p.head.assign(tokens * tokens, 0);
    for (std::size_t i = 0; i < tokens; ++i) p.head[i * (tokens + 1)] = 1;
    p.teacher_head = p.head;
    p.targets = {0};
    p.derive_boundaries();
    return p;
  }
  /// Returns the state in each of `draws` rows, whose targets are drawn with the probabilities mu.
  static LossProblem drawn(const LossProblem& one, const Values& mu) {
    LossProblem p = one;
    p.divergence = Divergence::policy_gradient;
    p.rows = draws;
    p.hidden.clear();
    p.teacher_hidden.clear();
    p.targets.clear();
    Random random(5);
    for (std::int64_t row = 0; row < draws; ++row) {
      p.hidden.insert(p.hidden.end(), one.hidden.begin(), one.hidden.end());
      p.teacher_hidden.insert(p.teacher_hidden.end(), one.teacher_hidden.begin(), one.teacher_hidden.end());
      double left = random.uniform();
      std::size_t token = 0;
      while (token + 1 < mu.size() && (left -= mu[token]) >= 0) ++token;
      p.targets.push_back(static_cast<double>(token));
      p.sampled.push_back(std::log(mu[token]));
    }
    p.derive_boundaries();
    return p;
  }
  /// Returns the mean of t^2 over the coordinates, t being the difference of the rows' mean from `wanted` in standard
  /// errors. Near 1 if the rows estimate `wanted`.
  static double mean_square_t(const Values& rows, const Values& wanted) {
    double sum = 0;
    for (std::size_t i = 0; i < tokens; ++i) {
      double mean = 0, squares = 0;
      for (std::size_t row = 0; row < draws; ++row) {
        mean += rows[row * tokens + i];
        squares += rows[row * tokens + i] * rows[row * tokens + i];
      }
      mean /= draws;
      const double variance = squares / draws - mean * mean;
      sum += (mean - wanted[i]) * (mean - wanted[i]) / (variance / draws);
    }
    return sum / tokens;
  }
  /// Bound of that mean: its expectation is 1, and its deviation at most sqrt(2), if all coordinates move as one.
  static constexpr double most_square_t = 1 + 3 * 1.4142;
};

TEST_F(DrawnTokens, estimate_the_reverse_divergence_and_its_gradient) {
  const LossProblem one = state();
  const Values q = softmax(one.hidden), p = softmax(one.teacher_hidden);
  LossProblem full = one;
  full.divergence = Divergence::reverse_kl;
  full.scale = 1 / (temperature * temperature);  // without the factor T^2
  const Answer wanted = answer_of(full, 1);
  const LossProblem problem = drawn(one, q);
  const Answer got = answer_of(problem, 1);

  double mean = 0, squares = 0;
  Values without_constant;  // the gradient of A log q(y) itself, whose factor A is no constant then
  for (std::int64_t row = 0; row < draws; ++row) {
    const auto token = static_cast<std::size_t>(problem.targets[static_cast<std::size_t>(row)]);
    const double kl = std::log(q[token] / p[token]);
    mean += kl / draws;
    squares += kl * kl / draws;
    for (std::size_t i = 0; i < tokens; ++i) {
      const double slope = ((i == token ? 1 : 0) - q[i]) / temperature;
      without_constant.push_back((kl + std::log(q[token])) * slope);
    }
  }
  const double error = std::sqrt((squares - mean * mean) / draws);
  EXPECT_NEAR(got.sums.kl / draws, mean, 1e-6);
  EXPECT_NEAR(got.sums.kl / draws, wanted.sums.kl, 3 * error);
  EXPECT_LT(error, 0.03 * wanted.sums.kl) << "a sharp test";
  EXPECT_LT(mean_square_t(got.dhidden, wanted.dhidden), most_square_t);
  EXPECT_GT(mean_square_t(without_constant, wanted.dhidden), 10 * most_square_t);
}

TEST_F(DrawnTokens, of_another_distribution_estimate_the_gradient_by_the_ratio) {
  const LossProblem one = state();
  Values mu = softmax(one.hidden);
  double sum = 0;
  for (std::size_t i = 0; i < tokens; ++i) sum += mu[i] *= 0.5 + 0.2 * static_cast<double>(i);
  for (double& each : mu) each /= sum;
  LossProblem full = one;
  full.divergence = Divergence::reverse_kl;
  full.scale = 1 / (temperature * temperature);
  const Answer wanted = answer_of(full, 1);
  LossProblem problem = drawn(one, mu);
  EXPECT_GT(mean_square_t(answer_of(problem, 1).dhidden, wanted.dhidden), 20 * most_square_t) << "without the ratio";
  problem.ratio_cap = 100;
  const Answer got = answer_of(problem, 1);
  EXPECT_LT(mean_square_t(got.dhidden, wanted.dhidden), most_square_t);
  EXPECT_NEAR(got.sums.ratio / draws, 1, 0.02);
  EXPECT_EQ(got.sums.capped, 0);
}

}  // namespace
}  // namespace maestro::testing
