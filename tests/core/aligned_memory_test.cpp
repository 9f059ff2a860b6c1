// SPDX-License-Identifier: Apache-2.0
#include "runtime/core/aligned_memory.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>

#include "runtime/core/result.hpp"

namespace maestro {
namespace {

TEST(AlignedMemory, is_whole_zeroed_pages) {
  const AlignedMemory memory(5000);
  EXPECT_EQ(memory.size(), 8192U);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory.data()) % 4096, 0U);
  for (std::size_t i = 0; i < memory.size(); ++i) ASSERT_EQ(memory.data()[i], std::byte{0});
}

TEST(AlignedMemory, of_no_bytes_maps_nothing) {
  const AlignedMemory memory(0);
  EXPECT_EQ(memory.data(), nullptr);
  EXPECT_EQ(memory.size(), 0U);
}

TEST(AlignedMemory, moving_hands_the_block_over) {
  AlignedMemory from(4096);
  std::byte* const block = from.data();
  AlignedMemory to(std::move(from));
  EXPECT_EQ(to.data(), block);
  EXPECT_EQ(from.data(), nullptr);  // NOLINT: the moved-from state is part of the contract
  AlignedMemory other(8192);
  other = std::move(to);
  EXPECT_EQ(other.data(), block);
  EXPECT_EQ(other.size(), 4096U);
  EXPECT_EQ(to.size(), 0U);  // NOLINT
}

TEST(AlignedMemory, reset_gives_it_back_and_may_be_repeated) {
  AlignedMemory memory(4096);
  memory.reset();
  memory.reset();
  EXPECT_EQ(memory.data(), nullptr);
  EXPECT_EQ(memory.size(), 0U);
}

TEST(AlignedMemory, a_refusal_by_the_system_is_an_error_that_names_the_size) {
  constexpr std::size_t more_than_an_address_space = std::numeric_limits<std::size_t>::max() / 4;
  try {
    const AlignedMemory memory(more_than_an_address_space);
    FAIL() << "mapped more memory than a CPU can address";
  } catch (const JobError& error) {
    EXPECT_EQ(error.code(), ErrorCode::unavailable);
    EXPECT_NE(std::string(error.what()).find(std::to_string(((more_than_an_address_space + 4095) / 4096 * 4096) >> 10)),
              std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace maestro
