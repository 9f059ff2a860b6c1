// SPDX-License-Identifier: Apache-2.0
#include "sections/distill/distilled_decoder.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "runtime/model/hf_config.hpp"
#include "sections/decoder/decoder_lm.hpp"
#include "sections/decoder/decoder_trunk.hpp"
#include "sections/optimizer.hpp"
#include "sections/state_io.hpp"
#include "tests/job/job_error.hpp"
#include "tests/sections/section_bench.hpp"

namespace maestro::testing {
namespace {

DecoderConfig student_shape() {
  DecoderConfig config;
  config.layers = 1;
  config.width = 16;
  config.heads = 2;
  config.ffn = 24;
  config.vocabulary = vocabulary;
  config.positions = 12;
  return config;
}

DecoderConfig teacher_shape(bool tied = false) {
  DecoderConfig config = student_shape();
  config.family = DecoderFamily::llama;
  config.width = 24;
  config.heads = 4;
  config.kv_heads = 2;
  config.tied = tied;
  config.init_std = 0.3;  // so that the teacher prefers some tokens
  return config;
}

DistilledDecoder::Options options(TeacherOutput boundary, Divergence divergence) {
  DistilledDecoder::Options options;
  options.decoder = student_shape();
  options.divergence = divergence;
  options.teachers[0].boundary = boundary;
  options.temperature = 1.5;
  options.alpha = 0.7;
  options.beta = 0.3;
  options.teachers[0].top_k = 6;
  options.teachers[0].decoder = teacher_shape();
  options.data = {12, vocabulary, "bytes"};
  return options;
}

/// A teacher's outputs for a batch, as the student's inputs would receive them.
class Teacher {
 public:
  Teacher(Bench& bench, const DistilledDecoder::Options& student, const Batch& batch)
      : trunk_(bench.context(student.teachers[0].section, false),
               {student.teachers[0].decoder, student.teachers[0].boundary, student.teachers[0].top_k, student.data}),
        pass_(bench, trunk_, batch, Pass::evaluate, student.teachers[0].precision) {
    if (!student.teachers[0].weights.empty()) load_weights(trunk_, student.teachers[0].weights).or_throw();
    pass_.forward();
  }
  [[nodiscard]] Connect connect() const {
    return [this](MicroBatch& pass) {
      for (const Port& port : trunk_.ports().outputs) pass.connect("teacher_" + port.name, pass_.output(port.name));
    };
  }

