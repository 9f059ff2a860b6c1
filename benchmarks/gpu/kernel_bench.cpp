// SPDX-License-Identifier: Apache-2.0
// Times single operators of a device's table at a model's sizes, a JSON object per line: bytes moved and FLOPs computed
// in the measured time. The first line is a copy on the same device, the reference for the other lines' bandwidths.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <map>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "benchmarks/gpu/bench_device.hpp"
#include "runtime/core/random.hpp"
#include "runtime/core/result.hpp"

namespace maestro::bench {
namespace {

/// Sizes of the operands: M rows of width C, the MLP's inner width F, the vocabulary V, and P parameters.
struct Sizes {
  std::int64_t rows = 32768;
  std::int64_t width = 768;
  std::int64_t inner = 3072;
  std::int64_t heads = 12;
  std::int64_t sequence = 1024;
  std::int64_t vocabulary = 50257;
  std::int64_t parameters = 124'000'000;
};

struct Case {
  std::string name;
  double bytes = 0;  ///< bytes that have to be read or written, each once
  double flops = 0;  ///< FLOPs in products and attention; 0 for operators bound by memory
  std::function<void()> run;
};

class Operators {
 public:
  Operators(BenchDevice& device, const Sizes& sizes, DType compute)
      : device_(device), ops_(device.ops()), sizes_(sizes), act_(compute), memory_(ops_.memory()) {}

  /// Runs the operator named `only`, or all if it is empty.
  void run(int repeats, const std::string& only) {
    device_.run([this] { make_cases(); });
    for (const Case& each : cases_) {
      if (only.empty() || each.name == only) print(each, milliseconds(each, repeats));
    }
    device_.run([this] {
      cases_.clear();
      weights_.clear();
      blocks_.clear();
    });
  }

 private:
  static constexpr int warmup = 3;

  [[nodiscard]] Tensor tensor(Shape shape, DType dtype) {
    const Tensor sized(nullptr, dtype, shape);
    blocks_.emplace_back(memory_, sized.bytes());
    return {blocks_.back().data(), dtype, shape};
  }
  /// Returns small random values, because products of zeros are faster than a model's products.
  [[nodiscard]] Tensor random(Shape shape, DType dtype) {
    const Tensor drawn = tensor(shape, DType::f32);
    std::vector<float> values(static_cast<std::size_t>(shape.elements()));
    Random random(7, blocks_.size());
    for (float& value : values) value = static_cast<float>(random.uniform() - 0.5);
    memory_.write(drawn.raw(), reinterpret_cast<const std::byte*>(values.data()), drawn.bytes());
    if (dtype == DType::f32) return drawn;
    Tensor cast = tensor(shape, dtype);
    ops_.run(Cast{.from = drawn, .to = cast});
    return cast;
  }
  [[nodiscard]] Tensor indices(std::int64_t count, std::int64_t below) {
    std::vector<std::int32_t> values(static_cast<std::size_t>(count));
    for (std::size_t at = 0; at < values.size(); ++at) {
      values[at] = static_cast<std::int32_t>(static_cast<std::int64_t>(at) % below);
    }
    const Tensor made = tensor({count}, DType::i32);
    memory_.write(made.raw(), reinterpret_cast<const std::byte*>(values.data()), made.bytes());
    return made;
  }
  void add(std::string name, double bytes, std::function<void()> run, double flops = 0) {
    cases_.push_back({std::move(name), bytes, flops, std::move(run)});
  }
  static double bytes_of(std::initializer_list<Tensor> tensors) {
    double bytes = 0;
    for (const Tensor& each : tensors) bytes += static_cast<double>(each.bytes());
    return bytes;
  }

