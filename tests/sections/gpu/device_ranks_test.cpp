// SPDX-License-Identifier: Apache-2.0
// Sections on ranks with a device each, against a single rank on a CPU: losses, gradients, exact matches. Devices are
// the fake CUDA, whose memory is CPU memory, so that ranks can be threads.
//
// f32. Tolerances, relative to the largest value: sums are grouped in another way than on a single rank, and
// exponentials are other functions, 1e-6 each, some ten in succession.
#include <gtest/gtest.h>

#include <algorithm>

#include "runtime/data/corpus.hpp"
#include "sections/decoder/decoder_lm.hpp"
#include "sections/decoder/decoder_trunk.hpp"
#include "sections/distill/distilled_decoder.hpp"
#include "sections/section_runner.hpp"
#include "sections/vision/vision_language_decoder.hpp"
#include "tests/ops/cuda/fake_rank.hpp"
#include "tests/sections/parallel_bench.hpp"
#include "tests/sections/random_decoder.hpp"
#include "tests/sections/vision_images.hpp"

namespace maestro::testing {
namespace {

constexpr double tolerance = 2e-5;
constexpr std::int64_t vocabulary = 37;  // no degree divides it
constexpr std::size_t logits_bytes = std::size_t{1} << 20;

/// Heads have 16 columns, the smallest size for attention on devices.
DecoderConfig model(DecoderFamily family, bool tied) {
  DecoderConfig config;
  config.family = family;
  config.layers = family == DecoderFamily::lfm2 || has_delta_rules(family) ? 2 : 1;
  config.width = 96;
  config.heads = 6;
  config.kv_heads = family == DecoderFamily::gpt2 ? 0 : 6;
  config.ffn = 36;
  config.vocabulary = vocabulary;
  config.positions = 34;
  config.tied = tied;
  if (has_experts(family)) {
    config.experts.count = 5;
    config.experts.ffn = config.experts.shared_ffn = 12;
  }
  if (family == DecoderFamily::gpt_oss) {
    config.window = 5;
    config.experts.shared_ffn = 0;
    return with_family(resolved(config), family);
  }
  DecoderConfig mixed = with_kinds_of_layers(config);
  if (has_delta_rules(family) || has_latent_attention(family)) mixed.head_size = 16;
  return mixed;
}

using Groups = std::vector<std::vector<std::unique_ptr<Communicator>>>;

Groups groups_of(std::int64_t count, std::int64_t size) {
  Groups groups;
  for (std::int64_t i = 0; i < count && size > 1; ++i) groups.push_back(make_thread_group(size));
  return groups;
}

/// A replica of a section: each rank's device, runner and groups.
class DeviceRanks {
 public:
  DeviceRanks(Layout layout, const SectionContext& context, const ParallelBench::Build& build)
      : layout_(layout),
        world_(make_thread_group(layout.ranks())),
        tensor_groups_(groups_of(layout.context, layout.tensor)),
        context_groups_(groups_of(layout.tensor, layout.context)) {
    for (std::int64_t number = 0; number < layout.ranks(); ++number) {
      const std::int64_t tensor = layout.tensor_of(number), part = layout.context_of(number);
      Rank& rank = *ranks_.emplace_back(std::make_unique<Rank>(*world_[static_cast<std::size_t>(number)]));
      rank.tensor_group = rank.member(tensor_groups_, part, tensor);
      rank.context_group = rank.member(context_groups_, tensor, part);
      rank.context = context;
      rank.context.ops = &rank.device.ops();
      rank.context.parallel = {layout, number, rank.tensor_group.get(), rank.context_group.get()};
      rank.runner = std::make_unique<SectionRunner>(build(rank.context), rank.context, OptimizerConfig(), 1);
    }
  }

