// SPDX-License-Identifier: Apache-2.0
// Runs a test body on a group's ranks, each on a separate thread, and divides tensors into the ranks' parts.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <exception>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "runtime/collective/thread_group.hpp"
#include "runtime/graph/layout.hpp"
#include "tests/ops/owned_tensor.hpp"

namespace maestro::testing {

/// Calls body(communicator) for every rank and waits for all. If a body throws, the test fails and the other ranks are
/// aborted, so that they do not wait.
template <class Body>
void on_ranks(std::int64_t ranks, Body body) {
  const std::vector<std::unique_ptr<Communicator>> group = make_thread_group(ranks);
  std::vector<std::string> failures(group.size());
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < group.size(); ++rank) {
    threads.emplace_back([&, rank] {
      try {
        body(*group[rank]);
      } catch (const std::exception& error) {
        failures[rank] = error.what();
        group[rank]->abort(error.what());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& failure : failures) EXPECT_EQ(failure, "");
}

/// Returns rows [range.first, range.end()) of the tensor.
inline OwnedTensor rows_of(const Tensor& whole, RowRange range) {
  OwnedTensor part(whole.dtype(), Shape{range.count, whole.columns()});
  const Tensor rows = whole.row_slice(range.first, range.count);
  if (rows.bytes() > 0) std::memcpy(part.tensor().raw(), rows.raw(), rows.bytes());
  return part;
}
inline OwnedTensor rows_of(const Tensor& whole, const Communicator& group) {
  return rows_of(whole, row_part(whole.rows(), group.size(), group.rank()));
}

/// Returns a copy of `tensor` with separate memory.
inline OwnedTensor copy_of(const Tensor& tensor) {
  OwnedTensor copy(tensor.dtype(), tensor.shape());
  if (tensor.bytes() > 0) std::memcpy(copy.tensor().raw(), tensor.raw(), tensor.bytes());
  return copy;
}

}  // namespace maestro::testing
