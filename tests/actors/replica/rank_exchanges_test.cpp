// SPDX-License-Identifier: Apache-2.0
#include "actors/replica/reduction/rank_exchanges.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "actors/replica/replica_rank.hpp"
#include "runtime/ops/cpu/cpu_operator_table.hpp"
#include "tests/actors/actor_bench.hpp"
#include "tests/actors/job/simulated_device.hpp"

namespace maestro::testing {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;

constexpr std::int64_t tied_elements = 32;
constexpr std::int64_t own_elements = 48;

/// A stage with a parameter shared with the other stage, and a parameter that no other stage has.
class TiedStage final : public Section {
 public:
  TiedStage(bool tied, std::int64_t own, std::int64_t counted) {
    const auto zeros = [](std::span<float> values) { std::ranges::fill(values, 0.0f); };
    if (tied) tied_ = &parameters_.add({"tied", Shape{tied_elements}, false, zeros});
    parameters_.add({"own", Shape{own}, false, zeros});
    if (counted > 0) {
      parameters_.add(
          {.name = "loads", .shape = Shape{counted}, .initialise = zeros, .rule = {.kind = UpdateRule::Kind::loads}});
    }
    parameters_.allocate(true);
  }
  [[nodiscard]] Ports ports() const override { return {}; }
  Parameters& parameters() override { return parameters_; }
  void forward(Tape&, const Inputs&, Outputs&) override {}
  [[nodiscard]] Cost cost(const SampleShape&) const override { return {}; }
  std::vector<StateEntry> state() override { return {}; }
  Parameter* tied() override { return tied_; }
  [[nodiscard]] std::string config_json() const override { return "{}"; }

 private:
  Parameters parameters_;
  Parameter* tied_ = nullptr;
};

/// Two replicas with two stages of a single rank each; the test drives their exchanges.
class RankExchangesTest : public ::testing::Test {
 protected:
  static constexpr std::uint32_t stages = 2;
  static constexpr std::uint32_t replicas = 2;

  /// Makes the ranks; `devices` has the device of each stage and replica.
  void make(const std::vector<std::string>& devices, bool tied, bool shares) {
    for (std::uint32_t stage = 0; stage < stages; ++stage) {
      GraphNode node;
      node.name = "model/" + std::to_string(stage);
      node.section = "model";
      node.role = Role::trained;
      node.replicas = replicas;
      node.stage = stage;
      node.stages = stages;
      node.layout.context = context_parts_;
      node.gradient_wire = wire_;
      graph_.add(node);
    }
    for (std::uint32_t at = 0; at < stages * replicas; ++at) {
      ReplicaPlacement place{SectionId(at / replicas), ReplicaIndex(at % replicas), ProcessId(0), {}};
      for (int part = 0; part < context_parts_; ++part) {
        place.devices.push_back(parse_device(devices[at]).value());
        place.devices.back().index += 10 * part;
      }
      places_.push_back(place);
    }
    ProcessInfo info;
    for (const ReplicaPlacement& place : places_) info.replicas.push_back(add(place, tied, shares));
    Directory directory;
    directory.processes.push_back(info);
    for (std::size_t at = 0; at < ranks_.size(); ++at) ranks_[at]->connect(directory, outbox());
    for (const auto& device : devices_) device->run_all();
  }

  std::shared_ptr<SectionRunner> make_runner(ReplicaIndex replica, bool tied, bool shares) {
    auto section = std::make_unique<TiedStage>(tied, own_elements_, counted_);
    Parameters& parameters = section->parameters();
    if (shares) {
      parameters.shard_optimizer_state(shard_range(parameters.gradients().size(), replicas, replica.value()));
    }
    SectionContext context;
    context.ops = &ops_;
    context.trained = true;
    return std::make_shared<SectionRunner>(std::move(section), context, OptimizerConfig(), 1);
  }
  ReplicaAddress add(const ReplicaPlacement& place, bool tied, bool shares) {
    devices_.push_back(std::make_unique<SimulatedDevice>(ops_));
    specs_.push_back(std::make_unique<ReplicaSpec>());
    ReplicaSpec& spec = *specs_.back();
    spec.graph = &graph_;
    spec.section = place.section;
    spec.replica = place.replica;
    for (std::int64_t part = 0; part < context_parts_; ++part) {
      spec.ranks.push_back({make_runner(place.replica, tied, shares), devices_.back().get()});
    }
    spec.backend = &backend_;
    spec.groups = {&places_, std::make_shared<AbortReason>()};
    spec.host_ops = &ops_;
    spec.network = &network_;
    ranks_.push_back(std::make_unique<RankExchanges>(spec, LayoutRank(0), network_.next_client()));
    actors_.push_back(bench_.stand_in([](ReductionReady) {}));
    ReplicaAddress address;
    address.section = place.section;
    address.replica = place.replica;
    address.actor = actors_.back();
    address.reductions = ranks_.back()->addresses();
    return address;
  }

