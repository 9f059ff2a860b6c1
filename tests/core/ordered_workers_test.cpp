// SPDX-License-Identifier: Apache-2.0
#include "runtime/core/ordered_workers.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>

#include "runtime/core/random.hpp"

namespace maestro {
namespace {

TEST(OrderedWorkers, results_come_once_and_in_the_order_of_their_elements) {  // OW-1
  std::vector<int> seen;
  OrderedWorkers<int, int> workers(
      4,
      [](int element) {
        auto word = static_cast<std::uint64_t>(element) + 1;
        for (int spin = 0; spin < element % 7 * 2000; ++spin) word = mix64(word);  // some take longer
        return word == 0 ? -1 : element * element;
      },
      [&](int made) { seen.push_back(made); });
  for (int element = 0; element < 1000; ++element) workers.add(element);
  workers.finish();
  ASSERT_EQ(seen.size(), 1000U);
  for (int element = 0; element < 1000; ++element)
    EXPECT_EQ(seen[static_cast<std::size_t>(element)], element * element);
}

TEST(OrderedWorkers, few_elements_are_held) {  // OW-2
  std::atomic<int> held = 0;
  int most = 0;
  OrderedWorkers<int, int> workers(
      2, [&](int element) { return element; }, [&](int) { --held; });
  for (int element = 0; element < 100; ++element) {
    ++held;
    workers.add(element);
    most = std::max(most, held.load());
  }
  workers.finish();
  EXPECT_EQ(held, 0);
  EXPECT_LE(most, 2 * 2 + 1);
}

TEST(OrderedWorkers, an_exception_of_the_work_reaches_the_caller) {
  std::vector<int> seen;
  OrderedWorkers<int, int> workers(
      2,
      [](int element) {
        if (element == 5) throw std::runtime_error("five");
        return element;
      },
      [&](int made) { seen.push_back(made); });
  const auto add_all = [&] {
    for (int element = 0; element < 20; ++element) workers.add(element);
    workers.finish();
  };
  EXPECT_THROW(add_all(), std::runtime_error);
  EXPECT_EQ(seen, (std::vector<int>{0, 1, 2, 3, 4}));
}

}  // namespace
}  // namespace maestro