  void make_cases() {
    const Tensor from = random({sizes_.rows, sizes_.inner}, act_);
    const Tensor to = tensor({sizes_.rows, sizes_.inner}, act_);
    add("copy", bytes_of({from, to}), [=, this] { ops_.copy(from, to); });
    add("gelu", bytes_of({from, to}), [=, this] { ops_.run(Gelu{.x = from, .y = to}); });
    const Tensor dy = random({sizes_.rows, sizes_.inner}, act_);
    add("gelu_backward", bytes_of({dy, from, to}),
        [=, this] { ops_.run(GeluBackward{.dy = dy, .x = from, .dx = to}); });
    const Tensor half = tensor({sizes_.rows, sizes_.inner / 2}, act_);
    add("swiglu", bytes_of({from, half}), [=, this] { ops_.run(Glu{.x = from, .y = half}); });
    add("swiglu_backward", bytes_of({half, from, to}),
        [=, this] { ops_.run(GluBackward{.dy = half, .x = from, .dx = to}); });
    make_norms();
    make_positions();
    make_products();
    make_output_layer();
    make_attention();
    make_flat();
  }
  void make_norms() {
    const Shape shape{sizes_.rows, sizes_.width};
    const Tensor x = random(shape, DType::f32);
    const Tensor branch = random(shape, act_);
    const Tensor y = tensor(shape, act_);
    const Tensor sum = tensor(shape, DType::f32);
    const Tensor weight = random({sizes_.width}, DType::f32);
    const Tensor bias = random({sizes_.width}, DType::f32);
    const Tensor dweight = tensor({sizes_.width}, DType::f32);
    const Tensor dbias = tensor({sizes_.width}, DType::f32);
    const Tensor mean = tensor({sizes_.rows}, DType::f32);
    const Tensor rstd = tensor({sizes_.rows}, DType::f32);
    constexpr double epsilon = 1e-5;
    add("layer_norm", bytes_of({x, y}), [=, this] {
      ops_.run(Norm{.x = x, .weight = weight, .bias = bias, .epsilon = epsilon, .y = y, .mean = mean, .rstd = rstd});
    });
    add("add_layer_norm", bytes_of({x, branch, sum, y}), [=, this] {
      ops_.run(Norm{.x = x,
                    .added = branch,
                    .sum = sum,
                    .weight = weight,
                    .bias = bias,
                    .epsilon = epsilon,
                    .y = y,
                    .mean = mean,
                    .rstd = rstd});
    });
    add("layer_norm_backward", bytes_of({branch, x, sum, sum, y}), [=, this] {
      ops_.run(NormBackward{.dy = branch,
                            .x = x,
                            .weight = weight,
                            .mean = mean,
                            .rstd = rstd,
                            .dx = sum,
                            .accumulate = true,
                            .rounded = y,
                            .dweight = dweight,
                            .dbias = dbias});
    });
    add("add_rms_norm", bytes_of({x, branch, sum, y}), [=, this] {
      ops_.run(Norm{.x = x, .added = branch, .sum = sum, .weight = weight, .epsilon = epsilon, .y = y, .rstd = rstd});
    });
    add("rms_norm_backward", bytes_of({branch, x, sum, sum, y}), [=, this] {
      ops_.run(NormBackward{.dy = branch,
                            .x = x,
                            .weight = weight,
                            .rstd = rstd,
                            .dx = sum,
                            .accumulate = true,
                            .rounded = y,
                            .dweight = dweight});
    });
    add("cast", bytes_of({x, y}), [=, this] { ops_.run(Cast{.from = x, .to = y}); });
    add("add", bytes_of({x, branch, sum}), [=, this] { ops_.run(Add{.a = x, .b = branch, .out = sum}); });
  }
  void make_positions() {
    const Tensor table = random({sizes_.vocabulary, sizes_.width}, DType::f32);
    const Tensor dtable = tensor({sizes_.vocabulary, sizes_.width}, DType::f32);
    const Tensor ids = indices(sizes_.rows, sizes_.vocabulary);
    const Tensor positions = indices(sizes_.rows, sizes_.sequence);
    const Tensor y = tensor({sizes_.rows, sizes_.width}, DType::f32);
    add("embedding", bytes_of({y, y}), [=, this] {
      ops_.run(Embedding{.table = table, .ids = ids, .positions = positions.span<std::int32_t>(), .y = y});
    });
    add("embedding_backward", bytes_of({y, y, y}), [=, this] {
      ops_.run(EmbeddingBackward{.dy = y, .ids = ids, .positions = positions.span<std::int32_t>(), .dtable = dtable});
    });
    const AttentionShape shape = attention_shape();
    const Tensor qkv = random({sizes_.rows, shape.qkv_columns()}, act_);
    RotaryFrequencies frequencies;
    for (std::int64_t i = 0; i < shape.head_size / 2; ++i) {
      frequencies.inverse.push_back(
          std::pow(10000.0, -2.0 * static_cast<double>(i) / static_cast<double>(shape.head_size)));
    }
    add("rotary", bytes_of({qkv, qkv}) * 2 / 3, [=, this] {
      ops_.run(Rotary{.qkv = qkv,
                      .shape = shape,
                      .positions = positions.span<std::int32_t>(),
                      .frequencies = &frequencies,
                      .direction = 1});
    });
  }
  void make_products() {
    const Tensor x = random({sizes_.rows, sizes_.width}, act_);
    const Tensor w = random({sizes_.inner, sizes_.width}, DType::f32);
    const Tensor bias = random({sizes_.inner}, DType::f32);
    const Tensor y = tensor({sizes_.rows, sizes_.inner}, act_);
    const Tensor pre = tensor({sizes_.rows, sizes_.inner}, act_);
    const Tensor dw = tensor({sizes_.inner, sizes_.width}, DType::f32);
    const Tensor dbias = tensor({sizes_.inner}, DType::f32);
    const Tensor dx = tensor({sizes_.rows, sizes_.width}, act_);
    const double flops = 2.0 * static_cast<double>(sizes_.rows * sizes_.width * sizes_.inner);
    const PackedWeight& forward = pack(w, PackFor::forward);
    const PackedWeight& backward = pack(w, PackFor::backward_input);
    add(
        "linear", bytes_of({x, w, y}),
        [=, this, &forward] { ops_.run(Linear{.x = x, .w = &forward, .bias = bias, .y = y}); }, flops);
    add(
        "linear_gelu", bytes_of({x, w, y, pre}),
        [=, this, &forward] {
          ops_.run(Linear{.x = x, .w = &forward, .bias = bias, .y = y, .activation = GeluKind::tanh, .pre = pre});
        },
        flops);
    add(
        "linear_backward_input", bytes_of({y, w, dx}),
        [=, this, &backward] { ops_.run(LinearBackwardInput{.dy = y, .w = &backward, .dx = dx}); }, flops);
    add(
        "linear_backward_weight", bytes_of({y, x, dw}),
        [=, this] { ops_.run(LinearBackwardWeight{.dy = y, .x = x, .dw = dw, .dbias = dbias}); }, flops);
  }
  void make_output_layer() {
    CrossEntropyHead head;
    head.hidden = random({sizes_.rows, sizes_.width}, act_);
    const Tensor w = random({sizes_.vocabulary, sizes_.width}, DType::f32);
    head.head = &pack(w, PackFor::forward);
    head.head_backward = &pack(w, PackFor::backward_input);
    head.vocabulary = sizes_.vocabulary;
    head.targets = indices(sizes_.rows, sizes_.vocabulary);
    head.scale = 1.0 / static_cast<double>(sizes_.rows);
    head.dhidden = tensor(head.hidden.shape(), act_);
    head.dhead = tensor(w.shape(), DType::f32);
    const double flops = 6.0 * static_cast<double>(sizes_.rows * sizes_.width * sizes_.vocabulary);
    add(
        "cross_entropy_head", bytes_of({head.hidden, head.dhidden, w, w, head.dhead}),
        [=, this] { static_cast<void>(ops_.run(CrossEntropyLoss{.head = head})); }, flops);
  }
  [[nodiscard]] const PackedWeight& pack(const Tensor& w, PackFor use) {
    Tensor values = w;
    if (ops_.takes_plain_weights() && act_ != w.dtype()) {
      values = tensor(w.shape(), act_);
      ops_.run(Cast{.from = w, .to = values});
    }
    weights_.push_back(ops_.pack(values, act_, use, nullptr));
    return *weights_.back();
  }
  [[nodiscard]] AttentionShape attention_shape() const {
    return {sizes_.heads, sizes_.heads, sizes_.width / sizes_.heads, true};
  }
  void make_attention() {
    const AttentionShape shape = attention_shape();
    const Tensor qkv = random({sizes_.rows, shape.qkv_columns()}, act_);
    const Tensor out = tensor({sizes_.rows, shape.out_columns()}, act_);
    const Tensor dqkv = tensor({sizes_.rows, shape.qkv_columns()}, act_);
    const Tensor lse = tensor({sizes_.rows, sizes_.heads}, DType::f32);
    for (std::int64_t row = 0; row <= sizes_.rows; row += sizes_.sequence) {
      offsets_.push_back(static_cast<std::int32_t>(row));
    }
    const Tensor positions = indices(sizes_.rows, sizes_.sequence);
    const Tensor on_device = tensor({static_cast<std::int64_t>(offsets_.size())}, DType::i32);
    memory_.write(on_device.raw(), reinterpret_cast<const std::byte*>(offsets_.data()), on_device.bytes());
    SequenceLayout layout{offsets_, positions.span<std::int32_t>()};
    if (!memory_.host()) layout.device_offsets = on_device.span<std::int32_t>();
    // Scores and their product with the values, causal half: each head has 2 products of T x T / 2 x D.
    const double flops = 2.0 * static_cast<double>(sizes_.rows * sizes_.sequence * sizes_.width);
    add(
        "attention", bytes_of({qkv, out}),
        [=, this] { ops_.run(Attention{.qkv = qkv, .shape = shape, .layout = layout, .out = out, .lse = lse}); },
        flops);
    add(
        "attention_backward", bytes_of({out, qkv, out, dqkv}),
        [=, this] {
          ops_.run(AttentionBackward{
              .dout = out, .qkv = qkv, .out = out, .lse = lse, .shape = shape, .layout = layout, .dqkv = dqkv});
        },
        2.5 * flops);
  }
  void make_flat() {
    const Tensor value = random({sizes_.parameters}, DType::f32);
    const Tensor gradient = random({sizes_.parameters}, DType::f32);
    const Tensor rounded = tensor({sizes_.parameters}, DType::bf16);
    AdamWStep step;
    step.lr = 1e-4;
    for (const DType moments : {DType::f32, DType::bf16}) {
      const Tensor mean = tensor({sizes_.parameters}, moments);
      const Tensor variance = tensor({sizes_.parameters}, moments);
      const char* const name = moments == DType::f32 ? "adamw" : "adamw_bf16_moments";
      add(name, bytes_of({value, gradient, mean, variance}) * 2 + bytes_of({rounded}), [=, this] {
        ops_.run(AdamW{.value = value.span<float>(),
                       .gradient = gradient.span<float>(),
                       .mean = mean,
                       .variance = variance,
                       .step = step,
                       .rounded = rounded.span<bfloat16>()});
      });
    }
    add("sum_of_squares", bytes_of({gradient}),
        [=, this] { static_cast<void>(ops_.run(SumOfSquares{.values = gradient.span<float>()})); });
  }