  ExchangeOutbox outbox() {
    ExchangeOutbox outbox;
    outbox.hand_over = [this](const caf::actor& to, ShardHandOver shard) {
      ++handed_over_;
      rank_of(to).handed_over(shard);
    };
    outbox.shard_read = [this](const caf::actor& to, ShardRead read) { rank_of(to).shard_read(read); };
    outbox.ready = [this](const caf::actor& to, ReductionReady ready) { rank_of(to).ready(ready); };
    outbox.broken = [this](const std::string& message) { broken_.push_back(message); };
    return outbox;
  }
  RankExchanges& rank_of(const caf::actor& actor) {
    return *ranks_.at(static_cast<std::size_t>(std::ranges::find(actors_, actor) - actors_.begin()));
  }
  Parameters& parameters(std::size_t at) { return specs_[at]->ranks[0].runner->section().parameters(); }

  /// Runs the actions on every rank in turn; a rank does not wait for others between two actions.
  void run_to_end(const std::vector<StepAction>& actions) {
    std::vector<std::size_t> at(ranks_.size(), 0);
    for (const auto& rank : ranks_) rank->begin(actions.front());
    for (int round = 0; round < rounds_at_most; ++round) {
      bool all = true;
      for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
        if (ranks_[rank]->complete() && ++at[rank] < actions.size()) ranks_[rank]->begin(actions[at[rank]]);
        all = ranks_[rank]->complete() && at[rank] >= actions.size() && all;
        run_next_job(rank);
      }
      if (all) return;
    }
    FAIL() << "the exchanges do not end";
  }
  void run_next_job(std::size_t rank) {
    const auto next = ranks_[rank]->next_job();
    if (!next) return;
    EXPECT_FALSE(ranks_[rank]->complete());
    EXPECT_TRUE(next->job());
    EXPECT_FALSE(ranks_[rank]->next_job()) << "a job is out";  // XC-1
    devices_[rank]->finish([this, rank](const std::string&) { ranks_[rank]->job_done(); });
  }
  /// Returns an integer gradient, so that sums are exact.
  static float gradient(std::size_t at, std::size_t element) { return static_cast<float>(100 * at + element); }
  void set_gradients() {
    for (std::size_t at = 0; at < ranks_.size(); ++at) {
      const std::span<float> values = parameters(at).gradients();
      for (std::size_t element = 0; element < values.size(); ++element) values[element] = gradient(at, element);
    }
  }
  /// Returns rank `at`'s sum over its replicas; the first elements are tied and are summed over both stages, too.
  static float expected(std::size_t at, std::size_t element, bool tied) {
    const std::size_t first = at / replicas * replicas;
    const bool both = tied && element < tied_elements;
    float sum = 0;
    for (std::size_t other = 0; other < stages * replicas; ++other) {
      if (both || other / replicas == first / replicas) sum += gradient(other, element);
    }
    return sum;
  }
  void expect_sums(bool tied) {
    for (std::size_t at = 0; at < ranks_.size(); ++at) {
      const std::span<const float> values = parameters(at).gradients();
      const ShardRange kept = parameters(at).kept_moments();
      for (std::size_t element = kept.first; element < kept.first + kept.count; ++element) {
        ASSERT_EQ(values[element], expected(at, element, tied)) << "rank " << at << ", element " << element;
      }
    }
  }
  /// Sums to shards, sets each owner's shard to a value that identifies the owner, and exchanges these values.
  void expect_sharded_step(bool tied) {
    set_gradients();
    run_to_end({StepAction::exchange_tie, StepAction::sum_to_shards});
    expect_sums(tied);
    for (std::size_t at = 0; at < ranks_.size(); ++at) {  // as the optimizer does
      const ShardRange kept = parameters(at).kept_moments();
      std::ranges::fill(parameters(at).values().subspan(kept.first, kept.count), static_cast<float>(10 + at));
      parameters(at).stage_shard(ops_, ParameterBuffer::values);
    }
    run_to_end({StepAction::gather_values});
    for (std::size_t at = 0; at < ranks_.size(); ++at) expect_shards(at, 10);
  }
  /// Checks that member 0 has the moments of all shards in its gradients, whatever they held before.
  void expect_gathered_moments() {
    for (std::size_t at = 0; at < ranks_.size(); ++at) {
      std::ranges::fill(parameters(at).first_moments().span<float>(), static_cast<float>(5 + at));
      std::ranges::fill(parameters(at).second_moments().span<float>(), static_cast<float>(50 + at));
    }
    for (const auto& [action, base] :
         {std::pair(StepAction::gather_first_moments, 5.0f), std::pair(StepAction::gather_second_moments, 50.0f)}) {
      set_gradients();
      run_to_end({action});
      for (std::size_t at = 0; at < ranks_.size(); at += replicas) expect_shards(at, base);
    }
  }
  /// Checks that rank `at` has `base` + the owner's index as gradients in each owner's range.
  void expect_shards(std::size_t at, float base) {
    const std::size_t first = at / replicas * replicas;
    for (std::size_t owner = first; owner < first + replicas; ++owner) {
      const ShardRange shard = parameters(owner).kept_moments();
      EXPECT_THAT(parameters(at).gradients().subspan(shard.first, shard.count), Each(base + static_cast<float>(owner)));
    }
  }
  [[nodiscard]] std::vector<std::string> sorted_exchanges() const {
    std::vector<std::string> done = backend_.exchanges();
    std::ranges::sort(done);
    return done;
  }