  void load(const TensorSnapshot& values) {
    for (const auto& rank : ranks_) {
      Section& section = rank->runner->section();
      import_tensors(section, ParameterBuffer::values, values.tensors, "snapshot").or_throw();
    }
  }
  /// Runs a pass like ParallelBench::run; all ranks get complete gradients of `feeds`. Concatenates their metrics.
  [[nodiscard]] ParallelPass run(const Batch& batch, Pass pass, const std::vector<Feed>& feeds) {
    std::vector<PassMetrics> metrics(ranks_.size());
    for (const auto& rank : ranks_) rank->input_gradients.clear();
    on_ranks(layout_.ranks(), [&](Communicator& world) {
      const auto number = static_cast<std::size_t>(world.rank());
      try {
        metrics[number] = run_rank(*ranks_[number], batch, pass, feeds);
      } catch (const std::exception& error) {
        for (Communicator* group : {ranks_[number]->tensor_group.get(), ranks_[number]->context_group.get()}) {
          if (group != nullptr) group->abort(error.what());
        }
        throw;
      }
    });
    ParallelPass result;
    for (const PassMetrics& of_rank : metrics) {
      for (const MetricSum& metric : of_rank.get()) result.metrics.push_back(metric);
    }
    result.input_gradients = std::move(ranks_.front()->input_gradients);
    for (std::size_t number = 1; number < ranks_.size(); ++number) {
      for (const auto& [port, gradient] : ranks_[number]->input_gradients) {
        EXPECT_EQ(gradient.values(), result.input_gradients.at(port).values()) << port;
      }
    }
    return result;
  }
  /// Returns the undivided gradients of the first context part; all other parts must hold the same.
  [[nodiscard]] TensorSnapshot gradients() {
    std::vector<TensorSnapshot> parts;
    for (std::int64_t part = 0; part < layout_.context; ++part) {
      std::vector<Section*> sections;
      for (std::int64_t tensor = 0; tensor < layout_.tensor; ++tensor) {
        sections.push_back(&ranks_[static_cast<std::size_t>(part * layout_.tensor + tensor)]->runner->section());
      }
      parts.push_back(export_tensors(sections, ParameterBuffer::gradients).value_or_throw());
      expect_same(parts.back(), parts.front());
    }
    return std::move(parts.front());
  }

 private:
  struct Rank {
    explicit Rank(Communicator& world) : device(world, logits_bytes) {}
    [[nodiscard]] std::unique_ptr<Communicator> member(const Groups& groups, std::int64_t group, std::int64_t rank) {
      if (groups.empty()) return nullptr;
      Communicator& ranks = *groups[static_cast<std::size_t>(group)][static_cast<std::size_t>(rank)];
      return std::make_unique<cuda::OnStream>(ranks, device.stream());
    }
    cuda::FakeRank device;
    std::unique_ptr<Communicator> tensor_group, context_group;
    SectionContext context;
    std::unique_ptr<SectionRunner> runner;
    std::map<std::string, OwnedTensor> input_gradients;
  };

  static MicroBatchPlan plan_of(const Batch& batch, Pass pass) {
    MicroBatchPlan plan;
    plan.pass = pass;
    plan.loss_scale = 1.0 / batch.target_tokens();
    for (std::size_t i = 0; i < batch.samples.size(); ++i) {
      plan.samples.push_back({.id = batch.samples[i],
                              .tokens = batch.offsets[i + 1] - batch.offsets[i],
                              .patches = batch.patch_offsets[i + 1] - batch.patch_offsets[i],
                              .visual = batch.patch_offsets[i + 1] - batch.patch_offsets[i]});
    }
    return plan;
  }
  [[nodiscard]] PassMetrics run_rank(Rank& rank, const Batch& batch, Pass pass, const std::vector<Feed>& feeds) const {
    const Ports ports = rank.runner->section().ports();
    std::vector<OwnedTensor> held;
    std::vector<PortTensor> inputs, gradients;
    for (const Feed& feed : feeds) {
      const auto port = std::ranges::find(ports.inputs, feed.port, &Port::name);
      const std::int64_t number = rank.context.parallel.rank;
      const OwnedTensor rows = rows_of(feed.whole, layout_.rows(port->sharding, feed.whole.rows(), number));
      held.push_back(columns_of(rows, layout_.columns(port->sharding, feed.whole.columns(), number)));
      inputs.push_back({feed.port, held.back(), feed.differentiable});
      if (!feed.differentiable) continue;
      const auto [given, added] =
          rank.input_gradients.try_emplace(feed.port, port->dtype, held.back().tensor().shape());
      gradients.push_back({feed.port, given->second});
    }
    const MicroBatchPlan plan = plan_of(batch, pass);
    rank.runner->section().parameters().clear_gradients(rank.device.ops());
    PassMetrics metrics = rank.runner->forward(plan, inputs, {});
    if (pass == Pass::train) {
      rank.runner->backward(plan, {}, gradients);
      rank.runner->add_over_ranks();
    }
    rank.device.settle();
    return metrics;
  }

