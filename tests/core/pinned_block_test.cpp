// SPDX-License-Identifier: Apache-2.0
#include "runtime/core/pinned_block.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace maestro {
namespace {

/// Counts pins by first address.
class PinningSpace final : public MemorySpace {
 public:
  [[nodiscard]] bool host() const override { return false; }
  [[nodiscard]] std::byte* allocate(std::size_t /*bytes*/) override { return nullptr; }
  void release(std::byte* /*block*/, std::size_t /*bytes*/) noexcept override {}
  void read(std::byte* /*host_to*/, const std::byte* /*from*/, std::size_t /*bytes*/) override {}
  void write(std::byte* /*to*/, const std::byte* /*host_from*/, std::size_t /*bytes*/) override {}
  void zero(std::byte* /*to*/, std::size_t /*bytes*/) override {}
  void pin(std::byte* host_begin, std::size_t bytes) override { held.emplace_back(host_begin, bytes); }
  void unpin(std::byte* host_begin) override {
    EXPECT_EQ(std::erase_if(held, [&](const auto& each) { return each.first == host_begin; }), 1U);
  }
  std::vector<std::pair<std::byte*, std::size_t>> held;
};

TEST(PinnedBlock, pins_while_it_lives_and_unpins_once_wherever_it_has_moved) {
  PinningSpace space;
  std::vector<std::byte> first(8), second(16);
  const std::pair<std::byte*, std::size_t> pinned_first{first.data(), 8}, pinned_second{second.data(), 16};
  {
    PinnedBlock block(space, first);
    PinnedBlock moved(std::move(block));
    EXPECT_EQ(space.held, std::vector{pinned_first});
    block = PinnedBlock(space, second);
    EXPECT_EQ(space.held, (std::vector{pinned_first, pinned_second}));
    moved = std::move(block);
    EXPECT_EQ(space.held, std::vector{pinned_second});
    PinnedBlock().reset();
  }
  EXPECT_TRUE(space.held.empty());
}

}  // namespace
}  // namespace maestro
