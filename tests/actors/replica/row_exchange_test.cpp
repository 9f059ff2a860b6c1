// SPDX-License-Identifier: Apache-2.0
// Replicas of a table that is trained by rows, in one process: what they exchange, and that all copies stay equal.
#include "actors/replica/reduction/row_exchange.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <set>

#include "runtime/core/random.hpp"
#include "runtime/ops/cpu/cpu_operator_table.hpp"
#include "sections/optimizer.hpp"
#include "tests/actors/actor_bench.hpp"

namespace maestro::testing {
namespace {

constexpr std::int64_t table_rows = 100, table_columns = 4;
constexpr std::uint32_t step_samples = 8;

/// A sample's reads of the table, even rows alone, and their gradients: rows may repeat.
struct SampleReads {
  SampleReads(std::uint64_t step, std::uint32_t sample) {
    Random random(step, sample);
    for (int read = 0; read < 7; ++read) {
      ids.push_back(static_cast<std::int32_t>(2 * random.below(table_rows / 2)));
      for (int i = 0; i < table_columns; ++i) gradients.push_back(static_cast<float>(random.normal()));
    }
  }
  void add_to(RowGradients& rows) {
    rows.add(ids, Tensor(gradients.data(), DType::f32, Shape{std::ssize(ids), table_columns}));
  }
  std::vector<std::int32_t> ids;
  std::vector<float> gradients;
};

OptimizerConfig row_optimizer(double clip_norm) {
  OptimizerConfig config;
  config.lr = 0.1;
  config.schedule = LearningRateSchedule::constant;
  config.clip_norm = clip_norm;
  return config;
}

/// Copies of a table in replicas, whose samples follow each other; the test takes the actors' part.
class TableCopies {
 public:
  explicit TableCopies(std::uint32_t replicas, bool average = false, double clip_norm = 0)
      : optimizer_(row_optimizer(clip_norm), 100) {
    GraphNode node;
    node.name = "memory";
    node.role = Role::trained;
    node.replicas = replicas;
    graph_.add(node);
    Directory directory;
    for (std::uint32_t replica = 0; replica < replicas; ++replica) {
      add_copy(average);
      RowExchangeOptions options;
      options.links = {replicas_of(graph_, SectionId(0)), replica, ReductionKind::rows, {}, ProcessId(0), 0};
      options.tables = copies_.back()->row_tables();
      options.most_tokens = 64;
      exchanges_.push_back(std::make_unique<RowExchange>(std::move(options), network_));
      actors_.push_back(bench_.stand_in([](RowsSent) {}));
      ReplicaAddress address;
      address.section = SectionId(0);
      address.replica = ReplicaIndex(replica);
      address.process = ProcessId(0);
      address.actor = actors_.back();
      address.reductions.resize(reduction_kinds);
      directory.processes.emplace_back().replicas.push_back(address);
    }
    for (const auto& exchange : exchanges_) exchange->connect(directory, outbox());
  }

  [[nodiscard]] std::uint32_t replicas() const { return static_cast<std::uint32_t>(copies_.size()); }
  [[nodiscard]] Parameter& table(std::uint32_t replica) { return copies_[replica]->all().front(); }
  /// Returns the bits of a replica's values and sums of squares.
  std::vector<std::uint32_t> bits(std::uint32_t replica) {
    std::vector<std::uint32_t> all;
    for (const Tensor& tensor : {table(replica).value(), table(replica).row_sums()}) {
      for (const float value : tensor.span<float>()) all.push_back(std::bit_cast<std::uint32_t>(value));
    }
    return all;
  }
  /// Adds a step's gradients, `size` samples a micro-batch; the replicas' samples are consecutive.
  void read(std::uint64_t step, std::uint32_t size) {
    for (std::uint32_t sample = 0; sample < step_samples; ++sample) {
      RowGradients& rows = *table(sample * replicas() / step_samples).row_gradients();
      rows.begin(sample / size);
      SampleReads(step, sample).add_to(rows);
    }
  }
  /// Runs an operation on all replicas in turn.
  void run(Operation operation) {
    if (replicas() == 1) return;
    for (const auto& exchange : exchanges_) exchange->begin(operation);
    const auto complete = [](const auto& exchange) { return exchange->complete(); };
    for (int turn = 0; !std::ranges::all_of(exchanges_, complete); ++turn) {
      ASSERT_LT(turn, 100) << "the exchange does not end";
      for (const auto& exchange : exchanges_) {
        auto next = exchange->next_job();
        if (!next) continue;
        EXPECT_FALSE(exchange->next_job()) << "a job is out";  // XC-1
        EXPECT_TRUE(next->job());
        exchange->job_done();
      }
    }
  }
  /// Returns the norm of the merged rows.
  double norm() {
    double squares = 0;
    for (std::uint32_t replica = 0; replica < replicas(); ++replica) {
      squares += table(replica).row_gradients()->sum_of_squares();
    }
    return std::sqrt(squares);
  }
  double step(std::uint64_t step, std::uint32_t size = 1) {
    read(step, size);
    run(Operation::sum_to_shards);
    const double all = norm();
    for (const auto& copy : copies_) optimizer_.step(ops_, *copy, 1, *optimizer_.clip_factor(all));
    run(Operation::gather_values);
    return all;
  }

