// SPDX-License-Identifier: Apache-2.0
// Tables of n-grams: row numbers, a decoder's layer that reads them, and steps by rows.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <set>

#include "runtime/job/job_reader.hpp"
#include "sections/decoder/decoder_lm.hpp"
#include "sections/decoder/generation.hpp"
#include "sections/memory/memory_layer.hpp"
#include "sections/memory/ngram_memory.hpp"
#include "sections/section_runner.hpp"
#include "sections/state_io.hpp"
#include "tests/sections/section_bench.hpp"

namespace maestro::testing {
namespace {

/// Results from record_memory_references.py.
class RecordedMemory {
 public:
  RecordedMemory()
      : file_(SafetensorsFile::open(reference_folder("memory") / "expected.safetensors").value_or_throw()) {}
  [[nodiscard]] ConstTensor operator[](const std::string& name) const { return file_.tensor(name).value_or_throw(); }
  [[nodiscard]] std::vector<float> values(const std::string& name) const {
    const ConstTensor tensor = (*this)[name];
    const std::span<const float> all = tensor.span<float>();
    return {all.begin(), all.end()};
  }
  [[nodiscard]] std::vector<std::int32_t> integers(const std::string& name) const {
    const ConstTensor tensor = (*this)[name];
    const std::span<const std::int32_t> all = tensor.span<std::int32_t>();
    return {all.begin(), all.end()};
  }