  [[nodiscard]] double milliseconds(const Case& each, int repeats) {
    const std::unique_ptr<WorkTimer> timer = device_.device().timer();
    device_.run([&] {
      for (int run = 0; run < warmup; ++run) each.run();
      timer->mark();
      for (int run = 0; run < repeats; ++run) each.run();
      timer->mark();
    });
    return timer->milliseconds(0, 1) / repeats;
  }
  static void print(const Case& each, double ms) {
    nlohmann::json line{
        {"operator", each.name}, {"ms", ms}, {"bytes", each.bytes}, {"gb_per_s", each.bytes / ms / 1e6}};
    if (each.flops > 0) line["tflops"] = each.flops / ms / 1e9;
    std::cout << line.dump() << std::endl;
  }

  BenchDevice& device_;
  const OperatorTable& ops_;
  Sizes sizes_;
  DType act_;
  MemorySpace& memory_;
  std::vector<SpaceMemory> blocks_;
  std::vector<std::unique_ptr<PackedWeight>> weights_;
  std::vector<std::int32_t> offsets_;
  std::vector<Case> cases_;
};

}  // namespace
}  // namespace maestro::bench

int main(int count, char** words) {
  using maestro::bench::Sizes;
  try {
    std::string device = "cuda:0";
    std::string sizes = "gpt2-124m";
    std::string only;
    std::string repeats = "20";
    const std::map<std::string, std::string*> options{
        {"--device", &device}, {"--sizes", &sizes}, {"--operator", &only}, {"--repeats", &repeats}};
    for (int at = 1; at < count; at += 2) {
      const auto option = options.find(words[at]);
      if (option == options.end() || at + 1 == count) {
        throw maestro::JobError(
            "usage: kernel_bench [--device cuda:0|cpu] [--sizes gpt2-124m|tiny]\n"
            "                    [--operator NAME] [--repeats N]");
      }
      *option->second = words[at + 1];
    }
    Sizes of_model;
    if (sizes == "tiny") of_model = {256, 64, 128, 4, 64, 503, 10'000};
    maestro::bench::BenchDevice opened(device);
    maestro::bench::Operators(opened, of_model, maestro::DType::bf16)
        .run(std::max(1, std::atoi(repeats.c_str())), only);
    return 0;
  } catch (const std::exception& failed) {
    std::cerr << "kernel_bench: " << failed.what() << '\n';
    return 1;
  }
}
