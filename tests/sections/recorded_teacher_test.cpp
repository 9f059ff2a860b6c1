// SPDX-License-Identifier: Apache-2.0
#include "sections/distill/recorded_teacher.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "runtime/data/synthetic/synthetic_corpus.hpp"
#include "runtime/data/teacher/teacher_writer.hpp"
#include "runtime/job/job_document.hpp"
#include "runtime/ops/cpu/cpu_operator_table.hpp"
#include "sections/decoder/decoder_trunk.hpp"
#include "sections/distill/distilled_decoder.hpp"
#include "sections/distill/teaching.hpp"
#include "tests/data/temp_folder.hpp"
#include "tests/sections/section_bench.hpp"

namespace maestro::testing {
namespace {

constexpr std::int64_t sequence = 12;

std::shared_ptr<const Corpus> small_corpus() {
  return std::make_shared<SyntheticCorpus>(
      SyntheticOptions{.sequence = sequence, .vocabulary = vocabulary, .train_samples = 7, .validation_samples = 3});
}

DecoderConfig shape(std::int64_t width) {
  DecoderConfig config;
  config.layers = 1;
  config.width = width;
  config.heads = 2;
  config.ffn = 24;
  config.vocabulary = vocabulary;
  config.positions = sequence;
  config.init_std = 0.3;
  return config;
}

TeacherRecords records_of(const Corpus& corpus, std::int64_t k, double p = 1) {
  TeacherRecords records;
  records.k = k;
  records.p = p;
  records.vocabulary = vocabulary;
  records.data = corpus.fingerprint();
  records.training_samples = corpus.samples(Split::train);
  records.validation_samples = corpus.samples(Split::validation);
  records.shard_samples = 4;
  return records;
}

TeachingOptions teaching_options(const OperatorTable& ops, std::int64_t k, std::int64_t threads) {
  TeachingOptions options;
  options.factory = [k](const SectionContext& context) {
    return std::make_unique<DecoderTrunk>(
        context, DecoderTrunk::Options{shape(24), TeacherOutput::top_k_rest, k, {sequence, vocabulary, "tokens"}});
  };
  options.context.name = "teacher";
  options.context.seed = 42;  // seed of Bench
  options.context.values = InitialValues::later;
  options.context.ops = &ops;
  options.micro_batch = 3;
  options.threads = threads;
  return options;
}

void teach(const std::filesystem::path& folder, std::int64_t k, std::int64_t threads = 2) {
  const auto corpus = small_corpus();
  const cpu::CpuOperatorTable ops;
  Teaching teaching(corpus, teaching_options(ops, k, threads));
  const std::atomic<bool> stop = false;
  ShardMaker maker;
  maker.rows = [&](const TeacherRecords& of, std::uint64_t shard) {
    return teaching.rows(of, of.samples_of(shard), stop);
  };
  maker.finished = [](const TeacherRecords&, std::uint64_t, bool) {};
  ASSERT_TRUE(write_shards(folder, records_of(*corpus, k), maker).complete());
}

RecordedTeacher::Options opened(const std::filesystem::path& folder, const Corpus* corpus) {
  const JobDocument document = JobDocument::parse("[teacher]\npath = \"" + folder.string() + "\"\n", "job.toml");
  return RecordedTeacher::Options::read(document.root().table("teacher"), corpus);
}

Batch batch_of(Split split, const std::vector<std::uint64_t>& ids) {
  const auto corpus = small_corpus();
  std::vector<std::int32_t> inputs, targets, offsets{0};
  std::vector<std::int32_t> sample(sequence), sample_targets(sequence);
  for (const std::uint64_t id : ids) {
    corpus->read(split, SampleId(id), sample, sample_targets);
    inputs.insert(inputs.end(), sample.begin(), sample.end());
    targets.insert(targets.end(), sample_targets.begin(), sample_targets.end());
    offsets.push_back(static_cast<std::int32_t>(inputs.size()));
  }
  Batch batch(inputs, targets, offsets);
  batch.samples.clear();
  for (const std::uint64_t id : ids) batch.samples.emplace_back(id);
  return batch;
}

std::string content(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// A student's loss and gradient after a teacher's pass.
struct Lesson {
  double loss = 0;
  std::vector<float> gradient;
};
Lesson lesson(Bench& bench, const MicroBatch& teacher, const Batch& batch, std::int64_t k, Divergence divergence) {
  DistilledDecoder::Options options;
  options.decoder = shape(16);
  options.teachers[0].boundary = TeacherOutput::top_k_rest;
  options.divergence = divergence;
  options.alpha = 0.7;
  options.teachers[0].top_k = k;
  options.teachers[0].decoder = shape(24);
  options.data = {sequence, vocabulary, "tokens"};
  DistilledDecoder student(bench.context("student", true), options);
  Lesson result;
  result.loss = differentiate(bench, student, batch, [&](MicroBatch& pass) {
    for (const char* port : {"top_values", "top_indices", "rest"}) {
      pass.connect(std::string("teacher_") + port, teacher.output(port));
    }
  });
  const auto gradients = student.parameters().gradients();
  result.gradient.assign(gradients.begin(), gradients.end());
  return result;
}

TEST(RecordedTeacher, teaches_as_the_teacher_itself_to_the_precision_of_f16) {
  for (const std::int64_t k : {std::int64_t{6}, vocabulary}) {
    const TempFolder folder;
    teach(folder.path(), k);
    const auto corpus = small_corpus();
    for (const Split split : {Split::train, Split::validation}) {
      Bench bench;
      const Batch batch = split == Split::train ? batch_of(split, {5, 0, 6, 3}) : batch_of(split, {2, 0});
      const Pass pass = split == Split::train ? Pass::train : Pass::evaluate;
      DecoderTrunk trunk(bench.context("teacher", false),
                         {shape(24), TeacherOutput::top_k_rest, k, {sequence, vocabulary, "tokens"}});
      RecordedTeacher recorded(bench.context("teacher", false), opened(folder.path(), corpus.get()));
      MicroBatch live(bench, trunk, batch, Pass::evaluate), stored(bench, recorded, batch, pass);
      live.forward();
      stored.forward();
      for (const char* port : {"top_values", "rest"}) {
        const auto wanted = live.output(port).span<float>();
        const auto found = stored.output(port).span<float>();
        ASSERT_EQ(found.size(), wanted.size());
        for (std::size_t i = 0; i < found.size(); ++i) {
          EXPECT_NEAR(found[i], wanted[i], 0x1p-11 * std::abs(wanted[i])) << port << " " << i;
        }
      }
      for (const Divergence divergence : {Divergence::forward_kl, Divergence::reverse_kl, Divergence::js}) {
        const Lesson wanted = lesson(bench, live, batch, k, divergence);
        const Lesson found = lesson(bench, stored, batch, k, divergence);
        EXPECT_NEAR(found.loss, wanted.loss, 1e-3 * wanted.loss);
        float largest = 0, error = 0;
        for (std::size_t i = 0; i < wanted.gradient.size(); ++i) {
          largest = std::max(largest, std::abs(wanted.gradient[i]));
          error = std::max(error, std::abs(wanted.gradient[i] - found.gradient[i]));
        }
        EXPECT_GT(largest, 0);
        EXPECT_LT(error, 3e-3F * largest);
      }
    }
  }
}

TEST(RecordedTeacher, records_have_the_same_bytes_from_any_number_of_threads) {  // OF-2
  const TempFolder one, three;
  teach(one.path(), 6, 1);
  teach(three.path(), 6, 3);
  for (const char* file : {"teacher-00000.safetensors", "teacher-00001.safetensors", "teacher-00002.safetensors"}) {
    ASSERT_FALSE(content(one.path() / file).empty());
    EXPECT_EQ(content(one.path() / file), content(three.path() / file)) << file;
  }
}

TEST(RecordedTeacher, a_stop_gives_no_rows) {
  const auto corpus = small_corpus();
  const cpu::CpuOperatorTable ops;
  Teaching teaching(corpus, teaching_options(ops, 6, 2));
  const std::atomic<bool> stop = true;
  const TeacherRecords records = records_of(*corpus, 6);
  EXPECT_FALSE(teaching.rows(records, records.samples_of(0), stop).has_value());
}

TEST(RecordedTeacher, records_of_other_data_are_refused_with_the_difference) {  // OF-3
  const TempFolder folder;
  teach(folder.path(), 6);
  const SyntheticCorpus other(
      {.sequence = sequence, .vocabulary = vocabulary, .train_samples = 8, .validation_samples = 3});
  try {
    (void)opened(folder.path(), &other);
    FAIL() << "accepted";
  } catch (const JobError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("job.toml:2: teacher.path: these records are of other data: training samples is 7, but the "
                        "corpus has 8"),
              std::string::npos)
        << text;
  }
}

TEST(RecordedTeacher, its_origin_is_that_of_its_shards) {
  const TempFolder first, second;
  teach(first.path(), 6);
  teach(second.path(), 5);
  Bench bench;
  const auto origin = [&](const std::filesystem::path& folder) {
    return RecordedTeacher(bench.context("teacher", false), opened(folder, nullptr)).origin();
  };
  EXPECT_EQ(origin(first.path()), origin(first.path()));
  EXPECT_NE(origin(first.path()), origin(second.path()));
}

}  // namespace
}  // namespace maestro::testing