 private:
  SafetensorsFile file_;
};

void expect_near(std::span<const float> found, std::span<const float> expected, double tolerance,
                 const std::string& what) {
  ASSERT_EQ(found.size(), expected.size()) << what;
  for (std::size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], tolerance) << what << " " << i;
}

/// Returns SHAPES of record_memory_references.py.
std::array<NGramShape, 3> recorded_shapes() {
  return {NGramShape{3, 2, 50, 4, 61, 2, 1234}, NGramShape{4, 2, 1000, 8, 257, 0, 7},
          NGramShape{2, 3, 40009, 2, 151936, 151643, -5}};
}

TEST(NGramIds, rows_of_tokens_equal_those_of_transformers) {  // HY-1
  const RecordedMemory recorded;
  for (std::size_t number = 0; number < 3; ++number) {
    const NGramIds ids(recorded_shapes()[number]);
    const std::string name = "ids." + std::to_string(number);
    const std::vector<std::int32_t> tokens = recorded.integers(name + ".tokens");
    std::vector<std::int32_t> rows(tokens.size() * static_cast<std::size_t>(ids.shape().all_heads()));
    ids.rows_of({}, tokens, rows);
    EXPECT_EQ(rows, recorded.integers(name + ".rows"));
  }
}

TEST(NGramIds, tokens_before_a_part_stand_for_the_whole_text) {  // HY-1
  const NGramIds ids(recorded_shapes()[1]);
  const std::vector<std::int32_t> tokens = RecordedMemory().integers("ids.1.tokens");
  const auto heads = static_cast<std::size_t>(ids.shape().all_heads());
  std::vector<std::int32_t> whole(tokens.size() * heads);
  ids.rows_of({}, tokens, whole);
  for (std::size_t at = 0; at < tokens.size(); ++at) {
    std::vector<std::int32_t> row(heads);
    const std::size_t first = at < 3 ? 0 : at - 3;
    ids.rows_of(std::span(tokens).subspan(first, at - first), std::span(tokens).subspan(at, 1), row);
    EXPECT_TRUE(std::ranges::equal(row, std::span(whole).subspan(at * heads, heads))) << at;
  }
}

TEST(NGramIds, heads_have_rows_of_their_own_and_the_table_is_padded) {
  const NGramIds ids({3, 2, 50, 4, 61, 2, 1234});
  EXPECT_EQ(ids.primes(), (std::vector<std::int64_t>{53, 59, 61, 67}));
  EXPECT_EQ(ids.table_rows(), 256);
  for (const std::int64_t multiplier : ids.multipliers()) EXPECT_EQ(multiplier % 2, 1);
}

DecoderConfig recorded_decoder() {
  DecoderConfig config;
  config.width = 16;
  config.memory = {.columns = 16, .orders = 3};
  return config;
}

TEST(MemoryLayer, results_and_gradients_equal_transformers) {
  const RecordedMemory recorded;
  Bench bench;
  Parameters parameters;
  std::vector<StateEntry> state;
  const ParameterInit init(1, "decoder");
  ParameterBuilder builder(parameters, init, state);
  const MemoryWeights weights = add_memory(builder, recorded_decoder());
  parameters.allocate(true);
  const auto stored_name = [](const std::string& name) {
    const std::size_t begin = std::string("memory.layers.0.").size();
    return name.substr(begin, name.size() - begin - std::string(".weight").size());
  };
  for (Parameter& parameter : parameters.all()) {
    std::ranges::copy(recorded.values("layer." + stored_name(parameter.name())), parameter.value().data<float>());
  }
  std::vector<float> rows = recorded.values("layer.rows"), hidden = recorded.values("layer.hidden");
  std::vector<float> dout = recorded.values("layer.dout");
  const auto tensor = [](std::vector<float>& values) { return Tensor(values.data(), DType::f32, Shape{12, 16}); };
  Tape tape(*bench.ops, bench.arena, DType::f32, true);
  const Var x = tape.input(tensor(hidden), true), memory = tape.input(tensor(rows), true);
  const Batch batch = Batch::random(1, {12}, 9);
  BlockOptions options;
  options.norm.epsilon = 1e-6;
  const Var result =
      whole(tape, with_memory(tape, x, memory, weights, recorded_decoder().memory, options, batch.layout()));
  std::vector<float> expected = recorded.values("layer.out");
  for (std::size_t i = 0; i < expected.size(); ++i) expected[i] += hidden[i];
  expect_near(result.value().span<float>(), expected, 1e-5, "out");
  tape.seed(result, tensor(dout));
  tape.backward();
  expect_near(memory.gradient().span<float>(), recorded.values("layer.gradient.rows"), 1e-5, "rows");
  std::vector<float> dhidden = recorded.values("layer.gradient.hidden");
  for (std::size_t i = 0; i < dhidden.size(); ++i) dhidden[i] += dout[i];
  expect_near(x.gradient().span<float>(), dhidden, 2e-5, "hidden");
  for (const Parameter& parameter : parameters.all()) {
    const std::string name = stored_name(parameter.name());
    expect_near(parameter.gradient().span<float>(), recorded.values("layer.gradient." + name), 3e-5, name);
  }
}

TEST(MemoryGate, values_and_slopes_agree_with_double_precision) {
  Bench bench;
  std::vector<float> scores{-8, -0.5F, -3e-3F, -4e-7F, 0, 4e-7F, 5e-5F, 0.02F, 1, 30};
  std::vector<float> ones(scores.size(), 1.0F);
  const auto column = [](std::vector<float>& values) {
    return Tensor(values.data(), DType::f32, Shape{std::ssize(values), 1});
  };
  constexpr double factor = 0.25;
  const auto value = [](double score) {
    const double a = factor * score, root = std::sqrt(std::max(std::abs(a), 1e-6));
    return a == 0 ? 0.5 : 1 / (1 + std::exp(a < 0 ? root : -root));
  };
  Tape tape(*bench.ops, bench.arena, DType::f32, true);
  const Var x = tape.input(column(scores), true);
  const Var gate = memory_gate(tape, x, factor);
  tape.seed(gate, column(ones));
  tape.backward();
  for (std::size_t i = 0; i < scores.size(); ++i) {
    EXPECT_NEAR(gate.value().span<float>()[i], value(scores[i]), 1e-6) << scores[i];
    const double step = 1e-4 * std::abs(double{scores[i]});
    const double slope = step == 0 ? 0 : (value(scores[i] + step) - value(scores[i] - step)) / (2 * step);
    EXPECT_NEAR(x.gradient().span<float>()[i], slope, 1e-5 * std::max(1.0, slope)) << scores[i];
  }
}

TEST(RowAdaGradSteps, values_and_sums_equal_those_of_torch) {
  const RecordedMemory recorded;
  std::vector<float> table = recorded.values("adagrad.table"), sums(7, 0.0F);
  std::vector<float> all = recorded.values("adagrad.gradients");
  const std::vector<std::int32_t> ids = recorded.integers("adagrad.ids");
  RowGradients gradients;
  for (std::size_t step = 0; step < 3; ++step) {
    gradients.add(std::span(ids).subspan(step * 4, 4), Tensor(all.data() + step * 20, DType::f32, Shape{4, 5}));
    step_rows(gradients, {.lr = 0.1, .columns = 5}, row_squares(gradients, 1),
              Tensor(table.data(), DType::f32, Shape{7, 5}), Tensor(sums.data(), DType::f32, Shape{7}));
    gradients.clear();
  }
  expect_near(table, recorded.values("adagrad.values"), 1e-6, "values");
  expect_near(sums, recorded.values("adagrad.sums"), 1e-6, "sums");
}

TEST(RowGradients, sums_do_not_depend_on_how_micro_batches_divide_rows_or_arrive) {  // TB-2
  constexpr std::int64_t count = 24, columns = 3;
  Random random(4);
  std::vector<float> values(count * columns);
  std::vector<std::int32_t> ids;
  for (float& value : values) value = static_cast<float>(random.normal());
  for (std::int64_t i = 0; i < count; ++i) ids.push_back(static_cast<std::int32_t>(random.below(5)));
  const auto add = [&](RowGradients& to, std::int64_t first, std::int64_t rows) {
    to.add(std::span(ids).subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(rows)),
           Tensor(values.data() + first * columns, DType::f32, Shape{rows, columns}));
  };
  RowGradients whole, parts, late;
  add(whole, 0, count);
  for (std::uint32_t i = 0; i < 6; ++i) {
    parts.begin(i);
    add(parts, 4 * i, 4);
  }
  for (std::uint32_t i = 6; i-- > 0;) {  // a pipeline may return them so
    late.begin(i);
    add(late, 4 * i, 4);
  }
  for (const RowGradients* other : {&parts, &late}) {
    EXPECT_EQ(other->merged().ids, whole.merged().ids);
    EXPECT_EQ(other->merged().sums, whole.merged().sums);
  }
  EXPECT_TRUE(std::ranges::is_sorted(whole.merged().ids));
  double squares = 0;
  for (const float value : whole.merged().sums) squares += double{value} * double{value};
  EXPECT_DOUBLE_EQ(whole.sum_of_squares(), squares);
}

