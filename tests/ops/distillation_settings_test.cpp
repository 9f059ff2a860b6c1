// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/distillation_settings.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "runtime/core/result.hpp"

namespace maestro {
namespace {

DistillationSettings valid_settings() {
  DistillationSettings settings;
  settings.student_vocabulary = 50304;
  settings.teacher_vocabulary = 50257;
  settings.shared_vocabulary = 50257;
  settings.top_k = 64;
  return settings;
}

/// Returns the message of the JobError, or "accepted".
std::string verdict(const DistillationSettings& settings) {
  try {
    validate(settings);
  } catch (const JobError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(DistillationSettings, sound_ones_are_accepted) {
  DistillationSettings settings = valid_settings();
  EXPECT_EQ(verdict(settings), "accepted");
  settings.boundary = TeacherOutput::top_k;
  settings.divergence = Divergence::js;
  EXPECT_EQ(verdict(settings), "accepted");
  settings.divergence = Divergence::forward_kl;
  settings.beta = 7;  // used by js only
  EXPECT_EQ(verdict(settings), "accepted");
  settings.boundary = TeacherOutput::top_k_rest;
  settings.divergence = Divergence::reverse_kl;  // finite with the rest
  EXPECT_EQ(verdict(settings), "accepted");
  settings.divergence = Divergence::policy_gradient;
  settings.ratio_cap = 2;
  for (const TeacherOutput boundary : {TeacherOutput::hidden, TeacherOutput::logits, TeacherOutput::sampled}) {
    settings.boundary = boundary;
    EXPECT_EQ(verdict(settings), "accepted");
  }
}

TEST(DistillationSettings, each_unsound_one_is_named_with_a_way_out) {
  const auto with = [](auto change) {
    DistillationSettings settings = valid_settings();
    change(settings);
    return verdict(settings);
  };
  using S = DistillationSettings;
  EXPECT_NE(with([](S& s) { s.temperature = 0; }).find("temperature = 0 must be greater than 0"), std::string::npos);
  EXPECT_NE(with([](S& s) { s.temperature = NAN; }).find("temperature = nan"), std::string::npos);
  const auto policy = [](S& s) { s.divergence = Divergence::policy_gradient; };
  for (const TeacherOutput boundary : {TeacherOutput::top_k, TeacherOutput::top_k_rest}) {
    EXPECT_NE(with([&](S& s) { policy(s), s.boundary = boundary; }).find("\"hidden\", \"logits\" or \"sampled\""),
              std::string::npos);
  }
  EXPECT_NE(with([](S& s) { s.boundary = TeacherOutput::sampled; }).find("use loss = \"policy_gradient\""),
            std::string::npos);
  EXPECT_NE(with([&](S& s) { policy(s), s.ratio_cap = -1; }).find("ratio_cap = -1"), std::string::npos);
  EXPECT_NE(with([&](S& s) { policy(s), s.ratio_cap = NAN; }).find("ratio_cap = nan"), std::string::npos);
  EXPECT_NE(with([](S& s) { s.alpha = 1.5; }).find("alpha = 1.5 must lie in [0, 1]"), std::string::npos);
  EXPECT_NE(with([](S& s) { s.divergence = Divergence::js, s.beta = 0; }).find("divergence = \"forward_kl\""),
            std::string::npos);
  EXPECT_NE(with([](S& s) { s.divergence = Divergence::js, s.beta = 1; }).find("divergence = \"reverse_kl\""),
            std::string::npos);
  EXPECT_NE(with([](S& s) {
              s.divergence = Divergence::reverse_kl, s.boundary = TeacherOutput::top_k;
            }).find("infinite with boundary = \"top_k\""),
            std::string::npos);
  EXPECT_NE(with([](S& s) { s.shared_vocabulary = 50300; }).find("use 1 to 50257"), std::string::npos);
  EXPECT_NE(with([](S& s) { s.boundary = TeacherOutput::top_k, s.top_k = 0; }).find("top_k = 0 must lie between 1"),
            std::string::npos);
}

}  // namespace
}  // namespace maestro