  static constexpr int rounds_at_most = 1000;
  const std::vector<std::string> own_devices_{"cuda:0", "cuda:1", "cuda:2", "cuda:3"};
  const std::vector<std::string> processors_{"cpu:0", "cpu:1", "cpu:2", "cpu:3"};
  cpu::CpuOperatorTable ops_;
  SectionGraph graph_;
  Network network_{NetworkOptions(), false};
  SimulatedBackend backend_;
  std::vector<ReplicaPlacement> places_;
  std::vector<std::unique_ptr<SimulatedDevice>> devices_;
  std::vector<std::unique_ptr<ReplicaSpec>> specs_;
  std::vector<std::unique_ptr<RankExchanges>> ranks_;
  ActorBench bench_;
  std::vector<caf::actor> actors_;
  std::vector<std::string> broken_;
  std::int64_t context_parts_ = 1;  // only ranks of the first part are connected
  std::int64_t own_elements_ = own_elements;
  GradientWire wire_ = GradientWire::f32;
  std::int64_t counted_ = 0;  // elements of the stage's last parameter that count
  int handed_over_ = 0;
};

TEST_F(RankExchangesTest, ties_are_added_before_replicas_each_in_a_group_of_its_own) {  // DG-1, DG-3
  make(own_devices_, true, false);
  EXPECT_EQ(backend_.joined().size(), 4u) << "two stages' replicas, two replicas' ties";
  set_gradients();
  run_to_end({StepAction::exchange_tie, StepAction::sum});
  expect_sums(true);
  EXPECT_THAT(backend_.exchanges(), SizeIs(4));
  EXPECT_THAT(backend_.exchanges(), Each("all_reduce_sum"));
  EXPECT_TRUE(backend_.problems().empty());
  EXPECT_EQ(handed_over_, 0) << "nothing went by the host";
  EXPECT_TRUE(broken_.empty());
}

TEST_F(RankExchangesTest, replicas_that_share_moments_have_their_shards_and_then_all_that_was_offered) {  // XC-2
  make(own_devices_, true, true);
  expect_sharded_step(true);
  EXPECT_THAT(sorted_exchanges(), ElementsAre("all_reduce_sum", "all_reduce_sum", "gather_shards", "gather_shards",
                                              "reduce_to_shards", "reduce_to_shards"));
}