NGramMemory::Options memory_options() {
  NGramMemory::Options options;
  options.shape = {3, 2, 50, 4, 61, 2, 1234};
  return options;
}

OptimizerConfig constant_rate(double clip_norm = 0) {
  OptimizerConfig config;
  config.lr = 0.1;
  config.schedule = LearningRateSchedule::constant;
  config.clip_norm = clip_norm;
  return config;
}

/// A trained table and its steps; each sample's gradient depends on the sample alone.
struct TrainedMemory {
  explicit TrainedMemory(const OptimizerConfig& optimizer = constant_rate()) {
    const SectionContext context = bench.context("memory", true);
    auto made = std::make_unique<NGramMemory>(context, memory_options());
    runner = std::make_unique<SectionRunner>(std::move(made), context, optimizer, 100);
  }
  Parameter& table() { return runner->section().parameters().all().front(); }

  /// Runs the backward passes of a step, with `size` samples a micro-batch.
  void gather(std::uint64_t step, std::size_t size) {
    const Batch whole = Batch::random(step, {9, 4, 12, 7}, 61);
    for (std::size_t first = 0; first < 4; first += size) {
      Batch part = samples(whole, first, size);
      MicroBatchPlan plan;
      plan.step = StepId(step);
      plan.index = static_cast<std::uint32_t>(first / size);
      for (std::size_t at = 0; at < part.samples.size(); ++at) {
        plan.samples.push_back({part.samples[at], part.offsets[at + 1] - part.offsets[at]});
      }
      std::vector<float> out(part.tokens.size() * 16), gradient;
      for (const std::int32_t token : part.tokens) {
        for (int i = 0; i < 16; ++i) gradient.push_back(static_cast<float>(token - 30 + i) / 64);
      }
      const auto tensor = [&](std::vector<float>& values) {
        return Tensor(values.data(), DType::f32, Shape{part.rows(), 16});
      };
      (void)runner->forward(
          plan, std::vector<PortTensor>{{"tokens", Tensor(part.tokens.data(), DType::i32, {part.rows(), 1})}},
          std::vector<PortTensor>{{"memory", tensor(out)}});
      runner->backward(plan, std::vector<PortTensor>{{"memory", tensor(gradient)}}, {});
    }
  }
  static Batch samples(const Batch& whole, std::size_t first, std::size_t count) {
    const auto begin = whole.offsets[first], end = whole.offsets[first + count];
    std::vector<std::int32_t> offsets;
    for (std::size_t at = first; at <= first + count; ++at) offsets.push_back(whole.offsets[at] - begin);
    return {{whole.tokens.begin() + begin, whole.tokens.begin() + end},
            {whole.targets.begin() + begin, whole.targets.begin() + end},
            offsets};
  }
  double step(std::uint64_t step, std::size_t size = 4) {
    gather(step, size);
    const double norm = std::sqrt(runner->gradient_sum_of_squares());
    EXPECT_TRUE(runner->step(StepId(step), norm, 32).ok());
    EXPECT_EQ(runner->gradient_sum_of_squares(), 0);
    return norm;
  }
  std::vector<std::uint32_t> bits() {
    std::vector<std::uint32_t> all;
    for (const Tensor& tensor : {table().value(), table().row_sums()}) {
      for (const float value : tensor.span<float>()) all.push_back(std::bit_cast<std::uint32_t>(value));
    }
    return all;
  }

