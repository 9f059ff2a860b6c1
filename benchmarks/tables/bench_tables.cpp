// SPDX-License-Identifier: Apache-2.0
// Steps of a table that is trained by rows, on one core: lookups of 4,096 samples x 26 ids x 64 columns, gradients of
// as many rows, norm and row-wise AdaGrad. The ids are the same at every size: 65,536 rows spread over the table.
//   bench_tables steps ROWS STEPS   a JSON line with the median CPU times of a step
//   bench_tables exchange ROWS      a JSON line with the bytes that two replicas exchange in a step
#include <ctime>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "actors/replica/reduction/row_exchange.hpp"
#include "runtime/core/random.hpp"
#include "runtime/ops/cpu/cpu_operator_table.hpp"
#include "sections/optimizer.hpp"

namespace maestro {
namespace {

constexpr std::int64_t samples = 4096, features = 26, columns = 64, distinct = 65536;
constexpr std::int64_t reads = samples * features;

/// CPU time of the process, user and system, in ms.
double cpu_ms() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) / 1e6;
}

/// Returns the ids of a step; torch_step.py draws the same.
std::vector<std::int32_t> ids_of(std::int64_t rows, std::int64_t step) {
  std::vector<std::int32_t> ids;
  for (std::int64_t read = 0; read < reads; ++read) {
    const std::uint64_t drawn =
        mix64(static_cast<std::uint64_t>(read) * golden_gamma + static_cast<std::uint64_t>(step)) % distinct;
    ids.push_back(static_cast<std::int32_t>(static_cast<std::int64_t>(drawn) * (rows / distinct)));
  }
  return ids;
}

/// A table and its optimizer.
class BenchTable {
 public:
  explicit BenchTable(std::int64_t rows) : optimizer_(settings(), 1000) {
    parameters_.add({.name = "table",
                     .shape = Shape{rows, columns},
                     .initialise = nullptr,
                     .rule = {.kind = UpdateRule::Kind::row_adagrad, .per_token = features, .rate = 1},
                     .initialise_row = [](std::span<float> row, std::int64_t number) {
                       std::ranges::fill(row, static_cast<float>(number % 7));
                     }});
    parameters_.allocate(true);
  }
  [[nodiscard]] Parameter& table() { return parameters_.all().front(); }
  [[nodiscard]] Parameters& parameters() { return parameters_; }
  void look_up(std::span<const std::int32_t> ids, const Tensor& to) {
    ops_.run(IndexSelect{.from = table().value(), .index = ids, .to = to});
  }
  void add(std::span<const std::int32_t> ids, const ConstTensor& gradients) {
    parameters_.begin_backward(0);
    table().row_gradients()->add(ids, gradients);
  }
  [[nodiscard]] double norm() { return table().row_gradients()->sum_of_squares(); }
  void step() { optimizer_.step(ops_, parameters_, 1, 1); }

 private:
  static OptimizerConfig settings() {
    OptimizerConfig config;
    config.lr = 0.01;
    config.schedule = LearningRateSchedule::constant;
    return config;
  }
  cpu::CpuOperatorTable ops_;
  AdamWOptimizer optimizer_;
  Parameters parameters_;
};

double median(std::vector<double> values) {
  std::ranges::nth_element(values, values.begin() + std::ssize(values) / 2);
  return values[values.size() / 2];
}

void time_steps(std::int64_t rows, std::int64_t steps) {
  BenchTable table(rows);
  std::vector<float> found(reads * columns), gradients(reads * columns);
  for (std::size_t i = 0; i < gradients.size(); ++i) gradients[i] = static_cast<float>(i % 13) / 100;
  const Shape shape{reads, columns};
  std::vector<double> look_up, merge, step;
  for (std::int64_t number = 0; number < steps + 2; ++number) {
    const std::vector<std::int32_t> ids = ids_of(rows, number);
    const double begin = cpu_ms();
    table.look_up(ids, Tensor(found.data(), DType::f32, shape));
    const double looked_up = cpu_ms();
    table.add(ids, Tensor(gradients.data(), DType::f32, shape));
    (void)table.norm();
    const double merged = cpu_ms();
    table.step();
    const double stepped = cpu_ms();
    if (number < 2) continue;  // warms up
    look_up.push_back(looked_up - begin);
    merge.push_back(merged - looked_up);
    step.push_back(stepped - merged);
  }
  std::vector<double> all;
  for (std::size_t i = 0; i < step.size(); ++i) all.push_back(look_up[i] + merge[i] + step[i]);
  std::printf(
      "{\"program\": \"maestro\", \"rows\": %lld, \"step_ms\": %.2f, \"look_up_ms\": %.2f, \"merge_ms\": %.2f, "
      "\"update_ms\": %.2f}\n",
      static_cast<long long>(rows), median(all), median(look_up), median(merge), median(step));
}