TEST_F(RankExchangesTest, a_tie_by_the_host_adds_the_tied_gradient_alone) {  // HX-2
  make(processors_, true, false);
  for (int step = 0; step < 2; ++step) {
    set_gradients();
    run_to_end({StepAction::exchange_tie, StepAction::sum});
    expect_sums(true);
  }
  EXPECT_GT(handed_over_, 0);
  EXPECT_TRUE(backend_.exchanges().empty());
}

TEST_F(RankExchangesTest, every_operation_goes_by_the_host_where_replicas_have_no_group) {  // XC-2, HX-1, HX-2
  make(processors_, true, true);
  expect_sharded_step(true);
  expect_gathered_moments();
  expect_sharded_step(true);
  EXPECT_TRUE(backend_.exchanges().empty());
}

TEST_F(RankExchangesTest, a_member_whose_shard_is_empty_waits_for_no_part_of_it) {  // RD-4
  own_elements_ = 16;                                                               // smallest shard
  make(processors_, false, true);
  ASSERT_EQ(parameters(0).kept_moments().count, 0u);
  ASSERT_EQ(parameters(1).kept_moments().count, 16u);
  expect_sharded_step(false);
  expect_gathered_moments();
}

TEST_F(RankExchangesTest, moments_are_gathered_in_the_group_of_replicas) {
  make(own_devices_, false, true);
  EXPECT_EQ(backend_.joined().size(), 2u);
  expect_gathered_moments();
  EXPECT_THAT(sorted_exchanges(), ElementsAre("gather_shards", "gather_shards", "gather_shards", "gather_shards"));
}

TEST_F(RankExchangesTest, a_later_context_part_takes_no_part_in_gathering_moments) {  // RX-1
  context_parts_ = 2;
  make(processors_, false, true);
  RankExchanges second(*specs_[0], LayoutRank(1), network_.next_client());
  EXPECT_THAT(ranks_[0]->ring_numbers(), SizeIs(4)) << "of sums and of moments";
  EXPECT_THAT(second.ring_numbers(), SizeIs(2)) << "of sums";
  second.begin(StepAction::gather_first_moments);
  EXPECT_TRUE(second.complete());
}

TEST_F(RankExchangesTest, in_a_group_too_a_later_context_part_takes_no_part_in_gathering_moments) {  // RX-1
  context_parts_ = 2;
  make(own_devices_, false, true);
  RankExchanges second(*specs_[0], LayoutRank(1), network_.next_client());
  EXPECT_FALSE(second.addresses().front().group.empty()) << "it takes part in sums";
  second.begin(StepAction::gather_first_moments);
  EXPECT_TRUE(second.complete());
}

TEST_F(RankExchangesTest, a_tie_of_stages_that_share_a_device_goes_by_the_host_and_replicas_by_a_group) {  // WR-1
  make({"cuda:0", "cuda:1", "cuda:0", "cuda:1"}, true, false);
  EXPECT_EQ(backend_.joined().size(), 2u);
  set_gradients();
  run_to_end({StepAction::exchange_tie, StepAction::sum});
  expect_sums(true);
  EXPECT_GT(handed_over_, 0);
  EXPECT_THAT(backend_.exchanges(), ElementsAre("all_reduce_sum", "all_reduce_sum"));
}

TEST_F(RankExchangesTest, one_replica_on_a_processor_takes_all_of_its_section_to_the_host) {  // WR-1
  make({"cuda:0", "cpu:0", "cuda:1", "cuda:2"}, false, true);
  EXPECT_EQ(backend_.joined().size(), 1u);
  set_gradients();
  run_to_end({StepAction::sum_to_shards});
  expect_sums(false);
  EXPECT_GT(handed_over_, 0);
  EXPECT_THAT(backend_.exchanges(), ElementsAre("reduce_to_shards"));
}

/// Values that no format but f32 holds.
float uneven(std::size_t at, std::size_t element) {
  return static_cast<float>(std::sin(static_cast<double>(1 + 31 * at + element)));
}