  Bench bench;
  std::unique_ptr<SectionRunner> runner;
};

TEST(NGramMemory, steps_have_the_same_bits_in_micro_batches_of_one_and_of_four) {  // TB-2
  TrainedMemory whole, parts;
  for (std::uint64_t step = 1; step <= 5; ++step) EXPECT_EQ(whole.step(step, 4), parts.step(step, 1));
  EXPECT_EQ(whole.bits(), parts.bits());
}

TEST(NGramMemory, rows_without_an_id_keep_their_bits) {  // TB-1
  TrainedMemory memory;
  const NGramIds ids(memory_options().shape);
  std::set<std::int32_t> used;
  for (std::uint64_t step = 1; step <= 3; ++step) {
    const Batch batch = Batch::random(step, {9, 4, 12, 7}, 61);
    for (std::size_t sample = 0; sample < 4; ++sample) {
      const Batch own = TrainedMemory::samples(batch, sample, 1);
      std::vector<std::int32_t> rows(own.tokens.size() * 4);
      ids.rows_of({}, own.tokens, rows);
      used.insert(rows.begin(), rows.end());
    }
  }
  const std::span<float> values = memory.table().value().span<float>();
  constexpr std::uint32_t poison = 0x7fc12345;  // not a number, so that an operation on it would show
  std::size_t untouched = 0;
  for (std::int32_t row = 0; row < 256; ++row) {
    if (used.contains(row)) continue;
    ++untouched;
    for (std::size_t i = 0; i < 4; ++i) values[static_cast<std::size_t>(row) * 4 + i] = std::bit_cast<float>(poison);
  }
  ASSERT_GT(untouched, 20U);
  ASSERT_GT(used.size(), 20U);
  for (std::uint64_t step = 1; step <= 3; ++step) EXPECT_GT(memory.step(step), 0);
  for (std::int32_t row = 0; row < 256; ++row) {
    for (std::size_t i = 0; i < 4; ++i) {
      const auto found = std::bit_cast<std::uint32_t>(values[static_cast<std::size_t>(row) * 4 + i]);
      EXPECT_EQ(found == poison, !used.contains(row)) << row;
    }
  }
}