  Layout layout_;
  std::vector<std::unique_ptr<Communicator>> world_;
  Groups tensor_groups_, context_groups_;
  std::vector<std::unique_ptr<Rank>> ranks_;
};

Tensor column(const std::vector<std::int32_t>& values) {
  return {const_cast<std::int32_t*>(values.data()), DType::i32, {static_cast<std::int64_t>(values.size()), 1}};
}

/// A section on a single CPU rank and on devices, with equal values that are large enough for every term to matter.
struct Pair {
  Pair(const SectionContext& context, Layout layout, const ParallelBench::Build& build)
      : single({}, context, build), devices(layout, context, build) {
    randomise(single.section(0), 11);
    devices.load(single.whole());
  }
  void expect_equal(const Batch& batch, Pass pass, std::vector<Feed> feeds = {}) {
    const ParallelPass expected = single.run(batch, pass, feeds);
    feeds.push_back({"tokens", column(batch.tokens)});
    feeds.push_back({"targets", column(batch.targets)});
    const ParallelPass found = devices.run(batch, pass, feeds);
    for (const MetricSum& metric : expected.metrics) {
      double sum = 0, weight = 0;
      for (const MetricSum& of_rank : found.metrics) {
        if (of_rank.name == metric.name) sum += of_rank.sum;
        if (of_rank.name == metric.name) weight += of_rank.weight;
      }
      EXPECT_NEAR(sum, metric.sum, tolerance * metric.sum) << metric.name;
      EXPECT_EQ(weight, metric.weight) << metric.name;
    }
    if (pass != Pass::train) return;
    for (const auto& [port, gradient] : expected.input_gradients) {
      EXPECT_LE(worst_error(found.input_gradients.at(port).values(), gradient.values(), 1e-6), tolerance) << port;
    }
    expect_close(devices.gradients(), single.whole(ParameterBuffer::gradients), tolerance);
  }
  ParallelBench single;
  DeviceRanks devices;
};

class SectionOverDevices : public ::testing::TestWithParam<Layout> {
 protected:
  Bench bench;
};

ParallelBench::Build decoder_with_eyes(const DecoderConfig& config) {
  return [config](const SectionContext& context) {
    return std::make_unique<VisionLanguageDecoder>(context, VisionLanguageDecoder::Options{config, {}, {}});
  };
}

TEST_P(SectionOverDevices, a_language_model_has_the_losses_and_gradients_of_a_processor) {
  for (const DecoderFamily family :
       {DecoderFamily::gpt2, DecoderFamily::llama, DecoderFamily::lfm2, DecoderFamily::qwen2_moe,
        DecoderFamily::qwen3_5_text, DecoderFamily::deepseek_v3, DecoderFamily::gpt_oss}) {
    SCOPED_TRACE(name_of(family));
    const DecoderConfig config = model(family, family != DecoderFamily::llama);
    Pair pair(bench.context("lm", true), GetParam(), [&config](const SectionContext& context) {
      return std::make_unique<DecoderLm>(context, DecoderLm::Options{config, {}});
    });
    const Batch batch = Batch::random(5, {9, 1, 12}, vocabulary);  // the middle row lies within the last sample
    pair.expect_equal(batch, Pass::train);
    pair.expect_equal(batch, Pass::evaluate);
    pair.expect_equal(Batch::random(7, {2, 1}, vocabulary), Pass::train);  // fewer rows than some layouts have ranks
  }
}

TEST_P(SectionOverDevices, a_decoder_that_reads_images_has_the_losses_and_gradients_of_a_processor) {
  const std::vector<std::vector<PictureSize>> shown = {{{2, 3}, {1, 2}}, {}, {{3, 3}}, {{1, 1}, {2, 2}}};
  const Pictures pictures = Pictures::random(4, shown, 2);
  const Batch batch = illustrated(pictures, 7, vocabulary);
  const DecoderConfig config = model(DecoderFamily::gpt2, false);
  std::mt19937 generator(3);
  const std::int64_t patches = pictures.rows();
  const OwnedTensor visual(DType::f32, {patches, config.width}, exact_normals(generator, patches * config.width));
  Pair pair(bench.context("decoder", true), GetParam(), decoder_with_eyes(config));
  pair.expect_equal(batch, Pass::train, {{"visual", visual, true}});
  pair.expect_equal(batch, Pass::evaluate, {{"visual", visual}});
}

TEST_P(SectionOverDevices, exact_match_wants_the_targets_of_a_sample_on_every_rank) {  // VD-5
  Batch text = Batch::random(5, {32, 32, 31, 2}, vocabulary);  // the middle of 97 rows lies within sample 1
  const DecoderConfig config = model(DecoderFamily::gpt2, true);
  Pair pair(bench.context("decoder", false), GetParam(), decoder_with_eyes(config));
  ParallelBench top({}, bench.context("decoder", false), [&config](const SectionContext& context) {
    return std::make_unique<DecoderTrunk>(context, DecoderTrunk::Options{config, TeacherOutput::top_k, 1, {}});
  });
  top.load(pair.single.whole());
  std::ranges::copy(top.run(text, Pass::evaluate).outputs.at("top_indices").tensor().span<std::int32_t>(),
                    text.targets.begin());
  std::fill(text.targets.begin() + 64, text.targets.begin() + 90, ignored_target);  // sample 2: only the last five
  std::fill(text.targets.begin() + 95, text.targets.end(), ignored_target);         // sample 3: none
  const auto expect_matches = [&](double matches) {
    const ParallelPass found =
        pair.devices.run(text, Pass::evaluate, {{"tokens", column(text.tokens)}, {"targets", column(text.targets)}});
    EXPECT_EQ(found.metric("exact_match").sum, matches);
    EXPECT_EQ(found.metric("exact_match").weight, 3);
  };
  expect_matches(3);
  for (const std::size_t row : {40U, 60U}) {  // on both sides of the middle
    text.targets[row] = (text.targets[row] + 1) % static_cast<std::int32_t>(vocabulary);
  }
  expect_matches(2);
}

TEST_P(SectionOverDevices, a_student_learns_from_every_boundary_as_on_a_processor) {
  const Batch batch = Batch::random(5, {9, 1, 12}, vocabulary);
  DistilledDecoder::Options options;
  options.decoder = model(DecoderFamily::gpt2, false);
  options.decoder.vocabulary = 53;  // padded differently from the teacher's: parts do not line up
  options.temperature = 1.5;
  options.alpha = 0.7;
  options.teachers[0].top_k = 12;
  options.teachers[0].decoder = model(DecoderFamily::llama, false);
  options.teachers[0].decoder.vocabulary = 40;
  options.teachers[0].decoder.init_std = 0.3;  // so that the teacher prefers some tokens
  options.data = {34, vocabulary, "bytes"};
  for (const TeacherOutput boundary : {TeacherOutput::hidden, TeacherOutput::logits, TeacherOutput::top_k}) {
    SCOPED_TRACE("boundary " + std::to_string(static_cast<int>(boundary)));
    options.teachers[0].boundary = boundary;
    ParallelBench teacher({}, bench.context("teacher", false), [&options](const SectionContext& context) {
      const DecoderTrunk::Options trunk{
          options.teachers[0].decoder, options.teachers[0].boundary, options.teachers[0].top_k, {}};
      return std::make_unique<DecoderTrunk>(context, trunk);
    });
    const ParallelPass sent = teacher.run(batch, Pass::evaluate);
    std::vector<Feed> feeds;
    for (const auto& [name, tensor] : sent.outputs) feeds.push_back({"teacher_" + name, tensor});
    Pair pair(bench.context("student", true), GetParam(), [&options](const SectionContext& context) {
      return std::make_unique<DistilledDecoder>(context, options);
    });
    pair.expect_equal(batch, Pass::train, feeds);
  }
}

INSTANTIATE_TEST_SUITE_P(layouts, SectionOverDevices,
                         ::testing::Values(Layout{2, 1}, Layout{3, 1}, Layout{1, 2}, Layout{2, 3}),
                         [](const auto& test) {
                           return std::to_string(test.param.tensor) + "x" + std::to_string(test.param.context);
                         });

}  // namespace
}  // namespace maestro::testing
