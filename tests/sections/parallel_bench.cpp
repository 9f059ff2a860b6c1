// SPDX-License-Identifier: Apache-2.0
#include "tests/sections/parallel_bench.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <mutex>
#include <stdexcept>
#include <thread>

#include "runtime/collective/thread_group.hpp"
#include "runtime/ops/cpu/thread.hpp"
#include "sections/decoder/decoder_section.hpp"
#include "sections/parameter_holders.hpp"

namespace maestro::testing {

namespace {

Tensor borrowed(const std::vector<std::int32_t>& values) {
  return {const_cast<std::int32_t*>(values.data()), DType::i32, {static_cast<std::int64_t>(values.size()), 1}};
}

/// Returns the block of a complete tensor that a rank holds.
TensorBlock block_of(const Layout& layout, Sharding sharding, const Tensor& whole, std::int64_t rank) {
  const RowRange rows = layout.rows(sharding, whole.rows(), rank);
  const RowRange columns = layout.columns(sharding, whole.columns(), rank);
  return {rows.first, rows.count, columns.first, columns.count};
}

/// Calls copy(part, whole, bytes) for every row of the block; `part` is contiguous.
template <class Copy>
void for_rows(const Tensor& part, const Tensor& whole, const TensorBlock& block, Copy copy) {
  const std::size_t element = size_of(whole.dtype());
  const std::size_t bytes = static_cast<std::size_t>(block.columns) * element;
  for (std::int64_t row = 0; row < block.rows; ++row) {
    const auto at = static_cast<std::size_t>((block.row + row) * whole.columns() + block.column) * element;
    copy(part.raw() + static_cast<std::size_t>(row) * bytes, whole.raw() + at, bytes);
  }
}

OwnedTensor cut(const Tensor& whole, const TensorBlock& block) {
  OwnedTensor part(whole.dtype(), {block.rows, block.columns});
  for_rows(part, whole, block,
           [](std::byte* to, const std::byte* from, std::size_t bytes) { std::memcpy(to, from, bytes); });
  return part;
}

/// A complete tensor that is assembled from parts.
class Assembly {
 public:
  Assembly(DType dtype, Shape shape) : whole_(dtype, shape), seen_(dtype, shape) {}
  void put(const Tensor& part, const TensorBlock& block, const std::string& name) {
    ASSERT_EQ(part.dtype(), whole_.tensor().dtype()) << name;
    ASSERT_EQ(part.elements(), block.rows * block.columns) << name;
    for_rows(part, whole_, block, [&](const std::byte* from, std::byte* to, std::size_t bytes) {
      std::byte* seen = seen_.tensor().raw() + (to - whole_.tensor().raw());
      for (std::size_t i = 0; i < bytes; ++i) {
        const bool differs = seen[i] != std::byte{0} && to[i] != from[i];
        ASSERT_FALSE(differs) << name << ": ranks hold different bits";
        to[i] = from[i];
        seen[i] = std::byte{1};
      }
    });
  }
  [[nodiscard]] OwnedTensor take(const std::string& name) && {
    const std::size_t bytes = whole_.tensor().bytes();
    const auto held = std::count(seen_.tensor().raw(), seen_.tensor().raw() + bytes, std::byte{1});
    EXPECT_EQ(static_cast<std::size_t>(held), bytes) << name << ": no rank holds the rest";
    return std::move(whole_);
  }

 private:
  OwnedTensor whole_;
  OwnedTensor seen_;  // marks each byte that was set
};

const Port& port_of(const std::vector<Port>& ports, const std::string& name) {
  for (const Port& port : ports) {
    if (port.name == name) return port;
  }
  throw std::out_of_range("the section has no port " + name);
}

}  // namespace

void add_metrics(std::vector<MetricSum>& sums, const std::vector<MetricSum>& more) {
  for (const MetricSum& metric : more) {
    const auto found = std::ranges::find(sums, metric.name, &MetricSum::name);
    if (found == sums.end()) {
      sums.push_back(metric);
    } else {
      found->sum += metric.sum;
      found->weight += metric.weight;
    }
  }
}

const MetricSum& ParallelPass::metric(const std::string& name) const {
  const auto found = std::ranges::find(metrics, name, &MetricSum::name);
  if (found == metrics.end()) throw std::out_of_range("metric " + name);
  return *found;
}

struct ParallelBench::Work {
  const Batch* batch = nullptr;
  Pass pass = Pass::train;
  std::vector<Feed> feeds;
  const std::map<std::string, Tensor>* output_gradients = nullptr;