 private:
  DecoderTrunk trunk_;
  MicroBatch pass_;
};

class DistillationCases : public ::testing::TestWithParam<std::pair<TeacherOutput, Divergence>> {
 protected:
  Bench bench;
  Batch batch = Batch::random(5, {9, 1, 12}, vocabulary);
  DistilledDecoder::Options settings = options(GetParam().first, GetParam().second);
};

TEST_P(DistillationCases, gradients_match_differences) {
  DistilledDecoder student(bench.context("student", true), settings);
  randomise(student, 11);
  const Teacher teacher(bench, settings, batch);
  expect_gradients_match_differences(bench, student, batch, teacher.connect());
}

TEST_P(DistillationCases, the_loss_falls_when_trained) {
  for (const double alpha : {0.7, 1.0}) {  // 1: only the teacher counts, so its divergence must fall, too
    settings.alpha = alpha;
    DistilledDecoder student(bench.context("student", true), settings);
    const Teacher teacher(bench, settings, batch);
    OptimizerConfig config;
    config.lr = 1e-2;
    const AdamWOptimizer optimizer(config, 40);
    const double before = evaluate(bench, student, batch, teacher.connect());
    for (std::int64_t step = 1; step <= 40; ++step) {
      differentiate(bench, student, batch, teacher.connect());
      ASSERT_TRUE(clipped_step(optimizer, bench, student, step).ok());
    }
    EXPECT_LT(evaluate(bench, student, batch, teacher.connect()), 0.6 * before) << alpha;
  }
}

TEST_P(DistillationCases, the_ports_match_the_teachers) {
  const DistilledDecoder student(bench.context("student", true), settings);
  const DecoderTrunk teacher(
      bench.context("teacher", false),
      {settings.teachers[0].decoder, settings.teachers[0].boundary, settings.teachers[0].top_k, {}});
  const auto inputs = student.ports().inputs;
  const auto outputs = teacher.ports().outputs;
  ASSERT_EQ(inputs.size(), 2 + outputs.size());
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    EXPECT_EQ(inputs[2 + i].name, "teacher_" + outputs[i].name);
    EXPECT_EQ(inputs[2 + i].dtype, outputs[i].dtype);
    EXPECT_EQ(inputs[2 + i].columns, outputs[i].columns);
    EXPECT_FALSE(inputs[2 + i].differentiable);
  }
}

std::string case_name(const ::testing::TestParamInfo<std::pair<TeacherOutput, Divergence>>& test) {
  const char* boundaries[] = {"hidden", "logits", "top_k", "top_k_rest"};
  const char* divergences[] = {"forward_kl", "reverse_kl", "js"};
  return std::string(boundaries[static_cast<int>(test.param.first)]) + "_" +
         divergences[static_cast<int>(test.param.second)];
}

INSTANTIATE_TEST_SUITE_P(cases, DistillationCases,
                         ::testing::Values(std::pair{TeacherOutput::hidden, Divergence::forward_kl},
                                           std::pair{TeacherOutput::hidden, Divergence::reverse_kl},
                                           std::pair{TeacherOutput::hidden, Divergence::js},
                                           std::pair{TeacherOutput::logits, Divergence::forward_kl},
                                           std::pair{TeacherOutput::logits, Divergence::reverse_kl},
                                           std::pair{TeacherOutput::logits, Divergence::js},
                                           std::pair{TeacherOutput::top_k, Divergence::forward_kl},
                                           std::pair{TeacherOutput::top_k, Divergence::js},
                                           std::pair{TeacherOutput::top_k_rest, Divergence::forward_kl},
                                           std::pair{TeacherOutput::top_k_rest, Divergence::reverse_kl},
                                           std::pair{TeacherOutput::top_k_rest, Divergence::js}),
                         case_name);

TEST(DistilledDecoder, all_boundaries_carry_the_same_teacher) {  // TH-1
  Bench bench;
  const Batch batch = Batch::random(5, {9, 1, 12}, vocabulary);
  for (const bool tied : {true, false}) {
    double kl[4], teacher_ce[2];
    for (const TeacherOutput boundary :
         {TeacherOutput::hidden, TeacherOutput::logits, TeacherOutput::top_k, TeacherOutput::top_k_rest}) {
      auto settings = options(boundary, Divergence::forward_kl);
      settings.teachers[0].decoder = teacher_shape(tied);
      settings.teachers[0].top_k = vocabulary;  // so top-k leaves nothing out
      DistilledDecoder student(bench.context("student", false), settings);
      const Teacher teacher(bench, settings, batch);
      kl[static_cast<int>(boundary)] = evaluate(bench, student, batch, teacher.connect(), "kl");
      const auto measured = [&] { return evaluate(bench, student, batch, teacher.connect(), "teacher_ce"); };
      if (names_tokens(boundary)) {
        EXPECT_THROW((void)measured(), std::out_of_range);  // unknown: an error instead of 0
      } else {
        teacher_ce[static_cast<int>(boundary)] = measured();
      }
    }
    EXPECT_GT(kl[0], 0.1);
    EXPECT_NEAR(kl[1], kl[0], 1e-5);
    EXPECT_NEAR(kl[2], kl[0], 1e-5);
    EXPECT_NEAR(kl[3], kl[0], 1e-5);
    DecoderLm whole(bench.context("teacher", false), {teacher_shape(tied), {}});
    EXPECT_NEAR(teacher_ce[0], evaluate(bench, whole, batch), 1e-5);
    EXPECT_NEAR(teacher_ce[1], teacher_ce[0], 1e-5);
  }
}

TEST(DistilledDecoder, a_rest_is_refused_by_name_on_a_gpu) {
  Bench bench;
  SectionContext context = bench.context("student", true);
  context.meta = context.for_cuda = true;
  auto settings = options(TeacherOutput::top_k_rest, Divergence::reverse_kl);
  settings.decoder.width = 32;  // head size that GPUs support
  const std::string refused = job_error_of([&] { DistilledDecoder(context, settings); });
  EXPECT_NE(refused.find("student: boundary = \"top_k_rest\", which a recorded teacher has, is supported on CPUs only"),
            std::string::npos)
      << refused;
  context.for_cuda = false;
  EXPECT_EQ(job_error_of([&] { DistilledDecoder(context, settings); }), "(no error)");
}

TEST(DistilledDecoder, loads_the_teachers_output_layer_from_its_folder) {
  Bench bench;
  for (const char* model : {"gpt2_tied", "llama_untied"}) {
    const auto expected = SafetensorsFile::open(reference_folder(model) / "expected.safetensors").value_or_throw();
    const Batch batch(integers(expected, "tokens"), integers(expected, "targets"), integers(expected, "offsets"));
    auto settings = options(TeacherOutput::hidden, Divergence::forward_kl);
    settings.decoder.vocabulary = 61;
    settings.decoder.positions = 16;
    settings.teachers[0].decoder = read_hf_config(reference_folder(model)).value_or_throw();
    settings.teachers[0].weights = reference_folder(model).string();
    settings.data = {16, 61, ""};
    DistilledDecoder student(bench.context("student", false), settings);
    const Teacher teacher(bench, settings, batch);
    EXPECT_NEAR(evaluate(bench, student, batch, teacher.connect(), "teacher_ce"),
                expected.tensor("loss").value_or_throw().data<float>()[0], 1e-5)
        << model;
  }
}

TEST(DistilledDecoder, a_teacher_folder_of_another_shape_is_refused_naming_the_key) {
  Bench bench;
  auto settings = options(TeacherOutput::hidden, Divergence::forward_kl);
  settings.teachers[0].decoder = read_hf_config(reference_folder("llama_untied")).value_or_throw();
  settings.teachers[0].decoder.vocabulary = 64;
  settings.teachers[0].weights = reference_folder("llama_untied").string();
  const std::string error = job_error_of([&] { DistilledDecoder(bench.context("student", false), settings); });
  EXPECT_NE(error.find("config.json: vocab_size is 61, but the section has 64"), std::string::npos) << error;
}

TEST(DistilledDecoder, the_teachers_layer_is_neither_trained_nor_stored) {
  Bench bench;
  DistilledDecoder student(bench.context("student", true), options(TeacherOutput::hidden, Divergence::js));
  DecoderLm plain(bench.context("student", true), {student_shape(), {}});
  EXPECT_EQ(student.parameters().elements(), plain.parameters().elements());
  EXPECT_TRUE(std::ranges::equal(student.parameters().values(), plain.parameters().values()));
  ASSERT_EQ(student.state().size(), plain.state().size());
  for (std::size_t i = 0; i < plain.state().size(); ++i) EXPECT_EQ(student.state()[i].name, plain.state()[i].name);
}

TEST(DistilledDecoder, with_alpha_zero_is_a_plain_language_model) {
  Bench bench;
  const Batch batch = Batch::random(5, {9, 12}, vocabulary);
  auto settings = options(TeacherOutput::hidden, Divergence::forward_kl);
  settings.alpha = 0;
  DistilledDecoder student(bench.context("student", true), settings);
  DecoderLm plain(bench.context("student", true), {student_shape(), {}});
  const Teacher teacher(bench, settings, batch);
  EXPECT_NEAR(differentiate(bench, student, batch, teacher.connect()), differentiate(bench, plain, batch), 1e-6);
  for (std::size_t i = 0; i < plain.parameters().gradients().size(); ++i) {
    ASSERT_NEAR(student.parameters().gradients()[i], plain.parameters().gradients()[i], 1e-6) << i;
  }
}

TEST(DistilledDecoder, a_bf16_teacher_sends_bf16_hidden_states) {
  Bench bench;
  const Batch batch = Batch::random(5, {9, 12}, vocabulary);
  auto settings = options(TeacherOutput::hidden, Divergence::forward_kl);
  DistilledDecoder exact(bench.context("student", false), settings);
  const Teacher exact_teacher(bench, settings, batch);
  settings.teachers[0].precision = DType::bf16;
  DistilledDecoder student(bench.context("student", false), settings);
  const Teacher teacher(bench, settings, batch);
  EXPECT_EQ(student.ports().inputs[2].dtype, DType::bf16);
  const double kl = evaluate(bench, exact, batch, exact_teacher.connect(), "kl");
  EXPECT_NEAR(evaluate(bench, student, batch, teacher.connect(), "kl"), kl, 0.02 * kl + 0.01);
}

TEST(DistilledDecoder, rows_of_padding_do_not_matter) {
  Bench bench;
  const Batch batch = Batch::random(5, {9, 12}, vocabulary);
  auto settings = options(TeacherOutput::hidden, Divergence::forward_kl);
  settings.decoder.vocabulary = 48;
  settings.decoder.tied = false;
  DistilledDecoder student(bench.context("student", true), settings);
  ASSERT_EQ(student.notes().size(), 1u);
  EXPECT_NE(student.notes()[0].find("student has vocabulary = 48 and teacher has vocabulary = 37"), std::string::npos);
  const Teacher teacher(bench, settings, batch);
  const double kl = evaluate(bench, student, batch, teacher.connect(), "kl");
  const Tensor head = student.parameters().find("lm_head.weight")->value();
  for (float& value : head.row_slice(vocabulary, 48 - vocabulary).span<float>()) value = 5.0f;
  student.parameters().values_changed();
  EXPECT_NEAR(evaluate(bench, student, batch, teacher.connect(), "kl"), kl, 1e-6);
}

/// Returns the loss of a plain model with the first `rows` vocabulary rows of a student whose output layer is untied.
double plain_cross_entropy(Bench& bench, Section& student, DecoderConfig config, std::int64_t rows,
                           const Batch& batch) {
  config.vocabulary = rows;
  DecoderLm plain(bench.context("plain", false), {config, {}});
  for (Parameter& parameter : plain.parameters().all()) {
    const Tensor from = student.parameters().find(parameter.name())->value();
    std::copy_n(from.data<float>(), parameter.value().elements(), parameter.value().data<float>());
  }
  plain.parameters().values_changed();
  return evaluate(bench, plain, batch, {}, "ce");
}

TEST(DistilledDecoder, reports_the_cross_entropy_of_its_whole_table_and_learns_not_to_choose_rows_without_a_token) {
  Bench bench;
  const Batch batch = Batch::random(5, {9, 12}, vocabulary);
  for (const TeacherOutput boundary : {TeacherOutput::hidden, TeacherOutput::logits, TeacherOutput::top_k}) {
    auto settings = options(boundary, Divergence::forward_kl);
    settings.decoder.vocabulary = 48;
    settings.decoder.tied = false;
    DistilledDecoder student(bench.context("student", true), settings);
    const Teacher teacher(bench, settings, batch);
    const AdamWOptimizer optimizer({.lr = 1e-2}, 90);
    // -log of the probability of all tokens together, by target
    const auto lost = [&] {
      const double whole = plain_cross_entropy(bench, student, settings.decoder, 48, batch);
      EXPECT_NEAR(evaluate(bench, student, batch, teacher.connect(), "ce"), whole, 1e-5);
      return whole - plain_cross_entropy(bench, student, settings.decoder, vocabulary, batch);
    };
    EXPECT_NEAR(lost(), std::log(48.0 / vocabulary), 0.05);
    for (std::int64_t step = 1; step <= 90; ++step) {
      differentiate(bench, student, batch, teacher.connect());
      ASSERT_TRUE(clipped_step(optimizer, bench, student, step).ok());
    }
    EXPECT_LT(lost(), 0.03);
  }
}

TEST(DistilledDecoder, a_top_k_teacher_chooses_among_the_tokens_of_the_corpus) {
  Bench bench;
  const Batch batch = Batch::random(5, {9, 12}, vocabulary);
  auto settings = options(TeacherOutput::top_k, Divergence::forward_kl);
  settings.teachers[0].decoder.vocabulary = 64;
  DecoderTrunk teacher(bench.context("teacher", false), {settings.teachers[0].decoder, settings.teachers[0].boundary,
                                                         settings.teachers[0].top_k, settings.data});
  // Rows without a token have the largest logits.
  const Tensor head = teacher.parameters().find("lm_head.weight")->value();
  for (std::int64_t row = vocabulary; row < 64; ++row) {
    for (float& value : head.row_slice(row, 1).span<float>()) value = row % 2 == 0 ? 50.0F : -50.0F;
  }
  teacher.parameters().values_changed();
  MicroBatch pass(bench, teacher, batch, Pass::evaluate);
  pass.forward();
  for (const std::int32_t token : pass.output("top_indices").span<std::int32_t>()) ASSERT_LT(token, vocabulary);
  DistilledDecoder student(bench.context("student", false), settings);
  const auto connect = [&](MicroBatch& to) {
    for (const char* port : {"top_values", "top_indices"})
      to.connect(std::string("teacher_") + port, pass.output(port));
  };
  EXPECT_GT(evaluate(bench, student, batch, connect, "kl"), 0.1);
}

TEST(DistilledDecoder, options_out_of_range_are_refused_by_name) {
  Bench bench;
  const auto build = [&](const std::function<void(DistilledDecoder::Options&)>& change) {
    auto settings = options(TeacherOutput::top_k, Divergence::forward_kl);
    change(settings);
    return job_error_of([&] { DistilledDecoder(bench.context("student", false), settings); });
  };
  EXPECT_EQ(build([](auto&) {}), "(no error)");
  const auto names = [&](const std::function<void(DistilledDecoder::Options&)>& change, const std::string& setting) {
    const std::string error = build(change);
    EXPECT_EQ(error.find("student: distillation: " + setting), 0u) << error;
  };
  names([](auto& settings) { settings.temperature = 0; }, "temperature = 0");
  names([](auto& settings) { settings.alpha = 1.5; }, "alpha = 1.5");
  names([](auto& settings) { settings.teachers[0].top_k = 38; }, "top_k = 38");
  names([](auto& settings) { settings.divergence = Divergence::reverse_kl; }, "divergence = \"reverse_kl\"");
  names([](auto& settings) { settings.divergence = Divergence::js, settings.beta = 1; }, "beta = 1");
  EXPECT_NE(
      build([](auto& settings) { settings.teachers[0].decoder.vocabulary = 30; }).find("teacher: vocabulary = 30"),
      std::string::npos);
}

TEST(DistilledDecoder, counts_the_teachers_output_layer_where_it_is_computed) {
  Bench bench;
  const DistilledDecoder hidden(bench.context("s", true), options(TeacherOutput::hidden, Divergence::js));
  const DistilledDecoder logits(bench.context("s", true), options(TeacherOutput::logits, Divergence::js));
  EXPECT_DOUBLE_EQ(hidden.cost({12}).flops - logits.cost({12}).flops, 2.0 * 12 * 24 * vocabulary);
}

}  // namespace
}  // namespace maestro::testing