TEST_F(RankExchangesTest, encoded_gradients_have_the_same_bits_on_all_replicas) {  // WI-1
  own_elements_ = 1000;
  counted_ = 32;
  for (const GradientWire wire : {GradientWire::bf16, GradientWire::e4m3}) {
    SCOPED_TRACE(gradient_wire_names[static_cast<std::size_t>(wire)]);
    graph_ = SectionGraph();
    places_.clear();
    ranks_.clear();
    specs_.clear();
    actors_.clear();
    devices_.clear();
    wire_ = wire;
    make(processors_, false, false);
    const std::size_t elements = parameters(0).gradients().size();
    const std::size_t learned = parameters(0).learned_elements();
    ASSERT_EQ(elements - learned, 32u);
    for (std::size_t at = 0; at < 2; ++at) {
      for (std::size_t element = 0; element < elements; ++element) {
        parameters(at).gradients()[element] =
            element < learned ? uneven(at, element) : static_cast<float>((1 << 20) + 3 * element);
      }
    }
    run_to_end({StepAction::sum});
    const std::span<const float> sums = parameters(0).gradients();
    EXPECT_TRUE(std::ranges::equal(sums, parameters(1).gradients()));
    double error = 0, squares = 0;
    for (std::size_t element = 0; element < learned; ++element) {
      const double exact = static_cast<double>(uneven(0, element)) + uneven(1, element);
      error += (sums[element] - exact) * (sums[element] - exact);
      squares += exact * exact;
      EXPECT_EQ(sums[element], float(bfloat16(sums[element]))) << "sums are sent in bf16";
    }
    const double relative = std::sqrt(error / squares);
    EXPECT_GT(relative, 1e-4);
    EXPECT_LT(relative, wire == GradientWire::bf16 ? 0.004 : 0.04);
    for (std::size_t element = learned; element < elements; ++element) {
      EXPECT_EQ(sums[element], static_cast<float>(2 * ((1 << 20) + 3 * element))) << "counts are exact";
    }
    WireError told = ranks_[0]->take_wire_error();
    told.add(ranks_[1]->take_wire_error());
    EXPECT_GT(std::sqrt(told.error / told.values), 1e-4);
    EXPECT_LT(std::sqrt(told.error / told.values), wire == GradientWire::bf16 ? 0.004 : 0.04);
  }
}

TEST_F(RankExchangesTest, replicas_that_share_moments_encode_parts_and_send_values_as_they_are) {  // XC-2
  wire_ = GradientWire::bf16;
  make(processors_, false, true);
  expect_gathered_moments();
  for (std::size_t at = 0; at < ranks_.size(); ++at) {
    std::ranges::fill(parameters(at).gradients(), uneven(at, 0));
  }
  run_to_end({StepAction::sum_to_shards});
  for (std::size_t at = 0; at < 2; ++at) {
    const ShardRange kept = parameters(at).kept_moments();
    const std::size_t other = 1 - at;
    const float part = float(bfloat16(uneven(other, 0)));
    const float sum = at == 0 ? uneven(0, 0) + part : part + uneven(1, 0);
    EXPECT_THAT(parameters(at).gradients().subspan(kept.first, kept.count), Each(sum)) << "the own part is exact";
  }
  for (std::size_t at = 0; at < ranks_.size(); ++at) {
    const ShardRange kept = parameters(at).kept_moments();
    std::ranges::fill(parameters(at).values().subspan(kept.first, kept.count), static_cast<float>(at) + 0.123456f);
    parameters(at).stage_shard(ops_, ParameterBuffer::values);
  }
  run_to_end({StepAction::gather_values});
  for (std::size_t at = 0; at < ranks_.size(); ++at) expect_shards(at, 0.123456f);
  expect_gathered_moments();
}

TEST_F(RankExchangesTest, replicas_that_encode_gradients_form_no_group) {  // WR-1
  wire_ = GradientWire::bf16;
  make(own_devices_, true, false);
  EXPECT_EQ(backend_.joined().size(), 2u) << "of the ties alone";
  set_gradients();
  run_to_end({StepAction::exchange_tie, StepAction::sum});
  EXPECT_GT(handed_over_, 0);
  EXPECT_THAT(backend_.exchanges(), ElementsAre("all_reduce_sum", "all_reduce_sum"));
}

TEST_F(RankExchangesTest, several_steps_follow_each_other) {  // DG-1, HX-2
  make(own_devices_, true, false);
  constexpr int steps = 3;
  for (int step = 0; step < steps; ++step) {
    set_gradients();
    run_to_end({StepAction::exchange_tie, StepAction::sum});
    expect_sums(true);
  }
  EXPECT_EQ(backend_.exchanges().size(), 4u * steps);
}

}  // namespace
}  // namespace maestro::testing
