// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/cpu/scratch.hpp"

#include <gtest/gtest.h>

namespace maestro::cpu {
namespace {

TEST(ScratchPool, leases_that_overlap_in_time_never_share_memory) {  // SC-1
  ScratchPool pool;
  ScratchPool::Lease first = pool.lease();
  ScratchPool::Lease second = pool.lease();
  float* a = first.floats(100);
  float* b = second.floats(100);
  EXPECT_TRUE(a + 100 <= b || b + 100 <= a);
}

TEST(ScratchPool, a_later_lease_reuses_the_memory_of_an_ended_one) {
  ScratchPool pool;
  float* former = nullptr;
  {
    ScratchPool::Lease lease = pool.lease();
    former = lease.floats(1000);
  }
  ScratchPool::Lease lease = pool.lease();
  EXPECT_EQ(lease.floats(1000), former);
}

TEST(ScratchPool, pieces_of_one_lease_are_apart_and_on_cache_lines) {
  ScratchPool pool;
  ScratchPool::Lease lease = pool.lease();
  const Tensor a = lease.tensor({3, 5}, DType::bf16);
  const Tensor b = lease.tensor({3, 5}, DType::f32);
  EXPECT_TRUE(a.raw() + a.bytes() <= b.raw() || b.raw() + b.bytes() <= a.raw());
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(a.raw()) % 64, 0U);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(b.raw()) % 64, 0U);
}

}  // namespace
}  // namespace maestro::cpu