TEST(NGramMemory, clipping_scales_every_row_by_the_norm_of_merged_rows) {
  TrainedMemory free, clipped(constant_rate(0.5));
  const double norm = free.step(1);
  ASSERT_GT(norm, 0.5);
  EXPECT_EQ(clipped.step(1), norm);
  const double factor = 0.5 / norm;
  const std::span<float> sums = free.table().row_sums().span<float>(), less = clipped.table().row_sums().span<float>();
  for (std::size_t row = 0; row < sums.size(); ++row) EXPECT_NEAR(less[row], factor * factor * sums[row], 1e-6);
}

TEST(NGramMemory, a_table_is_outside_the_flat_buffers_and_has_no_moments) {  // TB-3
  TrainedMemory memory;
  Parameters& parameters = memory.runner->section().parameters();
  EXPECT_EQ(parameters.elements(), 0);
  EXPECT_TRUE(parameters.trained());
  EXPECT_TRUE(parameters.gradients().empty());
  const auto values = export_tensors(memory.runner->section(), ParameterBuffer::values);
  ASSERT_TRUE(values.ok()) << values.error().message;
  ASSERT_EQ(values->tensors.size(), 1U);
  EXPECT_EQ(values->tensors[0].name, "ngram_embedding.weight");
  const auto moments = export_tensors(memory.runner->section(), ParameterBuffer::first_moments);
  ASSERT_TRUE(moments.ok()) << moments.error().message;
  EXPECT_TRUE(moments->tensors.empty());
}

TEST(NGramMemory, a_folder_of_weights_gives_the_same_table) {  // IO-1
  TrainedMemory memory;
  memory.step(1);
  const TemporaryFolder folder;
  ASSERT_TRUE(save_weights(memory.runner->section(), folder.path()).ok());
  Bench bench;
  NGramMemory again(bench.context("other", false), memory_options());
  const Status loaded = load_weights(again, folder.path());
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  EXPECT_TRUE(
      std::ranges::equal(again.parameters().all().front().value().span<float>(), memory.table().value().span<float>()));
  NGramMemory::Options wider = memory_options();
  wider.shape.dim = 8;
  NGramMemory other(bench.context("other", false), wider);
  const Status refused = load_weights(other, folder.path());
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("ngram_embed_dim is 4, but the section has 8"), std::string::npos);
}

DecoderConfig reading_decoder() {
  DecoderConfig config = with_family({}, DecoderFamily::llama);
  config.layers = 2;
  config.width = 16;
  config.heads = 2;
  config.vocabulary = 37;
  config.positions = 24;
  config.memory = {.columns = 6, .orders = 3, .layer = 1};
  return resolved(config);
}

TEST(MemoryLayer, gradients_of_a_decoder_match_differences) {
  Bench bench;
  DecoderLm model(bench.context("lm", true), {reading_decoder(), {}});
  randomise(model, 3);
  const Batch batch = Batch::random(5, {9, 1, 12}, 37);
  std::vector<float> rows(batch.tokens.size() * 6);
  Random random(8);
  for (float& value : rows) value = static_cast<float>(random.normal());
  const Tensor memory(rows.data(), DType::f32, Shape{batch.rows(), 6});
  const Port& port = model.ports().inputs.back();
  EXPECT_EQ(port.name, "memory");
  EXPECT_EQ(port.columns, 6);
  expect_gradients_match_differences(bench, model, batch,
                                     [&](MicroBatch& pass) { pass.connect("memory", memory, true); });
}