  std::size_t gradient_bytes = 0;  // of messages to other replicas
  std::size_t stepped_bytes = 0;

 private:
  void add_copy(bool average) {
    copies_.push_back(std::make_unique<Parameters>());
    copies_.back()->add({.name = "table",
                         .shape = Shape{table_rows, table_columns},
                         .initialise = nullptr,
                         .rule = {.kind = UpdateRule::Kind::row_adagrad, .rate = 0.5, .average = average},
                         .initialise_row = [](std::span<float> row, std::int64_t number) {
                           std::ranges::fill(row, static_cast<float>(number));
                         }});
    copies_.back()->allocate(true);
  }
  ExchangeOutbox outbox() {
    ExchangeOutbox outbox;
    outbox.hand_over = [this](const caf::actor& to, const ShardHandOver& rows) {
      (rows.sum ? stepped_bytes : gradient_bytes) += rows.bytes.size();
      exchange_of(to).handed_over(rows);
    };
    outbox.shard_read = [this](const caf::actor& to, const ShardRead& read) { exchange_of(to).shard_read(read); };
    outbox.rows_sent = [](const caf::actor&, RowsSent) { FAIL() << "all replicas are in this process"; };
    return outbox;
  }
  RowExchange& exchange_of(const caf::actor& actor) {
    return *exchanges_.at(static_cast<std::size_t>(std::ranges::find(actors_, actor) - actors_.begin()));
  }