  std::vector<std::vector<MetricSum>> metrics;  // by rank

  std::mutex mutex;  // over the members below
  std::map<std::string, Assembly> outputs;
  std::map<std::string, Assembly> input_gradients;

  void put(std::map<std::string, Assembly>& into, const std::string& name, const Tensor& part, const Tensor& whole,
           const TensorBlock& block) {
    const std::lock_guard lock(mutex);
    into.try_emplace(name, whole.dtype(), whole.shape()).first->second.put(part, block, name);
  }
};

ParallelBench::ParallelBench(Layout layout, const SectionContext& context, const Build& build) : layout_(layout) {
  std::vector<ParallelContext> ranks;
  for (std::int64_t rank = 0; rank < layout.ranks(); ++rank) ranks.push_back({layout, rank});
  for (const RankGroup& group : rank_groups(layout)) {
    std::int64_t rank = group.first;
    for (std::unique_ptr<Communicator>& made : make_thread_group(group.size)) {
      ranks[static_cast<std::size_t>(rank)].*group.member = groups_.emplace_back(std::move(made)).get();
      rank += group.stride;
    }
  }
  for (const ParallelContext& rank : ranks) {
    SectionContext own = context;
    own.parallel = rank;
    ranks_.push_back({own, build(own), std::make_unique<Arena>()});
  }
}

void ParallelBench::on_every_rank(const std::function<void(Rank&)>& work) {
  std::exception_ptr first;
  std::mutex mutex;
  std::vector<std::thread> threads;
  for (Rank& rank : ranks_) {
    threads.emplace_back([&] {
      try {
        cpu::prepare_thread();
        work(rank);
      } catch (...) {
        {
          const std::lock_guard lock(mutex);
          if (!first) first = std::current_exception();
        }
        const ParallelContext& parallel = rank.context.parallel;
        for (Communicator* group : parallel.groups()) {
          if (group != nullptr) group->abort("rank " + std::to_string(parallel.rank) + " failed");
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (first) std::rethrow_exception(first);
}

void ParallelBench::run_rank(Rank& rank, Work& work) {
  const Ports ports = rank.section->ports();
  const std::int64_t number = rank.context.parallel.rank;
  Parameters& parameters = rank.section->parameters();
  std::ranges::fill(parameters.gradients(), 0.0f);
  std::vector<OwnedTensor> held;  // inputs; before the tape, which refers to them
  const bool train = work.pass == Pass::train;
  Tape tape(*rank.context.ops, *rank.arena, rank.context.precision, train);
  Outputs outputs;
  Inputs inputs(work.pass, work.batch->samples, work.batch->layout(), 1.0 / work.batch->target_tokens(),
                work.batch->patches(), work.batch->visual());
  inputs.set_token_scale(1.0 / static_cast<double>(work.batch->tokens.size()));
  for (const Feed& feed : work.feeds) {
    const TensorBlock block = block_of(layout_, port_of(ports.inputs, feed.port).sharding, feed.whole, number);
    held.push_back(cut(feed.whole, block));
    inputs.set(feed.port, tape.input(held.back(), feed.differentiable));
    if (!feed.taken.empty()) inputs.set_taken(feed.port, feed.taken);
  }
  rank.section->forward(tape, inputs, outputs);
  work.metrics[static_cast<std::size_t>(number)] = outputs.metrics();
  for (const Port& port : ports.outputs) {
    const Tensor whole(nullptr, port.dtype, {work.batch->layout_of(port.axis).rows(), port.columns});
    const Var& value = *outputs.find(port.name);
    work.put(work.outputs, port.name, value.value(), whole, block_of(layout_, port.sharding, whole, number));
    const auto gradient = work.output_gradients->find(port.name);
    if (!train || gradient == work.output_gradients->end()) continue;
    held.push_back(cut(gradient->second, block_of(layout_, port.sharding, gradient->second, number)));
    tape.seed(value, held.back());
  }
  if (!train) return;
  tape.backward();
  for (const Feed& feed : work.feeds) {
    if (!feed.differentiable) continue;
    const TensorBlock block = block_of(layout_, port_of(ports.inputs, feed.port).sharding, feed.whole, number);
    const OwnedTensor zero(feed.whole.dtype(), {block.rows, block.columns});
    const Tensor& gradient = inputs[feed.port].gradient();
    work.put(work.input_gradients, feed.port, gradient.defined() ? gradient : zero.tensor(), feed.whole, block);
  }
  if (parameters.trained()) sum_over_holders(parameters, rank.context.parallel);
}

ParallelPass ParallelBench::run(const Batch& batch, Pass pass, const std::vector<Feed>& feeds,
                                const std::map<std::string, Tensor>& output_gradients) {
  Work work;
  work.batch = &batch;
  work.pass = pass;
  work.feeds = feeds;
  work.output_gradients = &output_gradients;
  work.metrics.resize(ranks_.size());
  for (const Port& port : ranks_.front().section->ports().inputs) {
    if (port.name == "tokens") work.feeds.push_back({port.name, borrowed(batch.tokens)});
    if (port.name == "targets") work.feeds.push_back({port.name, borrowed(batch.targets)});
  }
  on_every_rank([&](Rank& rank) { run_rank(rank, work); });
  ParallelPass result;
  for (const std::vector<MetricSum>& metrics : work.metrics) add_metrics(result.metrics, metrics);
  for (auto& [name, assembly] : work.outputs) result.outputs.emplace(name, std::move(assembly).take(name));
  for (auto& [name, assembly] : work.input_gradients) {
    result.input_gradients.emplace(name, std::move(assembly).take(name));
  }
  for (const Rank& rank : ranks_) EXPECT_EQ(rank.arena->used_bytes(), 0U);
  return result;
}

void ParallelBench::set_routes(RouteHook* hook) {
  for (const Rank& rank : ranks_) dynamic_cast<DecoderSection&>(*rank.section).set_routes(hook);
}

std::vector<Section*> ParallelBench::holders(std::int64_t copy) {
  std::vector<Section*> sections;
  for (std::int64_t rank = 0; rank < layout_.holders(); ++rank) {
    sections.push_back(&section(copy * layout_.holders() + rank));
  }
  return sections;
}

TensorSnapshot ParallelBench::whole(ParameterBuffer which) {
  TensorSnapshot first = export_tensors(holders(), which).value_or_throw();
  for (std::int64_t copy = 1; copy < layout_.ranks() / layout_.holders(); ++copy) {
    expect_same(export_tensors(holders(copy), which).value_or_throw(), first);
  }
  return first;
}

void ParallelBench::load(const TensorSnapshot& values) {
  for (Rank& rank : ranks_) {
    import_tensors(*rank.section, ParameterBuffer::values, values.tensors, "snapshot").or_throw();
  }
}

double ParallelBench::gradient_sum_of_squares() {
  const OperatorTable& ops = *ranks_.front().context.ops;
  double sum = 0;
  for (const Rank& rank : ranks_) {
    for (const HeldGradients& held : held_gradients(rank.section->parameters(), rank.context.parallel)) {
      for (std::size_t at = 0; held.counted && at < held.spans.size(); ++at) {
        sum += ops.run(SumOfSquares{.values = held.spans[at]});
      }
    }
  }
  return sum;
}

void expect_close(const TensorSnapshot& found, const TensorSnapshot& expected, double tolerance, double floor) {
  ASSERT_EQ(found.tensors.size(), expected.tensors.size());
  const auto values = [](const ConstTensor& tensor) {
    const std::span<const float> span = tensor.span<float>();
    return Values(span.begin(), span.end());
  };
  for (std::size_t i = 0; i < found.tensors.size(); ++i) {
    EXPECT_EQ(found.tensors[i].name, expected.tensors[i].name);
    EXPECT_LE(worst_error(values(found.tensors[i].tensor), values(expected.tensors[i].tensor), floor), tolerance)
        << found.tensors[i].name;
  }
}

void expect_same(const TensorSnapshot& found, const TensorSnapshot& expected) {
  ASSERT_EQ(found.tensors.size(), expected.tensors.size());
  for (std::size_t i = 0; i < found.tensors.size(); ++i) {
    const ConstTensor& a = found.tensors[i].tensor;
    const ConstTensor& b = expected.tensors[i].tensor;
    EXPECT_EQ(found.tensors[i].name, expected.tensors[i].name);
    ASSERT_EQ(a.shape(), b.shape()) << found.tensors[i].name;
    EXPECT_EQ(std::memcmp(a.raw(), b.raw(), a.bytes()), 0) << found.tensors[i].name;
  }
}

}  // namespace maestro::testing