TEST(MemoryLayer, weights_have_a_file_of_their_own_and_begin_at_random_without_it) {
  Bench bench;
  DecoderLm model(bench.context("lm", true), {reading_decoder(), {}});
  randomise(model, 3);
  const TemporaryFolder folder;
  ASSERT_TRUE(save_weights(model, folder.path()).ok());
  ASSERT_TRUE(std::filesystem::exists(folder.path() / memory_file));
  DecoderConfig without = reading_decoder();
  without.memory = {};
  DecoderLm plain(bench.context("lm", true), {without, {}});
  EXPECT_TRUE(load_weights(plain, folder.path()).ok()) << "a plain decoder leaves the memory's weights out";
  DecoderLm same(bench.context("lm", true), {reading_decoder(), {}});
  ASSERT_TRUE(load_weights(same, folder.path()).ok());
  EXPECT_TRUE(std::ranges::equal(same.parameters().values(), model.parameters().values()));
  std::filesystem::remove(folder.path() / memory_file);
  DecoderLm fresh(bench.context("lm", true), {reading_decoder(), {}});
  const auto key = [](DecoderLm& of) {
    return of.parameters().find("memory.layers.1.key_proj.weight")->value().span<float>();
  };
  const std::vector<float> before(key(fresh).begin(), key(fresh).end());
  ASSERT_TRUE(load_weights(fresh, folder.path()).ok());
  EXPECT_TRUE(std::ranges::equal(before, key(fresh)));
  DecoderLm frozen(bench.context("lm", false), {reading_decoder(), {}});
  const Status refused = load_weights(frozen, folder.path());
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("tensor 'memory.layers.1."), std::string::npos);
}

TEST(MemoryLayer, appended_tokens_have_the_logits_of_a_whole_prompt) {  // GN-1, HY-1
  Bench bench;
  NGramMemory::Options options = memory_options();
  options.shape = {4, 2, 50, 1, 37, 3, 9};
  NGramMemory memory(bench.context("memory", true), options);
  randomise(memory, 5);
  DecoderConfig config = reading_decoder();
  config.memory = {.columns = 6, .orders = 4, .layer = 1};
  DecoderLm model(bench.context("lm", true), {config, {}});
  randomise(model, 3);
  const TemporaryFolder folder;
  ASSERT_TRUE(save_weights(model, folder.path() / "model").ok());
  ASSERT_TRUE(save_weights(memory, folder.path() / "memory").ok());
  Generation generation(*bench.ops, folder.path() / "model", DType::f32, folder.path() / "memory");
  generation.reserve(3, 24);
  std::vector<std::int32_t> tokens{3, 5, 7, 7, 3, 9, 11, 5, 7, 2, 30, 36, 5, 7, 7, 3, 1, 4};
  const auto logits_after = [&](std::int64_t slot, std::size_t prompt) {
    generation.begin(slot, std::span(tokens).first(prompt));
    while (!generation.advance(slot)) {
    }
    for (std::size_t at = prompt; at < tokens.size(); ++at) {
      const NextToken next{slot, tokens[at]};
      generation.append(std::span(&next, 1));
    }
    const std::span<const float> logits = generation.logits();
    return std::vector<float>(logits.begin(), logits.end());
  };
  const std::vector<float> whole = logits_after(0, tokens.size());
  for (const std::size_t prompt : {1, 2, 9, 17}) {
    expect_near(logits_after(2, prompt), whole, 1e-4, "after " + std::to_string(prompt));
  }
  EXPECT_THROW(Generation(*bench.ops, folder.path() / "model", DType::f32), JobError);
  EXPECT_THROW(Generation(*bench.ops, folder.path() / "memory", DType::f32), JobError);
}

}  // namespace
}  // namespace maestro::testing
