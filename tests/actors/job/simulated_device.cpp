// SPDX-License-Identifier: Apache-2.0
#include "tests/actors/job/simulated_device.hpp"

#include <algorithm>

#include "runtime/collective/collective_call.hpp"
#include "runtime/collective/collective_share.hpp"
#include "runtime/core/result.hpp"

namespace maestro::testing {

void SimulatedDevice::run_one() {
  auto& queue = critical_.empty() ? background_ : critical_;
  const auto work = std::move(queue.front());
  queue.pop_front();
  work();
}

void SimulatedDevice::finish(std::function<void(const std::string& failure)> done) {
  if (exchanges_ == 0) return done({});
  held_.push_back(std::move(done));
}

void SimulatedDevice::exchange_done() {
  if (--exchanges_ > 0) return;
  for (const auto& done : std::exchange(held_, {})) done({});
}

class SimulatedBackend::Group {
 public:
  Group(const SimulatedBackend& backend, std::int64_t size)
      : backend_(&backend), calls_(static_cast<std::size_t>(size)), devices_(calls_.size()) {}
  void add(std::int64_t rank, SimulatedDevice& device) { devices_.at(static_cast<std::size_t>(rank)) = &device; }
  [[nodiscard]] std::int64_t size() const { return static_cast<std::int64_t>(calls_.size()); }
  [[nodiscard]] const std::string& failure() const { return failure_; }
  void fail(const std::string& why) { failure_ = why; }

  void queue(std::int64_t rank, const CollectiveCall& call) {
    if (!failure_.empty()) throw CommunicatorAborted(failure_);
    calls_[static_cast<std::size_t>(rank)].push_back(call);
    devices_[static_cast<std::size_t>(rank)]->exchange_queued();
    if (std::ranges::none_of(calls_, [](const auto& queue) { return queue.empty(); })) perform();
  }

 private:
  void perform() {
    std::vector<CollectiveCall> side_by_side;
    for (auto& queue : calls_) {
      side_by_side.push_back(queue.front());
      queue.pop_front();
    }
    backend_->exchanges_.emplace_back(name_of(side_by_side.front().kind));
    failure_ = std::exchange(backend_->breaks_, {});
    for (std::int64_t rank = 0; failure_.empty() && rank < size(); ++rank) {
      const std::string wrong = call_violation(side_by_side, rank);
      if (wrong.empty()) continue;
      failure_ = wrong;
      backend_->problems_.push_back(wrong);
    }
    for (std::int64_t rank = 0; failure_.empty() && rank < size(); ++rank) perform_share(side_by_side, rank);
    for (SimulatedDevice* device : devices_) device->exchange_done();
  }

  const SimulatedBackend* backend_;
  std::vector<std::deque<CollectiveCall>> calls_;  // by rank
  std::vector<SimulatedDevice*> devices_;
  std::string failure_;
};

class SimulatedBackend::Member final : public Communicator {
 public:
  Member(std::shared_ptr<Group> group, std::int64_t rank) : group_(std::move(group)), rank_(rank) {}
  [[nodiscard]] std::int64_t size() const override { return group_->size(); }
  [[nodiscard]] std::int64_t rank() const override { return rank_; }
  void all_reduce_sum(std::span<float> values) override { queue(CollectiveKind::all_reduce_sum, values); }
  void all_reduce_max(std::span<float> values) override { queue(CollectiveKind::all_reduce_max, values); }
  void all_gather_rows(const Tensor& part, const Tensor& whole) override {
    group_->queue(rank_, {.kind = CollectiveKind::all_gather_rows, .from = part, .to = whole});
  }
  void reduce_scatter_rows(const Tensor& whole, const Tensor& part) override {
    group_->queue(rank_, {.kind = CollectiveKind::reduce_scatter_rows, .from = whole, .to = part});
  }
  void reduce_to_shards(std::span<float> values) override { queue(CollectiveKind::reduce_to_shards, values); }
  void gather_shards(std::span<float> values) override { queue(CollectiveKind::gather_shards, values); }
  void exchange(const Tensor& /*from*/, std::span<const BlockTransfer> /*sends*/, const Tensor& /*to*/,
                std::span<const BlockTransfer> /*receives*/) override {
    throw std::logic_error("blocks of callers would have to be kept");
  }
  void abort(const std::string& why) override { group_->fail(why); }
  [[nodiscard]] std::string failure() const override { return group_->failure(); }

 private:
  void queue(CollectiveKind kind, std::span<float> values) { group_->queue(rank_, {.kind = kind, .values = values}); }
  std::shared_ptr<Group> group_;
  std::int64_t rank_;
};

std::unique_ptr<Device> SimulatedBackend::open(const DeviceOptions& /*options*/) const {
  throw JobError("simulated devices are made by the test");
}

std::vector<std::byte> SimulatedBackend::make_group_id() const {
  const int number = static_cast<int>(groups_.size());
  groups_[number] = nullptr;  // created by the first member that joins
  return {static_cast<std::byte>(number / 256), static_cast<std::byte>(number % 256)};
}

std::unique_ptr<Communicator> SimulatedBackend::join(Device& device, const GroupRank& rank) const {
  if (rank.id.size() != 2) throw JobError("no id of a group");
  const int number = static_cast<int>(rank.id[0]) * 256 + static_cast<int>(rank.id[1]);
  std::shared_ptr<Group>& group = groups_.at(number);
  if (group == nullptr) group = std::make_shared<Group>(*this, rank.size);
  if (group->size() != rank.size) throw JobError("members do not agree about the size of their group");
  group->add(rank.rank, dynamic_cast<SimulatedDevice&>(device));
  joined_[number].push_back(rank.rank);
  return std::make_unique<Member>(group, rank.rank);
}

std::vector<std::byte> SimulatedBackend::export_memory(Device& /*device*/, const std::byte* /*block*/) const {
  return {};
}

std::unique_ptr<ImportedMemory> SimulatedBackend::import_memory(Device& /*device*/,
                                                                std::span<const std::byte> /*exported*/,
                                                                std::string& why_not) const {
  why_not = "it is simulated";
  return nullptr;
}

}  // namespace maestro::testing