/// Runs an operation of both members.
void run(std::vector<std::unique_ptr<RowExchange>>& exchanges, Operation operation) {
  for (const auto& each : exchanges) each->begin(operation);
  while (!exchanges[0]->complete() || !exchanges[1]->complete()) {
    for (const auto& each : exchanges) {
      auto next = each->next_job();
      if (!next) continue;
      (void)next->job();
      each->job_done();
    }
  }
}

/// Two replicas in this process, each with half of a step's reads.
void exchange(std::int64_t rows) {
  SectionGraph graph;
  GraphNode node;
  node.name = "table";
  node.role = Role::trained;
  node.replicas = 2;
  graph.add(node);
  Network network(NetworkOptions(), false);
  std::vector<std::unique_ptr<BenchTable>> tables;
  std::vector<std::unique_ptr<RowExchange>> exchanges;
  Directory directory;
  for (std::uint32_t replica = 0; replica < 2; ++replica) {
    tables.push_back(std::make_unique<BenchTable>(rows));
    RowExchangeOptions options;
    options.links = {replicas_of(graph, SectionId(0)), replica, ReductionKind::rows, {}, ProcessId(0), 0};
    options.tables = tables.back()->parameters().row_tables();
    options.most_tokens = samples;
    exchanges.push_back(std::make_unique<RowExchange>(std::move(options), network));
    ReplicaAddress address;
    address.section = SectionId(0);
    address.replica = ReplicaIndex(replica);
    address.process = ProcessId(0);
    address.reductions.resize(reduction_kinds);
    directory.processes.emplace_back().replicas.push_back(address);
  }
  std::size_t gradient_bytes = 0, stepped_bytes = 0;
  for (const auto& each : exchanges) {
    RowExchange& other = *exchanges[each == exchanges[0] ? 1 : 0];
    ExchangeOutbox outbox;
    outbox.hand_over = [&](const caf::actor&, const ShardHandOver& message) {
      (message.sum ? stepped_bytes : gradient_bytes) += message.bytes.size();
      other.handed_over(message);
    };
    outbox.shard_read = [&other](const caf::actor&, const ShardRead& read) { other.shard_read(read); };
    each->connect(directory, outbox);
  }
  const std::vector<float> gradients(reads * columns, 0.01F);
  const auto owned = static_cast<std::int64_t>(shard_range(static_cast<std::size_t>(rows), 2, 0).count);
  std::set<std::int32_t> stepped;
  std::size_t foreign = 0;
  std::vector<double> times;
  for (std::int64_t number = 0; number < 7; ++number) {
    const std::vector<std::int32_t> ids = ids_of(rows, number);
    gradient_bytes = stepped_bytes = foreign = 0;
    stepped.clear();
    for (std::size_t replica = 0; replica < 2; ++replica) {
      const auto own = std::span(ids).subspan(replica * reads / 2, reads / 2);
      tables[replica]->add(own, ConstTensor(gradients.data(), DType::f32, Shape{reads / 2, columns}));
      const std::set<std::int32_t> read(own.begin(), own.end());
      stepped.insert(read.begin(), read.end());
      const auto is_foreign = [&](std::int32_t id) { return (id < owned) == (replica == 1); };
      foreign += static_cast<std::size_t>(std::ranges::count_if(read, is_foreign));
    }
    const double begin = cpu_ms();
    run(exchanges, Operation::sum_to_shards);
    for (const auto& table : tables) table->step();
    run(exchanges, Operation::gather_values);
    if (number >= 2) times.push_back(cpu_ms() - begin);
  }
  constexpr std::size_t row = 4 + 4 * columns, count = 4;
  std::printf(
      "{\"rows\": %lld, \"read\": %zu, \"up_bytes\": %zu, \"up_formula\": %zu, \"down_bytes\": %zu, "
      "\"down_formula\": %zu, \"whole_tables_bytes\": %lld, \"ms\": %.2f}\n",
      static_cast<long long>(rows), stepped.size(), gradient_bytes, 2 * count + foreign * row, stepped_bytes,
      2 * count + stepped.size() * (row + 4), static_cast<long long>(8 * rows * columns), median(times));
}

}  // namespace
}  // namespace maestro

int main(int count, char** words) {
  const auto number = [&](int at) {
    std::int64_t value = 0;
    if (at < count) std::from_chars(words[at], words[at] + std::string_view(words[at]).size(), value);
    return value;
  };
  const std::string_view what = count > 1 ? words[1] : "";
  if (what == "steps" && number(2) >= maestro::distinct && number(3) > 0) {
    maestro::time_steps(number(2), number(3));
  } else if (what == "exchange" && number(2) >= maestro::distinct) {
    maestro::exchange(number(2));
  } else {
    std::fprintf(stderr, "error: bench_tables steps ROWS STEPS, or exchange ROWS; ROWS is 65536 or more\n");
    return 2;
  }
  return 0;
}
