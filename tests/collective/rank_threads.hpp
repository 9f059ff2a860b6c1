// SPDX-License-Identifier: Apache-2.0
// Runs a function on every rank of a group, each on a separate thread.
#pragma once

#include <gtest/gtest.h>

#include <exception>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "runtime/collective/communicator.hpp"

namespace maestro {

using Group = std::vector<std::unique_ptr<Communicator>>;

/// Returns the exception of each rank's `work(communicator)`, by rank; null if it returned. Threads start in rank
/// order.
template <class Work>
std::vector<std::exception_ptr> failures_on(const Group& group, const Work& work) {
  std::vector<std::exception_ptr> failures(group.size());
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < group.size(); ++rank) {
    threads.emplace_back([&, rank] {
      try {
        work(*group[rank]);
      } catch (...) {
        failures[rank] = std::current_exception();
        group[rank]->abort("rank " + std::to_string(rank) + " has failed");
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return failures;
}

/// Runs `work` on every rank, like failures_on(); a failure of any rank fails the test.
template <class Work>
void on_all_ranks(const Group& group, const Work& work) {
  for (const std::exception_ptr& failure : failures_on(group, work)) {
    if (!failure) continue;
    try {
      std::rethrow_exception(failure);
    } catch (const std::exception& error) {
      ADD_FAILURE() << error.what();
    }
  }
}

/// Returns the text of `failure` if it is an `Error`; fails the test otherwise.
template <class Error>
std::string text_of(const std::exception_ptr& failure) {
  if (!failure) {
    ADD_FAILURE() << "nothing was thrown";
    return {};
  }
  try {
    std::rethrow_exception(failure);
  } catch (const Error& error) {
    return error.what();
  } catch (const std::exception& error) {
    ADD_FAILURE() << "thrown as another type: " << error.what();
  }
  return {};
}

}  // namespace maestro