  cpu::CpuOperatorTable ops_;
  AdamWOptimizer optimizer_;
  SectionGraph graph_;
  Network network_{NetworkOptions(), false};
  ActorBench bench_;
  std::vector<caf::actor> actors_;
  std::vector<std::unique_ptr<Parameters>> copies_;
  std::vector<std::unique_ptr<RowExchange>> exchanges_;
};

void expect_rows_near(TableCopies& found, TableCopies& expected) {
  const auto near = [](const Tensor& one, const Tensor& other) {
    for (std::int64_t i = 0; i < one.elements(); ++i) {
      EXPECT_NEAR(one.data<float>()[i], other.data<float>()[i], 1e-6 * std::max(1.0F, std::abs(other.data<float>()[i])))
          << i;
    }
  };
  near(found.table(0).value(), expected.table(0).value());
  near(found.table(0).row_sums(), expected.table(0).row_sums());
}

TEST(RowExchange, replicas_equal_a_single_one_and_each_other) {  // RD-2, TB-2
  for (const double clip : {0.0, 0.5}) {
    TableCopies one(1, false, clip);
    for (const std::uint32_t replicas : {2U, 4U}) {
      TableCopies single(1, false, clip), several(replicas, false, clip);
      for (std::uint64_t step = 1; step <= 5; ++step) EXPECT_NEAR(several.step(step), single.step(step), 1e-5);
      for (std::uint32_t replica = 1; replica < replicas; ++replica) {
        EXPECT_EQ(several.bits(replica), several.bits(0)) << replicas << " replicas";
      }
      expect_rows_near(several, single);
    }
  }
}

TEST(RowExchange, bits_do_not_depend_on_micro_batches) {  // TB-2
  for (const std::uint32_t replicas : {1U, 2U, 4U}) {
    TableCopies small(replicas), large(replicas);
    for (std::uint64_t step = 1; step <= 5; ++step) EXPECT_EQ(small.step(step, 1), large.step(step, 2));
    EXPECT_EQ(small.bits(0), large.bits(0));
  }
}

TEST(RowExchange, an_average_equals_the_mean_of_copies_that_step_alone) {
  constexpr std::uint32_t replicas = 4;
  constexpr double lr = 0.1, scale = 0.5, epsilon = OptimizerConfig().epsilon;
  TableCopies copies(replicas, true), summed(replicas);
  std::vector<double> values, sums(table_rows, 0.0);
  for (std::int64_t i = 0; i < table_rows * table_columns; ++i)
    values.push_back(static_cast<double>(i / table_columns));
  for (std::uint64_t step = 1; step <= 3; ++step) {
    copies.step(step);
    summed.step(step);
    std::vector<double> next(values.size(), 0.0), next_sums(table_rows, 0.0);
    for (std::uint32_t replica = 0; replica < replicas; ++replica) {
      std::vector<double> gradients(values.size(), 0.0);
      for (std::uint32_t sample = 2 * replica; sample < 2 * replica + 2; ++sample) {
        const SampleReads reads(step, sample);
        for (std::size_t i = 0; i < reads.gradients.size(); ++i) {
          gradients[static_cast<std::size_t>(reads.ids[i / 4]) * 4 + i % 4] += replicas * double{reads.gradients[i]};
        }
      }
      for (std::size_t row = 0; row < table_rows; ++row) {
        double sum = sums[row];
        for (std::size_t i = 4 * row; i < 4 * row + 4; ++i) sum += scale * gradients[i] * gradients[i] / 4;
        next_sums[row] += sum / replicas;
        for (std::size_t i = 4 * row; i < 4 * row + 4; ++i) {
          next[i] += (values[i] - lr * gradients[i] / (std::sqrt(sum) + epsilon)) / replicas;
        }
      }
    }
    values = next;
    sums = next_sums;
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    EXPECT_NEAR(copies.table(0).value().data<float>()[i], values[i], 1e-5) << i;
  }
  for (std::size_t row = 0; row < table_rows; ++row) {
    EXPECT_NEAR(copies.table(0).row_sums().data<float>()[row], sums[row], 1e-5 * std::max(1.0, sums[row])) << row;
  }
  EXPECT_EQ(copies.bits(3), copies.bits(0));
  EXPECT_NE(copies.bits(0), summed.bits(0));
}

TEST(RowExchange, rows_without_an_id_keep_their_bits_in_every_copy) {  // TB-1
  constexpr std::uint32_t poison = 0x7fc12345;                         // not a number, so that an operation would show
  TableCopies copies(4);
  for (std::uint32_t replica = 0; replica < 4; ++replica) {
    for (std::int64_t row = 1; row < table_rows; row += 2) {
      std::ranges::fill(copies.table(replica).value().row_slice(row, 1).span<float>(), std::bit_cast<float>(poison));
    }
  }
  for (std::uint64_t step = 1; step <= 50; ++step) EXPECT_TRUE(std::isfinite(copies.step(step)));
  for (std::uint32_t replica = 0; replica < 4; ++replica) {
    const std::vector<std::uint32_t> bits = copies.bits(replica);
    for (std::size_t i = 0; i < table_rows * table_columns; ++i) {
      EXPECT_EQ(bits[i] == poison, i / table_columns % 2 == 1) << "replica " << replica << ", element " << i;
    }
  }
}

TEST(RowExchange, messages_have_the_rows_that_were_read_and_nothing_else) {  // TB-3
  TableCopies copies(2);
  copies.step(1);
  const auto owner = [](std::int32_t id) { return id < 48 ? 0U : 1U; };  // shard_range() of 100 rows
  std::array<std::set<std::int32_t>, 2> own;
  std::array<std::size_t, 2> up{};
  for (std::uint32_t replica = 0; replica < 2; ++replica) {
    std::set<std::int32_t> foreign;
    for (std::uint32_t sample = 4 * replica; sample < 4 * replica + 4; ++sample) {
      for (const std::int32_t id : SampleReads(1, sample).ids) {
        own[owner(id)].insert(id);
        if (owner(id) != replica) foreign.insert(id);
      }
    }
    up[replica] = foreign.size();
  }
  constexpr std::size_t row = 4 + 4 * table_columns, count = 4;
  EXPECT_EQ(copies.gradient_bytes, 2 * count + (up[0] + up[1]) * row);
  EXPECT_EQ(copies.stepped_bytes, 2 * count + (own[0].size() + own[1].size()) * (row + 4))
      << "4 for the sum of squares";
}

TEST(RowExchange, a_step_that_is_skipped_changes_nothing) {
  TableCopies copies(4), undisturbed(4);
  copies.step(1);
  undisturbed.step(1);
  copies.read(7, 1);
  copies.run(Operation::sum_to_shards);
  for (std::uint32_t replica = 0; replica < 4; ++replica) copies.table(replica).row_gradients()->clear();
  copies.step(2);
  undisturbed.step(2);
  EXPECT_EQ(copies.bits(0), undisturbed.bits(0));
}

}  // namespace
}  // namespace maestro::testing
